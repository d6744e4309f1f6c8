"""BPF programs of our own: the cheapest way to record the most frequent events of the targets,
system calls and page faults.

The programs are written as instructions, so no compiler and no kernel headers are needed. They are
called directly by the tracepoints (BPF_TRACE_RAW_TP), which costs half of what ftrace costs.

kernel.py        the system call bpf(2)
btf.py           the kernel's types: ids, and offsets of members
instructions.py  instructions, written by name
programs.py      the programs that record; GPL-2.0, which the kernel's helpers require
marks.py         the threads that are followed, and the programs that keep this table; GPL-2.0
ring.py          one CPU's ring, and its source for the drain
records.py       the layout and the decoder of the records
wake.py          how a program wakes the drain
backend.py       loads and attaches the programs of a recording
beside.py        another backend beside them, which records all other events
"""
