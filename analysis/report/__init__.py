"""The report: tables made from a trace, separate from the code that draws them.

tables.py     list of the tables, each made from a trace as a frame
perf.py       tables made from the data that perf recorded
gathered.py   everything that the report of one trace needs
together.py   one report of many traces
text.py       frames for a terminal; text_together.py does it for many traces
"""
