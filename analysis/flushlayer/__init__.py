"""The what-if: a non-volatile layer between page cache and disk, simulated over write-backs.

accesses.py           a trace's page write-backs as dense page ids, in time order
file_pages.py         which page of which file each of them is
operations.py         what an access asks of the layer; write-only, read-write, sync-only buffers
devices.py            the device catalogue (devices.toml, parameters.py); calibrate.py adds to it
toml_file.py          files that users write: devices, sweeps
policies/             replacement policies (numba)
flat_latencies.py     the closed form of seed 001, section 5
paper.py              the model `paper`: that form at one capacity
bits.py               bits of words, for the kernels
stack_distances.py    LRU at every capacity in one pass
curve.py              the model `curve`: any policy at many capacities, and the inverse
sampling.py           LRU's curve of a sample of the pages, with an interval
timed.py              the model `timed`: makes the arrays of state.py and runs events.py over them
requests.py           the bios that it simulates; replay.py: what waits for what in closed replay
queueing.py           events in order, and the line of each device; service.py: times of service
disk.py, electronic.py  models of devices, of what the catalogue knows; nvm.py: wear, energy
residency.py          what a layer holds; destage.py: when it writes to the disk
volatile_cache.py     the disk's own cache, flushes and FUA; completion.py: the end of a bio
outcome.py            response times by group, use of devices, comparisons
flusher/              the kernel's flusher: write-back regenerated at other settings
recorded.py           a recording as the timed model asks for it; sync_calls.py: calls that wait
ceiling.py            what any layer can save of the training's time at most
answers/              what a simulation comes to, as facts; sweeps of many
"""
