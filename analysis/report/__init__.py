"""The report: tables of what a trace says, apart from how they are drawn.

tables.py   trace to frames
text.py     frames for a terminal
"""
