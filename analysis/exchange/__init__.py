"""Traces in from, and out to, what people already have.

formats.py          the formats of `tracer import`, and which a file is of
printed/            events as lines of text: perf script, trace-cmd report, blkparse
trace_dat.py        trace-cmd's trace.dat
blktrace.py         what blktrace writes
fio_iolog.py, msr_csv.py, oracle_general.py, csv_pages.py
                    traces of storage; block_rows.py makes rows of block of them
exporting.py        `tracer export`
drawing.py          a trace as tracks (tracks.py) and marks (marks.py); streaming.py reads it
perfetto.py, chrome.py, tables_out.py
                    writers; perfetto_events.py and protobuf_bytes.py encode
"""
