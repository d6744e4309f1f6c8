"""Start, run, stop and finalize one recording.

launch.py        a command that waits, unborn, until tracing is on
environment.py   what the machine was like: threads, mounts, disks, sysctls
capture.py       tracefs instances, their filters and their drain
recording.py     the recording itself, from the first check to the last file
"""
