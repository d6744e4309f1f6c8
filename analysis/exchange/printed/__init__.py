"""Events that other tools have printed as lines of text.

prints.py     how each event's line reads: the kernel's own print format, field by field
patterns.py   those prints as arrays that compiled loops can follow
lines.py      the loops: a line's head (heads.py, scanning.py), its event, its fields into a record
importing.py  a file of lines into a trace: perf script, trace-cmd report, blkparse
"""
