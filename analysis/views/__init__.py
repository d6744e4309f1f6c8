"""Derived tables, each a named function over a trace's tables: DuckDB does the joins.

view.py            the class View
catalogue.py       all views, by name
calls.py           one row per system call: owner and phase
calls_by_kind.py   names of system calls, by the kind of wait
faults.py          one row per page fault: owner and phase
stalls.py          one row per wait of a thread for storage
write_waits.py     one row per time in which a job may have waited for a disk's writes
requests.py        one row per block request: queue latency and service latency
rest_queues.py     one row per request that is the rest of a split bio: when that was queued
flushes.py         one row per page run written back: reason, inode, dirtier, certainty
passes.py          one row per pass of the flusher, with its wake
phase_times.py     one row per phase, with its end if its process was killed
steps.py           one row per minibatch: fetch stall, forward, backward, optimizer, overhead
in_phase.py        any table with the phase, epoch and step of each row
energy.py          energy of a recording, by source
call_graphs.py     kernel call graphs, by the path that led to an event

Other modules build the tables that the views read. cuts.py finds the interval of a thread's time
that a row lies in, without sorting long tables. nesting.py, spans.py and segments.py cut time by
phases. calls_around.py finds the system calls around given times. disk_writing.py finds the times
in which disks had writes to do, covering.py when all sectors of a bio were complete. stretches.py
joins intervals of time. submissions.py, dirtiers.py and whose.py explain flushes. volumes.py joins
tables that name devices differently. devices.py names the writes that count twice. file_pages.py
finds the file of each page of a bio. asked_bios.py finds who asked for a read that a thread of the
kernel logs. carried.py finds the bio whose data a bio below a stacked device carries.
cpu_turns.py finds who had the CPU while a thread waited for it, and throttled_rests.py does so for
targets that have used up a CPU quota.
"""
