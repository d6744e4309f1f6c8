"""Import of events that other tools printed as lines of text.

prints.py     patterns of each event's line: the kernel's print format, field by field
patterns.py   the patterns as arrays for compiled loops
lines.py      the loops: a line's head (heads.py, scanning.py), its event, its fields into a record
importing.py  a file of lines into a trace: perf script, trace-cmd report, blkparse
"""
