"""The system calls before and after given times of threads, from a table of any length."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Protocol

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from tracer.analysis.views.cuts import Cuts
from tracer.analysis.views.stretches import Ints
from tracer.probes.compiled import compiled
from tracer.store.trace import Trace

LATEST = (1 << 63) - 1
"""The latest possible time, in ns."""
EARLIEST = -LATEST - 1
"""The earliest possible time, in ns."""
_NEVER = -LATEST - 1
"""Marks the length of a call that did not return."""
_RECENT = 1 << 10

INTERRUPTED = "coalesce(ret = -4 OR ret BETWEEN -516 AND -512, false)"
"""SQL condition of calls that a signal, or the freeze of a cgroup of version 2, ended early.
Kernel: EINTR, and ERESTARTSYS and the like in include/linux/errno.h."""


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
    tid: Ints
    chosen: NDArray[np.bool_] | None = None
    """True: the requested condition holds for the call's name."""
    results: NDArray[np.int8] | None = None
    """1: the call returned 0; 2: it was interrupted; 0: it returned something else; -1: not known.
    If requested."""


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
        found = np.full(len(tid), -1)
        if len(self.tid):
            _places(tid, self.tid, found)
        return found


def calls_of(
    trace: Trace,
    lanes: Lanes,
    what: str,
    chosen: str = "",
    source: str = "syscalls",
    results: bool = False,
) -> Iterator[Calls]:
    """Yields all calls of a trace, batch by batch, with their lanes.

    `what` and the condition `chosen` are SQL over the columns of `source`: the table syscalls, or a
    join of it that keeps its rows and their order. No other query of the trace is possible before
    the last batch. Needs table syscalls.
    """
    more = f", coalesce({chosen}, false)::TINYINT AS chosen" if chosen else ""
    if results:
        more += f", if({INTERRUPTED}, 2, coalesce((ret = 0)::TINYINT, -1))::TINYINT AS results"
    query = (
        "SELECT tid::BIGINT AS tid, ts,"
        f" coalesce(dur_ns, {_NEVER}) AS length, {what} AS what{more} FROM {source}"
    )
    for batch in trace.batches(query):
        tid, ts, length = (batch[name].to_numpy() for name in ("tid", "ts", "length"))
        returned = np.empty(len(ts), np.int64)
        _add_up(ts, length, returned)
        told = batch["chosen"].to_numpy().view(np.bool_) if chosen else None
        lane = lanes.of(tid, ts)
        ended = batch["results"].to_numpy() if results else None
        yield Calls(lane, ts, returned, length != _NEVER, batch["what"], tid, told, ended)


class CallsAround:
    """The last call up to each given moment of a thread, and the first call after it.

    Each array has one value per moment. The values are final after `close`.
    """

    def __init__(
        self,
        lane: Ints | NDArray[np.int32],
        ts: Ints,
        after: bool = True,
        results: bool = False,
    ) -> None:
        """Takes the moments: `lane` (from 0) ascends, and `ts` (ns) ascends within each lane.

        Without `after`, the calls after the moments are not looked for. With `results`, the results
        of the last calls are.
        """
        lanes = int(lane[-1]) + 1 if len(lane) else 0
        self._lane = lane
        self._first = np.searchsorted(lane, np.arange(lanes + 1, dtype=lane.dtype))
        self._cuts = Cuts(lane, ts)
        self._row = np.full(len(ts), -1, np.int32)
        self.entered = np.full(len(ts), -LATEST)
        """Time in ns at which the last call was entered; -LATEST: there was no call."""
        self.returned = np.full(len(ts), -LATEST)
        """Time in ns at which the last call returned; LATEST: it did not; -LATEST: no call."""
        self.next = np.full(len(ts) if after else 0, LATEST)
        """Time in ns at which the first call after the moment was entered; LATEST: no call."""
        self.result = np.full(len(ts) if results else 0, -1, np.int8)
        """1: the last call returned 0; 2: it was interrupted; 0: something else; -1: not known. The
        longest of several calls that were entered at one time counts."""
        self._longest = np.full(len(self.result), _NEVER)

    def see(self, calls: Calls) -> tuple[Ints, NDArray[np.int32]]:
        """Takes a batch of calls into account.

        Returns the moments whose last call so far is in this batch, and the rows of these calls.
        """
        moments = np.empty(len(calls.lane), np.int64)
        count = 0
        if len(self._lane):
            before = self._cuts.last(calls.lane, calls.entered, before=True)
            if len(self.next):
                _keep_first(before, calls.entered, self.next)
            count = _keep_last(
                before,
                calls.lane,
                calls.entered,
                calls.returned,
                self._first,
                self.entered,
                self.returned,
                self._row,
                calls.did_return,
                np.empty(0, np.int8) if calls.results is None else calls.results,
                self._longest,
                self.result,
                moments,
            )
        moments = moments[:count]
        rows = self._row[moments]
        self._row[moments] = -1
        return moments, rows

    def close(self) -> NDArray[np.int32]:
        """Completes the moments between which there was no call. Call it after the last batch.

        Returns for each moment the number of the moment for which `see` returned its last call.
        """
        # Nobody needs these any more, and there may be millions of moments.
        self._cuts = Cuts(self._lane[:0], self.next[:0])
        self._row, self._longest = self._row[:0].copy(), self._longest[:0].copy()
        told_for = np.arange(len(self._lane), dtype=np.int32)
        if len(self.next):
            _carry_back(self._lane, self.next)
        _carry_on(self._lane, self.entered, self.returned, told_for)
        if len(self.result):
            self.result = self.result[told_for]
        return told_for


