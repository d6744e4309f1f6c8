"""ftrace: instances of the kernel's own tracer, drained raw, decoded afterwards.

instance.py      a tracefs instance: what it traces, its clock, its buffers
page_source.py   raw ring-buffer pages into files, by splice
page_stream.py   those files: an index of their pages, and their events
ring_buffer.py   ring-buffer pages into events (numba)
"""
