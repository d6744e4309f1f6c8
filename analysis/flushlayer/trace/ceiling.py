"""What a flush layer can do for the training's time at most, whatever its medium.

A write-back that nobody waits for costs a job nothing, however slow the disk. So the time that
could be saved lies within those moments in which a thread of the job waits for a write: throttled
as it made pages dirty, in a call that makes data durable, in a direct write; or for a read, while
the disk had writes to do as well. Outside of these moments a faster disk changes nothing.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from analysis.findings.window import Scope, lossy, window
from analysis.views.calls_by_kind import WRITE
from analysis.views.requests import REQUESTS
from analysis.views.stalls import STALLS
from tracer.store.trace import Trace

KINDS = {
    "throttle": "throttled as it made pages dirty",
    "sync": "in calls that make data durable",
    "direct": "in direct writes",
    "read": "in calls that read, while the disk had writes to do",
}


@dataclass(frozen=True)
class Ceiling:
    """How much of a stretch of time a job waited for writes: at most so much a layer can save."""

    what: str
    """The stretch: the training, the inference, or the recording."""
    length_s: float
    by_kind: dict[str, float]
    """Of each of KINDS: s in which some thread of the job waited so."""
    total_s: float
    """s in which some thread waited in any of these ways."""
    unknown: int
    """Waits, major faults among them, that nothing tells the length of: not in these numbers."""
    lossy: bool
    """Whether events are missing in it: the numbers may be too low."""

    @property
    def share(self) -> float:
        """Of the stretch's time, 0 to 1."""
        return self.total_s / self.length_s


def ceiling(trace: Trace) -> Ceiling | None:
    """The ceiling for all jobs of a trace together; None where the recording has no length.

    Calls count whole, which is at most what they waited. Needs tables processes, syscalls; block
    tells of reads behind writes.
    """
    over = window(trace)
    if over is None:
        return None
    begun, ended = over.start, over.end
    stalls = STALLS.frame(trace, over.holds(), ["ts", "dur_ns", "kind", "call"])
    known = stalls[stalls["dur_ns"].notna()]
    spans = {}
    for kind in KINDS:
        rows = known[known["kind"] == kind]
        if kind == "direct":
            rows = rows[rows["call"].isin(WRITE)]
        found = _joined(rows["ts"].to_numpy(np.int64), rows["dur_ns"].to_numpy(np.int64), ended)
        spans[kind] = _both(found, _writing(trace, begun, ended)) if kind == "read" else found
    together = np.concatenate(list(spans.values()))
    return Ceiling(
        over.what,
        (ended - begun) / 1e9,
        {kind: _seconds(found) for kind, found in spans.items()},
        _seconds(_joined(together[:, 0], together[:, 1] - together[:, 0], ended)),
        len(stalls) - len(known),
        lossy(trace, over, (Scope.TARGET, Scope.MACHINE)),
    )


def _writing(trace: Trace, begun: int, ended: int) -> NDArray[np.int64]:
    """When a disk had writes queued or in service."""
    if "block" not in trace.tables:
        return np.empty((0, 2), np.int64)
    where = f"operation IN ('write', 'flush') AND issue_ns BETWEEN {begun} AND {ended}"
    rows = REQUESTS.frame(trace, where, ["queue_ns", "issue_ns", "complete_ns"])
    rows = rows[rows["complete_ns"].notna()]
    since = rows["queue_ns"].fillna(rows["issue_ns"]).to_numpy(np.int64)
    return _joined(since, rows["complete_ns"].to_numpy(np.int64) - since, ended)


def _joined(since: NDArray[np.int64], length: NDArray[np.int64], ended: int) -> NDArray[np.int64]:
    """Spans (begin, end) of times in which at least one of these goes on, cut at `ended`."""
    length = np.clip(length, 0, np.maximum(0, ended - since))
    rows = pd.DataFrame({"begin": since, "end": since + length}).sort_values("begin")
    if not len(rows):
        return np.empty((0, 2), np.int64)
    latest = rows["end"].cummax()
    number = (rows["begin"] > latest.shift(fill_value=rows["begin"].iloc[0])).cumsum()
    spans = rows.groupby(number).agg({"begin": "min", "end": "max"})
    return spans.to_numpy(np.int64)


def _both(a: NDArray[np.int64], b: NDArray[np.int64]) -> NDArray[np.int64]:
    """Spans in which one of each goes on; each list is in order and without overlaps."""
    if not len(a) or not len(b):
        return np.empty((0, 2), np.int64)
    edges = np.unique(np.concatenate([a.ravel(), b.ravel()]))
    middle = edges[:-1]

    def within(spans: NDArray[np.int64]) -> NDArray[np.bool_]:
        at = np.searchsorted(spans[:, 0], middle, "right") - 1
        found: NDArray[np.bool_] = (at >= 0) & (middle < spans[np.maximum(at, 0), 1])
        return found

    chosen = within(a) & within(b)
    return np.column_stack([edges[:-1][chosen], edges[1:][chosen]])


def _seconds(spans: NDArray[np.int64]) -> float:
    return float((spans[:, 1] - spans[:, 0]).sum()) / 1e9
