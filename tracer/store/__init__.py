"""The trace directory: written by a recording, read by everything else.

files.py       files that belong to the invoking user, written whole or not at all
manifest.py    manifest.json: what was recorded, where, and how it went
lists.py       what lies in lists beside the raw streams, and becomes rows
checked.py     JSON that is checked against classes that say what it may hold
trace.py       a trace opened for reading; finalizes what a killed recorder left
finalize.py    raw streams into tables, in bounded memory
tables.py      one Parquet file, written in row groups
marks.py       the marks of the traced processes into phases
loss.py        every gap, and where it lies
"""
