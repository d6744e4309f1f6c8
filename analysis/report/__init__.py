"""The report: tables made from a trace, separate from the code that draws them.

tables.py     list of the tables, each made from a trace as a frame
perf.py       tables made from the data that perf recorded
gathered.py   everything that the report of one trace needs
together.py   one report of many traces
text.py       frames for a terminal; text_together.py does it for many traces
table.py      the declaration of a table, from which all formats are made
calls.py      system calls
faults.py     page faults
waits.py      waits, by target and culprit
writeback.py  write-backs; page_heat.py: by time and page
block.py      block requests
reads.py      reads through the page cache
phases.py     phases; by_phase.py: kernel activity by phase, epoch or step
epochs.py     training epochs; step_times.py: parts of minibatches
samples.py    samples; sample_text.py prints them; usage.py: use of the machine
summaries.py  totals counted in the kernel
lost.py       lost events
histogram.py  quantiles in little memory
mergeable.py  tables of many traces, merged key by key
"""
