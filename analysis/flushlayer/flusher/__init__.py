"""Regenerated write-back: what the kernel's flusher would have written at other settings.

    found, recorded = prepared(trace)
    knobs = knobs.recorded(trace).changed(dirty_expire_centisecs=500)
    regenerated = regenerate(found, recorded, knobs)

knobs.py       the sysctls dirty_*, and the thresholds that follow from them
dirtying.py    a trace's dirtyings: when, which pages, by whom
pairing.py     which dirtying each written page comes from (numba)
recorded.py    what no knob moves: fsync, sync, ended inodes
machine.py     what is dirty: pages, inodes on their lists (numba)
model.py       the flusher's rules, each by the kernel's function (numba)
accesses.py    its writes as the models of the flush layer take them
regenerate.py  all of it: writes as a frame, and a summary
check.py       regenerated against recorded write-back, at the recorded settings
"""
