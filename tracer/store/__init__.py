"""The trace directory: written by a recording, read by everything else.

files.py       files that belong to the invoking user, written completely or not at all
places.py      checks of the places that outputs go to
manifest.py    manifest.json: the facts of the recording, the machine and the result
lists.py       types of the lists beside the raw streams that become rows
checked.py     JSON that is checked against classes
trace.py       a trace opened for reading; finalizes data of a killed recorder
missing_tables.py
               the error for tables that a trace lacks, and how to get them
interrupt.py   queries of DuckDB that Ctrl-C ends
finalize.py    raw streams into tables, in bounded memory
tables.py      one Parquet file, written in row groups
marks.py       the marks files of the traced processes
loss.py        every gap and its place
"""
