"""The system calls before and after some moments of threads, out of a table of any length."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from analysis.views.cuts import Cuts
from analysis.views.stretches import Ints
from probes.compiled import compiled
from tracer.store.trace import Trace

LATEST = (1 << 63) - 1
"""The latest time there is, in ns."""
_NEVER = -LATEST - 1
"""Stands for the length of a call that did not return."""


@dataclass(frozen=True)
class Calls:
    """Some system calls: arrays of equal length."""

    lane: Ints
    """The place of the thread among those that were asked for; -1: it is none of them."""
    entered: Ints
    """ns."""
    returned: Ints
    """ns; LATEST for a call that did not."""
    did_return: NDArray[np.bool_]
    what: pa.Array
    """What was asked for of each call's name."""


class Lanes(Protocol):
    """A numbering of threads."""

    def of(self, tid: Ints, ts: Ints) -> Ints:
        """Returns the lanes of events by their threads and times (ns); -1: in none."""


@dataclass(frozen=True)
class Numbers:
    """A lane per thread number."""

    tid: Ints
    """Ascends."""

    def of(self, tid: Ints, ts: Ints) -> Ints:
        """Returns the place of each event's thread in `self.tid`; -1: it is not among them."""
        if not len(self.tid):
            return np.full(len(tid), -1)
        at = np.minimum(np.searchsorted(self.tid, tid), len(self.tid) - 1)
        return np.where(self.tid[at] == tid, at, -1)


def calls_of(trace: Trace, lanes: Lanes, what: str) -> Iterator[Calls]:
    """Yields all calls of a trace, batch by batch, with their lanes.

    `what` is SQL over the column `name`. No other query of the trace is possible before the last
    batch. Needs table syscalls.
    """
    query = (
        "SELECT tid::BIGINT AS tid, ts,"
        f" coalesce(dur_ns, {_NEVER}) AS length, {what} AS what FROM syscalls"
    )
    for batch in trace.batches(query):
        tid, ts, length = (batch[name].to_numpy() for name in ("tid", "ts", "length"))
        returned = np.empty(len(ts), np.int64)
        _add_up(ts, length, returned)
        yield Calls(lanes.of(tid, ts), ts, returned, length != _NEVER, batch["what"])


class CallsAround:
    """For each of some moments of threads, the last call up to it and the first one after it.

    All are arrays of as many values as moments, and right once `close` was called.
    """

    def __init__(self, lane: Ints, ts: Ints) -> None:
        """`lane` (from 0) ascends, and so does `ts` (ns) in each."""
        lanes = int(lane[-1]) + 1 if len(lane) else 0
        self._lane = lane
        self._first = np.searchsorted(lane, np.arange(lanes + 1))
        self._cuts = Cuts(lane, ts)
        self._row = np.full(len(ts), -1)
        self.entered = np.full(len(ts), -LATEST)
        """When the last call was entered, ns; -LATEST: there was none."""
        self.returned = np.full(len(ts), -LATEST)
        """When it returned, ns; LATEST: it did not. -LATEST: there was none."""
        self.next = np.full(len(ts), LATEST)
        """When the first call after the moment was entered, ns; LATEST: there was none."""

    def see(self, calls: Calls) -> tuple[Ints, Ints]:
        """Take these calls into account.

        Returns moments and rows: of these moments, these rows of `calls` are the last call so far.
        """
        if len(self._lane):
            before = self._cuts.last(calls.lane, calls.entered, before=True)
            _keep_first(before, calls.entered, self.next)
            seen = (calls.lane, calls.entered, calls.returned, self._first)
            _keep_last(before, *seen, self.entered, self.returned, self._row)
        moments = np.flatnonzero(self._row >= 0)
        rows = self._row[moments]
        self._row[moments] = -1
        return moments, rows

    def close(self) -> Ints:
        """Complete the moments between which there was no call; after the last of all calls.

        Returns for each moment the one that `see` told its last call for.
        """
        told_for = np.arange(len(self._lane))
        _carry_back(self._lane, self.next)
        _carry_on(self._lane, self.entered, self.returned, told_for)
        return told_for


