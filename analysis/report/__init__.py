"""The report: tables of what a trace says, apart from how they are drawn.

tables.py     trace to frames
perf.py       those from what perf recorded
gathered.py   all that a report needs of one trace
together.py   that of many traces as one
text.py       frames for a terminal; text_together.py: of many traces
"""
