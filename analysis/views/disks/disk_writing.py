"""The times in which disks had writes to do, or reads that may have waited for writes."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tracer.analysis.views.disks.rest_queues import REST_QUEUES
from tracer.analysis.views.stretches import NO_TIME, Ints, Stretches, in_any, joined
from tracer.store.trace import Trace

_REQUESTS = """
SELECT dense_rank() OVER (ORDER BY coalesce(dev, '')) AS disk, operation = 'read' AS read,
    least(coalesce(r.queue_ns, q.queue_ns, issue_ns), issue_ns) AS queued, issue_ns AS issued,
    coalesce(complete_ns, {ended}) AS completed
FROM requests r LEFT JOIN rest_queues q USING (row)
WHERE operation IN ('read', 'write', 'flush') AND issue_ns < {ended}
ORDER BY disk, issue_ns
"""


@dataclass(frozen=True)
class DiskUse:
    """The times of work on the disks of a machine, all disks together."""

    busy: Stretches
    """Times in which a disk had reads, writes or flushes queued or in service."""
    writing: Stretches
    """Times in which a disk had writes, flushes, or reads that these may have delayed."""
    late: Stretches
    """Times in which a disk had reads that writes or flushes may have delayed."""


def disk_use(trace: Trace, ended: int, not_known: Stretches) -> DiskUse:
    """Returns the use of disks until `ended` (ns). The times `not_known` count as all three kinds.

    A request without a recorded completion lasts until `ended`. The rest of a split bio is queued
    since the whole bio is. A write may delay a read that is under way at the same time. It may also
    delay the first read after it, because the write moved the disk's arm. A delayed read counts
    from the time at which both exist until its completion.

    Needs the table block, which may be empty.
    """
    REST_QUEUES.make(trace)
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
    """Returns the time from which writes may delay each read; its completion if none does.

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
"""The use of disks if no requests were recorded."""
