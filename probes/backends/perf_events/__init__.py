"""The kernel's perf_event interface, for what tracepoints do not tell: which faults were minor or
major, and what lay where in each address space.

attributes.py   which software events, with which fields
ring.py         one event's ring on one CPU, drained in bulk into chunks
records.py      the records' layout, by which they are decoded like any other event
backend.py      the backend
rings.py        the rings of a recording
tracepoints.py  tracepoints through rings: one per CPU and scope
"""
