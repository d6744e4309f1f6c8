"""The ftrace backend: instances of the kernel's own tracer. Raw pages are decoded afterwards.

backend.py       one instance per scope, with its events and its page sources
instance.py      a tracefs instance: its events, filters, clock and buffers
page_source.py   copies raw ring-buffer pages to files with splice
page_stream.py   reads these files: an index of the pages, and their events
ring_buffer.py   decodes ring-buffer pages to events (numba)
"""
