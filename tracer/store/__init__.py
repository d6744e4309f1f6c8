"""The trace directory: written by a recording, read by everything else.

trace.py           a trace opened for reading; finalizes those of killed recorders (makers.py)
database.py        the DuckDB of a trace; interrupt.py: queries that Ctrl-C ends
asking.py          a user's SQL; parsed.py: our own
table_file.py      a table's Parquet file, checked before it is read
missing_tables.py  the error for tables that a trace lacks, and how to get them
manifest.py        manifest.json: the facts of the recording, the machine and the result
manifest_parts.py  the parts of it: recorder, machine, targets, capture
devices.py         names of devices, from the manifest
own_cost.py        the cost of a recording, in words
left_running.py    processes that ran on after it, in words
finalize.py        raw streams into tables, in bounded memory
tables.py          one Parquet file, written in row groups
lists.py           types of the lists beside the raw streams that become rows
listed.py          such lists, read and written; left_out.py: counts of what was not written
maps.py            the mappings at the start
layers.py          the folders that hold the files of containers
loss.py            every gap and its place
marks.py           the marks files of the traced processes
spans.py           marks of a process as spans (span.py); outside.py: calls into PyTorch's engine
phases.py          the phases: marked by scripts or PyTorch, or inferred
training.py        steps and epochs, inferred (cycles.py, numbers.py)
workers.py         the phases of DataLoaders' workers
samples.py         the table samples; python_stacks.py, perf.py and summary.py: other tables
importing.py       a trace made of another tool's; foreign.py: with our decoder
packing.py         a trace as one compressed file
files.py           files that belong to the invoking user, written completely or not at all
places.py          checks of the places that outputs go to
checked.py         JSON that is checked against classes
names.py           names as text from which their bytes can be restored
"""
