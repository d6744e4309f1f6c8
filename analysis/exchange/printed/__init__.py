"""Import of events that other tools printed as lines of text.

prints.py     patterns of each event's line: the kernel's print format, field by field
patterns.py   the patterns as regular expressions, and the records that their fields fill
heads.py      the head of a line: time, CPU, thread, event
importing.py  a file of lines into a trace: perf script, trace-cmd report, blkparse
"""
