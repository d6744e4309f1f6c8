"""Starts, runs, stops and finalizes one recording.

recording.py        the recording itself, from the first check to the last file: start here
options.py          the options, the progress and the outcome of a recording
launch.py           a command that is forked early and waits until tracing is on
capture.py          backends, their filters and their drain
online.py           the CPUs at the start, and those that come online later
libraries.py        the libraries that uprobes go into
members.py          the processes that belong to the targets; joins.py reports joining ones
perf.py             counters and call graphs beside the capture
summary.py          the kernel's counts, written to a file
marks.py            folders into which the targets write their marks
signals.py          the first signal ends the recording, a second Ctrl-C aborts it
ending.py           the events that end a recording, and the end of its command
privileges.py       the capabilities that the recorder gives up
description.py      the manifest: before the recording begins, and its cost
environment.py      the machine: threads, mounts, disks, sysctls
folios.py           a trial that tells if a fault maps a whole folio
address_spaces.py   the files that the targets had mapped at the start
paths.py            names of written files, through mount_tree.py and file_handles.py
output.py           the trace directory
"""
