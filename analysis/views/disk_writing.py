"""The times in which disks had writes to do, or reads that had to wait for them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from analysis.views.requests import REQUESTS
from analysis.views.stretches import NO_TIME, Ints, Stretches, in_any, joined
from tracer.store.trace import Trace

_REQUESTS = """
SELECT dense_rank() OVER (ORDER BY coalesce(dev, '')) AS disk, operation = 'read' AS read,
    least(coalesce(queue_ns, issue_ns), issue_ns) AS queued, issue_ns AS issued,
    coalesce(complete_ns, {ended}) AS completed
FROM requests WHERE operation IN ('read', 'write', 'flush') AND issue_ns < {ended}
ORDER BY disk, issue_ns
"""


@dataclass(frozen=True)
class DiskUse:
    """The work that the disks of a machine had to do, all of them together."""

    busy: Stretches
    """A disk had reads, writes or flushes queued or in service."""
    writing: Stretches
    """A disk had writes or flushes to do, or reads that these may have made late."""
    late: Stretches
    """A disk had such reads."""


def disk_use(trace: Trace, ended: int, not_known: Stretches) -> DiskUse:
    """Return what disks had to do until `ended` (ns); at times that are `not_known`, everything.

    A request that was not seen to be complete lasts until then. A write may make a read late that
    is under way at the same time, or is the first one after it, which finds the arm elsewhere: such
    a read counts from when both were there until it is complete.

    Needs table block, which may be empty.
    """
    REQUESTS.make(trace)
    rows = trace.arrow(_REQUESTS.format(ended=ended))
    disk, read, queued, issued, completed = (
        rows[name].to_numpy() for name in ("disk", "read", "queued", "issued", "completed")
    )
    writing, late = [not_known], [not_known]
    for number in np.unique(disk):
        mine = disk == number
        reads, writes = np.flatnonzero(mine & read), np.flatnonzero(mine & ~read)
        written = joined(queued[writes], completed[writes])
        since = _late_since(queued[reads], issued[reads], completed[reads], written)
        writing.append(written)
        late.append(joined(since, completed[reads]))
    busy = in_any([not_known, joined(queued, completed)])
    return DiskUse(busy, in_any(writing + late), in_any(late))


def _late_since(queued: Ints, issued: Ints, completed: Ints, written: Stretches) -> Ints:
    """Return since when each read may be late for writes; its completion where it is not.

    The reads are in order of their issue.
    """
    if not len(written):
        return completed
    begin, end = written[:, 0], written[:, 1]
    at = np.minimum(np.searchsorted(end, queued, "right"), len(end) - 1)
    beside = (end[at] > queued) & (begin[at] < completed)
    before = np.searchsorted(end, issued, "right") - 1
    last_read = np.append(np.iinfo(np.int64).min, issued[:-1])
    first_after = (before >= 0) & (last_read < end[np.maximum(before, 0)])
    since = np.where(beside, np.maximum(queued, begin[at]), completed)
    late: Ints = np.where(first_after & ~beside, queued, since)
    return late


NOTHING = DiskUse(NO_TIME, NO_TIME, NO_TIME)
"""The use of disks where no requests were recorded: nothing is known."""