def make_calls_before(trace: Trace, moments: str, name: str) -> None:
    """Make the table NAME: the last system call of a thread up to each of its `moments`.

    `moments` is a query for tid and ts. Columns: ts (entered), tid, call, returned (ns, LATEST for
    a call that did not). An ASOF join with it finds what one with syscalls would, but for a few
    calls at most as many as moments, whatever the trace's length.

    Needs table syscalls, which may be empty.
    """
    rows = trace.arrow(
        f"SELECT DISTINCT tid::BIGINT AS tid, ts FROM ({moments})"
        " WHERE tid IS NOT NULL AND ts IS NOT NULL ORDER BY ALL"
    )
    tid, ts = (rows[column].to_numpy() for column in ("tid", "ts"))
    tids, lane = np.unique(tid, return_inverse=True)
    around = CallsAround(lane, ts)
    names = np.full(len(ts), None, object)
    for calls in calls_of(trace, Numbers(tids), "name") if len(tids) else ():
        found, at = around.see(calls)
        names[found] = calls.what.take(pa.array(at)).to_numpy(False)
    around.close()
    known = np.flatnonzero(around.entered > -LATEST)
    kept = known[_is_first(lane[known], around.entered[known])]
    table = {
        "ts": pa.array(around.entered[kept]),
        "tid": pa.array(tid[kept]),
        "call": pa.array(names[kept], pa.string()),
        "returned": pa.array(around.returned[kept]),
    }
    trace.execute(f'DROP TABLE IF EXISTS "{name}"')
    trace.keep(name, pa.table(table))


def _is_first(lane: Ints, entered: Ints) -> NDArray[np.bool_]:
    """Return which calls are others than those before them."""
    found = np.ones(len(lane), np.bool_)
    found[1:] = (lane[1:] != lane[:-1]) | (entered[1:] != entered[:-1])
    return found


@compiled
def _add_up(ts: Ints, length: Ints, returned: Ints) -> None:
    for row in range(len(ts)):
        if length[row] == _NEVER or (ts[row] > 0 and length[row] > LATEST - ts[row]):
            returned[row] = LATEST
        elif ts[row] < 0 and length[row] < -LATEST - ts[row]:
            returned[row] = -LATEST
        else:
            returned[row] = ts[row] + length[row]


@compiled
def _keep_first(at: Ints, entered: Ints, found: Ints) -> None:
    for row in range(len(at)):
        if at[row] >= 0 and entered[row] < found[at[row]]:
            found[at[row]] = entered[row]


@compiled
def _carry_back(lane: Ints, entered: Ints) -> None:
    for row in range(len(lane) - 2, -1, -1):
        if lane[row] == lane[row + 1] and entered[row + 1] < entered[row]:
            entered[row] = entered[row + 1]


@compiled
def _keep_last(
    before: Ints,
    lane: Ints,
    entered: Ints,
    returned: Ints,
    first: Ints,
    last_entered: Ints,
    last_returned: Ints,
    last_row: Ints,
) -> None:
    for row in range(len(lane)):
        if lane[row] < 0 or lane[row] >= len(first) - 1:
            continue
        at = before[row] + 1 if before[row] >= 0 else first[lane[row]]
        if at < first[lane[row] + 1] and entered[row] >= last_entered[at]:
            last_entered[at] = entered[row]
            last_returned[at] = returned[row]
            last_row[at] = row


@compiled
def _carry_on(lane: Ints, entered: Ints, returned: Ints, told_for: Ints) -> None:
    for row in range(1, len(lane)):
        if lane[row] == lane[row - 1] and entered[row - 1] > entered[row]:
            entered[row] = entered[row - 1]
            returned[row] = returned[row - 1]
            told_for[row] = told_for[row - 1]
