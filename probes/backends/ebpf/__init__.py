"""Capture by eBPF programs: filtered in the kernel, drained in bulk.

library.py       bcc, wherever this machine keeps it
capture.bpf.c    the programs: GPL-2.0, as the kernel's helpers demand
programs.py      loads them for the events of a recording
ring.py          a BPF ring buffer into chunks
records.py       the records' layout, by which they are decoded like any other event
"""
