"""Import of traces from other tools' files, and export to other tools' formats.

formats.py         the formats of `tracer import`, and how a file's format is detected
printed/           events as lines of text: perf script, trace-cmd report, blkparse
trace_dat.py       trace-cmd's trace.dat
blktrace.py        the binary files of blktrace; blktrace_names.py finds their threads' names
fio_iolog.py, msr_csv.py, oracle_general.py, csv_pages.py
                   storage traces; block_rows.py makes rows of the table block from them
exporting.py       `tracer export`
drawing.py         a trace as tracks (tracks.py) and marks (marks.py); streaming.py reads it
perfetto.py, chrome.py, tables_out.py
                   writers; perfetto_events.py and protobuf_bytes.py encode
folded.py          waiting time by stack, as flame graphs are drawn from
reading.py         bounded reading of untrusted files
trace_dat_head.py  event formats and places of the pages in a trace.dat
"""
