"""The report: tables of what a trace says, apart from how they are drawn.

tables.py   trace to frames
perf.py     those from what perf recorded
text.py     frames for a terminal
"""
