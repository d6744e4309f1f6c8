"""Capture with eBPF programs, which filter events in the kernel. Records are drained in bulk.

library.py     finds and imports bcc
capture.bpf.c  the programs that record events; GPL-2.0, which the kernel's helpers require
summary.bpf.c  the programs that count events instead of recording them
programs.py    compiles, loads and attaches the programs for the events of a recording
summary.py     the hooks of the counting programs, and their results
ring.py        copies a BPF ring buffer to chunks
records.py     the layout and the decoder of the records
backend.py     the backend
"""
