"""Derived tables, each a named function over a trace's tables: DuckDB does the joins.

catalogue.py       all views, by name
view.py            the class View
phases/            phases of threads, and the epochs and passes that they mark
disks/             block requests, and the times in which disks had work
writing/           write-back: who dirtied which pages, why they were written, whose data it is
waiting/           waits of threads with their causes, steps, and the critical path of each step
reading/           the page cache: the files that were read, and the effect of each read
calls.py           one row per system call: owner and phase
faults.py          one row per page fault: owner and phase
in_phase.py        any table with the phase, epoch and step of each row
context.py         rows with the process, target, container and phase that they belong to
call_graphs.py     kernel call graphs, by the path that led to an event
energy.py          energy of a recording, by source

A group uses only the groups that stand before it here (pyproject.toml has the rule), and the
modules of this folder. These serve several groups: threads.py, lives.py and job_threads.py tell
threads apart that had the same number; calls_around.py finds the system calls around given times,
and calls_by_kind.py names the calls of each kind of wait. cuts.py finds the interval of a thread's
time that a row lies in, without sorting long tables; stretches.py joins intervals, and lengths.py
keeps millions of them. covering.py finds when all sectors of a bio were complete, and lost_times.py
the times in which events may have been lost. arrays.py reads long query results.
"""
