"""The what-if: a non-volatile layer between page cache and disk, simulated over write-backs.

accesses.py           a trace's page write-backs as dense page ids, in time order
operations.py         what an access asks of the layer; write-only, read-write, sync-only buffers
devices.py            the device catalogue (devices.toml)
policies/             replacement policies (numba)
flat_latencies.py     the closed form of seed 001, section 5
paper.py              the model `paper`: that form at one capacity
stack_distances.py    LRU at every capacity in one pass
curve.py              the model `curve`: any policy at many capacities, and the inverse
sampling.py           LRU's curve of a sample of the pages, with an interval
flusher/              the kernel's flusher: write-back regenerated at other settings
"""
