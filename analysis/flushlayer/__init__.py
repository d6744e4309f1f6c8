"""The what-if: a non-volatile layer between page cache and disk, simulated over write-backs.

accesses.py    a trace's page write-backs as dense page ids, in time order
devices.py     the device catalogue (devices.toml)
policies.py    replacement policies (numba)
paper.py       the model of seed 001, section 5
"""
