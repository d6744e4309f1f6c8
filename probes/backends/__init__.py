"""Backends: the ways to get events out of the kernel. All fill the same tables.

choice.py         the choice of a backend for a recording, and the reason for it
drain.py          threads that copy kernel buffers to files without reading the events
kernel_stacks.py  which switches have the stack of a sleeping thread recorded
chunks.py         the file format of perf and BPF rings
event_format.py   the fields of an event, parsed from its format file
timeline.py       the events of all files in time order, in batches of bounded size
backend.py        the interface of a backend to a recording
py_spy.py         the command py-spy: Python stacks of other processes
ftrace/           the kernel's own tracer: the lowest cost per event
own_bpf/          BPF programs of our own for system calls and page faults, beside ftrace or ebpf
ebpf/             BPF programs by bcc: events are filtered, or only counted, in the kernel
perf_events/      minor and major faults, and mappings, for ftrace and ebpf
perf_tools/       the perf command: counters, and call graphs of events
"""
