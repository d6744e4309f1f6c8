"""Findings of a trace: ranked sentences, each with a number and the query that gives the number.

finding.py      the class Finding; formatting of values and names
window.py       the time over which shares are computed, and losses of events in it
writes.py       write-back stalls, and an upper bound on the cost of waiting for writes
ceiling.py      the calculation of that bound, which `tracer simulate` prints too
syncs.py        sync calls (fsync and similar) and checkpoints
loading.py      waiting for data: its share, the first epoch
cpu_holders.py  advice on waits for a CPU
data_waits.py   the causes of waiting for data
loaders.py      reads of the processes that load data
workers.py      the number of these processes
steps.py        the parts of a minibatch's time, and slow minibatches
calls.py        the training thread's own time in system calls
faults.py       page faults by file, function and phase
writeback.py    reasons and frequency of write-backs, and the writes that were waited for
tenants.py      pages that one target dirties and another target's fsync waits for
devices.py      queue latency and service latency, use, reads
pressure.py     waiting for CPUs or memory; used by processors.py and memory.py
processors.py   CPU pressure, use and steal
counters.py     growth of sampled counters in the training
room.py         whether CPUs, and a quota, have time for one more worker
memory.py       swap, memory pressure, reclaim
recorder.py     the recorder's own cost, and lost events
catalogue.py    all findings, ranked
waits.py        what the steps' time depended on
reading.py      reads again, reads in vain, pages evicted by others
"""
