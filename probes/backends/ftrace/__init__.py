"""ftrace: instances of the kernel's own tracer, drained raw, decoded afterwards.

instance.py         a tracefs instance: what it traces, its clock, its buffers
drain.py            raw ring-buffer pages into files, by splice
event_format.py     what an event's fields are, by its own format file
ring_buffer.py      ring-buffer pages into events (numba)
timeline.py         all streams in time order, in batches of bounded size
columns.py          fields of events into Arrow columns
event_rows.py       one row an event, by the probe's declaration
syscall_pairing.py, fault_rows.py, process_rows.py   rows that are more than that
"""
