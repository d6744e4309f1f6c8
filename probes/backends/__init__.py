"""Ways to get events out of the kernel, all into the same tables.

choice.py         which backend a recording uses, and why
drain.py          buffers of the kernel into files, by threads that look at no event
chunks.py         the files of perf's and BPF's rings
event_format.py   what an event's fields are, by its own format file
timeline.py       all files in time order, in batches of bounded size
ftrace/           the kernel's own tracer: the cheapest for each event
ebpf/             BPF programs: filtered, or only counted, in the kernel
perf_events/      minor and major faults, and mappings, for both of them
perf_tools/       the perf command: counters, and call graphs of events
"""
