"""Starts, runs, stops and finalizes one recording.

recording.py       the recording itself, from the first check to the last file: start here
options.py         the options, the progress and the outcome of a recording
plan.py            the recording that options ask for, checked
launch.py          a command that is forked early and waits until tracing is on
capture.py         backends, their filters and their drain
guardian.py        a process that saves the undrained events if the recorder dies
online.py          the CPUs at the start, and those that come online later
libraries.py       the libraries that uprobes go into
members.py         the processes that belong to the targets; joins.py reports joining ones
arrivals.py        awaited containers; newcomers.py: those that run for a part of the recording only
watch.py           new files in folders, by inotify
sampler.py         samples of the machine and the targets; aside.py: readers in a process apart
limits.py          the limits of a target, as they are sampled
perf.py            counters and call graphs beside the capture
summary.py         the kernel's counts, written to a file
python_stacks.py   looks at the targets' Python stacks; stack_kinds.py: the kinds of stacks recorded
marks.py           folders into which the targets write their marks
marks_folder.py    the files with marks that belong to the recording
marks_joiners.py   the folders for marks of processes that join later
marks_handover.py  these folders, for the guardian of a killed recorder
signals.py         the first signal ends the recording, a second Ctrl-C aborts it
ending.py          the events that end a recording, and the end of its command
left_running.py    the processes of ended targets that run on
failures.py        errors in writing or reading the recording's files
privileges.py      the capabilities that the recorder gives up
description.py     the manifest: before the recording begins, and its cost
environment.py     the machine: threads, mounts, disks, sysctls
folios.py          a trial that tells if a fault maps a whole folio
address_spaces.py  the files that the targets had mapped at the start
descriptors.py     the files that the targets have open
used_files.py      the files whose names and places are asked for
paths.py           names of written files, through mount_tree.py and file_handles.py
extent_maps.py     places of files on the device
output.py          the trace directory
"""
