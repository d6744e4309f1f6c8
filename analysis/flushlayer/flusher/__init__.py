"""Regenerated write-back: the writes of the kernel's flusher at other settings.

    found, recorded = prepared(trace)
    knobs = knobs.recorded(trace).changed(dirty_expire_centisecs=500)
    regenerated = regenerate(found, recorded, knobs)

knobs.py                 the sysctls dirty_*, and the thresholds that they set
dirtying.py              the dirtyings of a trace: time, pages, dirtier
lives.py                 the files that had one inode number, one after the other
named_flushes.py         the write bios, with the metadata that the journal writes
places.py                the places of written pages in their files
pairing.py               the dirtying of each written page (numba); paired.py: its state and results
pieces.py                the pairing of all files of a trace
fixed_writes.py          the events that no knob moves: fsync, sync, ended inodes
machine.py               the dirty state: pages, and inodes on their lists (numba)
model.py                 the rules of the flusher, each with its kernel function (numba)
regenerated_accesses.py  the regenerated writes as input of the flush layer's models
regenerate.py            the entry point: the writes as a frame, and a summary
check.py                 comparison of regenerated and recorded write-back, at the recorded settings
"""
