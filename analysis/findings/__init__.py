"""What a trace comes to: ranked sentences, each with a number and the query that gives it.

finding.py      what a finding is; values and names as words
window.py       the time that shares are of, and whether events were lost in it
writes.py       write-back stalls, and the most that waiting for writes can cost
ceiling.py      the bound on that, which `tracer simulate` prints, too
syncs.py        fsync and the like, checkpoints
loading.py      waiting for data: how long, who waits, the first epoch
steps.py        what a minibatch is spent on, and how even minibatches are
calls.py        the training's own time in system calls
faults.py       page faults by file, function and phase
writeback.py    why write-backs begin, how often, and for whom nobody waits
tenants.py      what one target dirties and another one's fsync waits for
devices.py      queue and service latency, use, reads
pressure.py     waiting for CPUs or memory, of the two below
processors.py   CPU pressure and use
memory.py       swap, memory pressure, reclaim
recorder.py     what the recorder itself took, and what it lost
catalogue.py    all of them, ranked
"""
