"""The what-if: a non-volatile layer between page cache and disk, simulated over write-backs.

trace/               a recording as input of the models: pages, bios, calls that wait
flusher/             the kernel's flusher: write-back regenerated at other settings
policies/            operations on a buffer, and replacement policies (numba)
devices/             the catalogue of disks and media; the calibration of a device by fio
one_capacity.py      the model `paper`: Park & Bahn 2023, section 5, at one capacity
flat_latencies.py    the closed form of the model `paper`: flat latencies, summed
curves/              the model `curve`: every capacity in one pass
timed/               the model `timed`: queues, destaging, flushes, the latency of each bio
answers/             the results of simulations, as facts; sweeps over many settings
toml_file.py         the reader of files that users write: devices, sweeps
"""
