"""The system calls before and after given times of threads, from a table of any length."""

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
"""The latest possible time, in ns."""
_NEVER = -LATEST - 1
"""Marks the length of a call that did not return."""


@dataclass(frozen=True)
class Calls:
    """System calls, as arrays of equal length."""

    lane: Ints
    """Index of the call's thread among the requested threads; -1: not requested."""
    entered: Ints
    """Time of entry in ns."""
    returned: Ints
    """Time of return in ns; LATEST for a call that did not return."""
    did_return: NDArray[np.bool_]
    what: pa.Array
    """Value of the requested SQL expression for each call's name."""


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
    """The last call up to each given moment of a thread, and the first call after it.

    Each array has one value per moment. The values are final after `close`.
    """

    def __init__(self, lane: Ints, ts: Ints) -> None:
        """Takes the moments: `lane` (from 0) ascends, and `ts` (ns) ascends within each lane."""
        lanes = int(lane[-1]) + 1 if len(lane) else 0
        self._lane = lane
        self._first = np.searchsorted(lane, np.arange(lanes + 1))
        self._cuts = Cuts(lane, ts)
        self._row = np.full(len(ts), -1)
        self.entered = np.full(len(ts), -LATEST)
        """Time in ns at which the last call was entered; -LATEST: there was no call."""
        self.returned = np.full(len(ts), -LATEST)
        """Time in ns at which the last call returned; LATEST: it did not; -LATEST: no call."""
        self.next = np.full(len(ts), LATEST)
        """Time in ns at which the first call after the moment was entered; LATEST: no call."""

    def see(self, calls: Calls) -> tuple[Ints, Ints]:
        """Takes a batch of calls into account.

        Returns the moments whose last call so far is in this batch, and the rows of these calls.
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
        """Completes the moments between which there was no call. Call it after the last batch.

        Returns for each moment the number of the moment for which `see` returned its last call.
        """
        told_for = np.arange(len(self._lane))
        _carry_back(self._lane, self.next)
        _carry_on(self._lane, self.entered, self.returned, told_for)
        return told_for


def make_calls_before(trace: Trace, moments: str, name: str) -> None:
    """Makes the table NAME: the last system call of a thread up to each of its `moments`.

    `moments` is a query for tid and ts. Columns: ts (entered), tid, call, returned (ns, LATEST for
    a call that did not return). An ASOF join of the moments with this table finds the same calls as
    one with syscalls. The table has at most one row per moment, whatever the trace's length.

    Needs the table syscalls, which may be empty.
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
    """Returns a mask of the calls that differ from the call before them."""
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
