"""The times in which jobs may have waited for writes, joined while they are collected."""

from __future__ import annotations

from collections import Counter, defaultdict

import numpy as np

from tracer.analysis.views.disks.disk_writing import DiskUse
from tracer.analysis.views.stretches import (
    Ints,
    Stretches,
    at_most,
    in_any,
    in_both,
    joined,
)

KINDS = {
    "throttle": "asleep for having dirtied pages",
    "sync": "in calls that make data durable or unmount",
    "write": "in calls that write, close, rename, truncate or remove files or await transfers",
    "async": "with asynchronous transfers under way, while a disk had writes to do",
    "disk": "in other calls and page faults, while a disk had writes or reads behind writes to do",
    "begun": "maybe in calls from before the recording, while a disk had writes to do",
    "lost": "in which events were lost",
}
"""Description of each kind of wait, to follow a time."""
ANY = "any"
"""All kinds together."""
_WHILE_WRITING = ("async", "disk", "begun")
READ_TIMES = "read"
"""Calls that read; some of their time counts as `disk` later."""
_MOST = 1 << 22
"""Most stretches of one kind that are kept apart; beyond, neighbours are joined."""
_ROWS = 1 << 20
"""Times of one kind that are collected before they are joined."""


class Waits:
    """The times of each job and kind, while they are collected."""

    def __init__(self, begun: int, ended: int) -> None:
        self._recording = (begun, max(begun, ended))
        self._new: dict[str, list[tuple[Ints, Ints, Ints]]] = defaultdict(list)
        self._rows: Counter[str] = Counter()
        self._found: dict[tuple[int, str], list[Stretches]] = defaultdict(list)

    def add(self, kind: str, jobs: Ints, begin: Ints, end: Ints) -> None:
        """Adds the times in ns from `begin` to `end` of these jobs."""
        self._new[kind].append((jobs, begin, end))
        self._rows[kind] += len(jobs)
        if self._rows[kind] > _ROWS:
            self._join(kind)

    def _join(self, kind: str) -> None:
        new = self._new.pop(kind)
        del self._rows[kind]
        jobs, begin, end = (np.concatenate(parts) for parts in zip(*new, strict=True))
        for job in np.unique(jobs):
            mine = jobs == job
            kept = self._found[int(job), kind]
            kept.append(joined(*(np.clip(edge[mine], *self._recording) for edge in (begin, end))))
            if sum(map(len, kept)) > 2 * _MOST:
                kept[:] = [at_most(in_any(kept), _MOST)]

    def of(self, jobs: int, use: DiskUse) -> dict[tuple[int, str], Stretches]:
        """Returns the times of each job and kind, and of all kinds, within the recording."""
        for kind in list(self._new):
            self._join(kind)
        found = {}
        for job in range(jobs):
            for kind in (*KINDS, READ_TIMES):
                times = in_any(self._found[job, kind])
                within = kind in _WHILE_WRITING
                found[job, kind] = in_both(times, use.writing) if within else times
            read = in_both(found.pop((job, READ_TIMES)), use.late)
            found[job, "disk"] = in_any([found[job, "disk"], read])
            found[job, ANY] = in_any([found[job, kind] for kind in KINDS])
        return found
