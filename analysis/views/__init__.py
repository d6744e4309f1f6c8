"""Derived tables, each a named function over a trace's tables: DuckDB does the joins.

requests.py   one row a block request, with queue and service latency
devices.py    what has to be said about stacked devices and own files
volumes.py    which disk a partition lies on
flushes.py    one row a page run written back: reason, inode, dirtier, certainty
in_phase.py   any table with the phase, epoch and step that each row fell in
steps.py      one row a minibatch: fetch stall, forward, backward, optimizer, overhead
"""
