"""Start, run, stop and finalize one recording.

recording.py        the recording itself, from the first check to the last file: start here
options.py          what it is asked for, what it tells meanwhile, what it came to
launch.py           a command that waits, unborn, until tracing is on
capture.py          backends, their filters and their drain
members.py          which processes belong to the targets; joins.py hears of those that join
perf.py             counters and call graphs beside the capture
summary.py          what the kernel counts, written down
marks.py            folders that the targets leave their marks in
signals.py          the first asks for the end, a second Ctrl-C aborts
ending.py           what ends a recording, and how its command ends
privileges.py       capabilities, given up
description.py      the manifest: before it begins, and what it cost
environment.py      what the machine was like: threads, mounts, disks, sysctls
address_spaces.py   what the targets had mapped at the start
paths.py            names of written files; mount_tree.py and file_handles.py ask for them
output.py           the trace directory
"""
