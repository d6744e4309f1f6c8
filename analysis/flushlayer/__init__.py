"""The what-if: a non-volatile layer between page cache and disk, simulated over write-backs.

trace/               a recording as the models take it: pages, bios, calls that wait
flusher/             the kernel's flusher: write-back regenerated at other settings
policies/            what an access asks of a buffer, and which page makes room (numba)
devices/             what disks and media are known to do; measuring one's own
paper.py             the model `paper`: the closed form of seed 001, section 5, at one capacity
flat_latencies.py    that form: a page costs the medium's time or the disk's
curves/              the model `curve`: every capacity in one pass
timed/               the model `timed`: queues, destaging, flushes, each bio's latency
answers/             what a simulation comes to, as facts; sweeps of many
toml_file.py         files that users write: devices, sweeps
"""