def make_calls_before(
    trace: Trace, moments: Mapping[str, str], chosen: tuple[str, str] | None = None
) -> None:
    """Makes tables of the last system call of a thread up to each moment, in one pass of syscalls.

    `moments` has a query for tid and ts for the name of each table. Columns: ts (entered), tid,
    call, returned (ns, LATEST for a call that did not return). An ASOF join of the moments with
    their table finds the same calls as one with syscalls. A table has at most one row per moment,
    whatever the trace's length. `chosen` has the name of another table, of the same columns, and a
    condition over the column `name` (SQL): the table gets all calls for which it holds.

    Needs the table syscalls, which may be empty.
    """
    table, condition = chosen or ("", "")
    none = np.empty(0, np.int64)
    no_calls = _table(none, none, none, pa.array([]))
    tables = {name: no_calls for name in (*moments, table) if name}
    if not trace.is_empty("syscalls"):
        tables |= _calls_before(trace, moments, table, condition)
    for name, rows in tables.items():
        trace.keep(name, rows)


def _calls_before(
    trace: Trace, moments: Mapping[str, str], table: str, condition: str
) -> dict[str, pa.Table]:
    found = {name: _CallsBefore(trace, query) for name, query in moments.items()}
    tids = np.unique(np.concatenate([one.tids for one in found.values()]))
    whole = []
    for calls in calls_of(trace, Numbers(tids), "name", condition) if len(tids) or table else ():
        for one in found.values():
            one.see(calls, tids)
        if calls.chosen is not None and len(at := np.flatnonzero(calls.chosen)):
            names = calls.what.take(pa.array(at))
            whole.append(_table(calls.entered[at], calls.tid[at], calls.returned[at], names))
    tables = {name: one.table() for name, one in found.items()}
    return tables | ({table: pa.concat_tables(whole)} if whole else {})


class _CallsBefore:
    """The names and times of the last calls up to the moments of one query."""

    def __init__(self, trace: Trace, moments: str) -> None:
        rows = trace.arrow(
            f"SELECT DISTINCT tid::BIGINT AS tid, ts FROM ({moments})"
            " WHERE tid IS NOT NULL AND ts IS NOT NULL ORDER BY ALL"
        )
        self._tid, ts = (rows[column].to_numpy() for column in ("tid", "ts"))
        self.tids, self._lane = np.unique(self._tid, return_inverse=True)
        self._around = CallsAround(self._lane, ts)
        self._names = np.full(len(ts), None, object)

    def see(self, calls: Calls, tids: Ints) -> None:
        """Takes a batch of calls into account. Their lanes are the places of threads in `tids`."""
        lane = calls.lane
        if len(self.tids) < len(tids):
            own = np.append(Numbers(self.tids).of(tids, tids), -1)  # place -1: not in `tids`
            lane = own[lane]
        found, at = self._around.see(replace(calls, lane=lane))
        self._names[found] = calls.what.take(pa.array(at)).to_numpy(False)

    def table(self) -> pa.Table:
        around = self._around
        around.close()
        known = np.flatnonzero(around.entered > -LATEST)
        kept = known[_is_first(self._lane[known], around.entered[known])]
        names = pa.array(self._names[kept], pa.string())
        return _table(around.entered[kept], self._tid[kept], around.returned[kept], names)


def _table(entered: Ints, tid: Ints, returned: Ints, names: pa.Array) -> pa.Table:
    return pa.table(
        {"ts": entered, "tid": tid, "call": names.cast(pa.string()), "returned": returned}
    )


def _is_first(lane: Ints, entered: Ints) -> NDArray[np.bool_]:
    """Returns a mask of the calls that differ from the call before them."""
    found = np.ones(len(lane), np.bool_)
    found[1:] = (lane[1:] != lane[:-1]) | (entered[1:] != entered[:-1])
    return found


@compiled
def _places(tid: Ints, tids: Ints, found: Ints) -> None:
    recent = np.zeros(_RECENT, np.int64)  # the last place that was found, by the tid's last bits
    for row in range(len(tid)):
        at = recent[tid[row] % _RECENT]
        if tids[at] != tid[row]:
            at = min(np.searchsorted(tids, tid[row]), len(tids) - 1)
            recent[tid[row] % _RECENT] = at
        if tids[at] == tid[row]:
            found[row] = at


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
def _carry_back(lane: Ints | NDArray[np.int32], entered: Ints) -> None:
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
    last_row: NDArray[np.int32],
    did_return: NDArray[np.bool_],
    results: NDArray[np.int8],
    longest: Ints,
    last_result: NDArray[np.int8],
    moments: Ints,
) -> int:
    """Returns the number of moments whose last call is among these; they come into `moments`."""
    count = 0
    for row in range(len(lane)):
        if lane[row] < 0 or lane[row] >= len(first) - 1:
            continue
        at = before[row] + 1 if before[row] >= 0 else first[lane[row]]
        if at >= first[lane[row] + 1] or entered[row] < last_entered[at]:
            continue
        if len(results) and len(last_result):
            if entered[row] > last_entered[at]:
                longest[at], last_result[at] = _NEVER, -1
            length = returned[row] - entered[row]
            if results[row] >= 0 and did_return[row] and length > longest[at]:
                longest[at], last_result[at] = length, results[row]
        last_entered[at] = entered[row]
        last_returned[at] = returned[row]
        if last_row[at] < 0:
            moments[count] = at
            count += 1
        last_row[at] = row
    return count


@compiled
def _carry_on(
    lane: Ints | NDArray[np.int32], entered: Ints, returned: Ints, told_for: NDArray[np.int32]
) -> None:
    for row in range(1, len(lane)):
        if lane[row] == lane[row - 1] and entered[row - 1] > entered[row]:
            entered[row] = entered[row - 1]
            returned[row] = returned[row - 1]
            told_for[row] = told_for[row - 1]
