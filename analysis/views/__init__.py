"""Derived tables, each a named function over a trace's tables: DuckDB does the joins.

view.py       what a view is; catalogue.py: all of them, by name
calls_by_kind.py  names of calls, by what they may wait for
calls.py      one row a system call, with whose it is and its phase
faults.py     one row a page fault, likewise
stalls.py     one row each time that a thread waited for storage
write_waits.py  one row each time in which a job may have waited for a disk's writing
requests.py   one row a block request, with queue and service latency
flushes.py    one row a page run written back: reason, inode, dirtier, certainty
steps.py      one row a minibatch: fetch stall, forward, backward, optimizer, overhead
in_phase.py   any table with the phase, epoch and step that each row fell in

Tables that these are made of: cuts.py looks up which stretch of its thread's time a row lies in,
so that long tables are never sorted; nesting.py, spans.py, segments.py cut time by phases;
holding.py finds the calls around some moments; disk_writing.py says when disks had
writes to do, stretches.py joins stretches of time; submissions.py and dirtiers.py tell flushes;
volumes.py joins tables that name devices differently, devices.py says what counts twice.
"""
