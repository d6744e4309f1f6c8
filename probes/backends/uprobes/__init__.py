"""Uprobes: events at instructions of a library that processes run.

library.py  where the functions of an ELF file begin and return
events.py   uprobes registered in tracefs, named for their owner, removed at the end
backend.py  their instance and streams, beside whatever backend records the rest
places.py   places of the wanted events in a target's library
"""
