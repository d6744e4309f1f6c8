"""Intervals off the CPU with what surrounds them: the call, and the last events before them.

The table off_cpu is read twice, in stored order, and never sorted: first for the times, then for
the rows. In between, one pass of syscalls finds the calls. About 45 bytes per interval are in
memory, 8 once the calls are known.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, TypeVar

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from tracer.analysis.views.arrays import concatenated
from tracer.analysis.views.calls_around import LATEST, Calls, CallsAround
from tracer.analysis.views.cuts import Cuts
from tracer.analysis.views.lengths import Lengths
from tracer.analysis.views.lives import Lives, lives_of
from tracer.analysis.views.stretches import Ints
from tracer.probes.compiled import compiled
from tracer.store.trace import Trace

T = TypeVar("T", bound=np.generic)

_NONE = -LATEST - 1
_BATCH = 1 << 15
_NO_CALL, _INSIDE, _OPEN, _AFTER = range(4)
"""Before the first call; in a call; in one whose return is not known; after a call."""
NOBODY = 1 << 40
"""A number that no thread has."""

_TIMES = (
    f"SELECT coalesce(tid, {NOBODY})::BIGINT AS tid, ts, coalesce(dur_ns, 0) AS length FROM off_cpu"
)
_ROWS = f"""
SELECT row, ts, dur_ns, cpu, pid, tid, state, wake_ns, waker_tid, interrupt, run_delay_ns,
    ran_cpu, ran_tid,
    coalesce(wake_ns, ts) AS woken, coalesce(waker_tid, {NOBODY})::BIGINT AS waker,
    coalesce(ran_tid, {NOBODY})::BIGINT AS ran, coalesce(tid, {NOBODY})::BIGINT AS number,
    coalesce(dur_ns, 0) AS length
FROM off_cpu_rows
"""


class Marks:
    """Moments of threads with what is known of each."""

    def __init__(self, lane: Ints, ts: Ints, known: pa.Table) -> None:
        """Takes the moments: `lane` (-1: none) ascends, and `ts` (ns) within each lane.

        `known` has a row per moment.
        """
        kept = np.flatnonzero(lane >= 0)
        self._ts = ts[kept]
        self._known = known.take(pa.array(kept)).combine_chunks()
        self._cuts = Cuts(lane[kept], self._ts)

    def last(self, lane: Ints, ts: Ints) -> pa.Table:
        """Returns what is known of the last moment up to each time; null: there is none."""
        at = self._cuts.last(lane, ts)
        return self._known.take(pa.array(at, mask=at < 0))

    def exact(self, lane: Ints, ts: Ints) -> pa.Table:
        """Returns what is known of the moment at each time; null: there is none."""
        at = self._cuts.last(lane, ts)
        found = at >= 0
        found[found] = self._ts[at[found]] == ts[found]
        return self._known.take(pa.array(at, mask=~found))


def marks_of(trace: Trace, lives: Lives, query: str) -> Marks:
    """Returns the moments that an SQL query gives: tid and ts, in this order, and what is known."""
    found = trace.arrow(query)
    tid, ts = (found[column].to_numpy() for column in ("tid", "ts"))
    return Marks(lives.of(tid, ts), ts, found.drop_columns(["tid", "ts"]))


class Sleeps:
    """The intervals off the CPU of some threads."""

    def __init__(self, trace: Trace, waiting: NDArray[np.bool_]) -> None:
        """`waiting` tells for each row of `threads`, in order of `life`, if it is wanted."""
        self._trace = trace
        self._waiting = waiting
        self.lives: Lives = lives_of(trace)
        """All threads: the place of a thread is its lane."""
        lane, ts, until = self._times()
        place, self._first, ascends = placed(lane, ts, len(self.lives.tid))
        del lane
        # Places of rows that ascend are counted anew as the rows are read again.
        self._sorted = None if ascends else (place, ordered(until, place))
        del until
        moments = ordered(ts, place)
        del ts, place
        self._ts = moments
        lane = np.repeat(np.arange(len(self.lives.tid), dtype=np.int32), np.diff(self._first))
        self._around = CallsAround(lane, moments, after=False, results=True)
        self._call = np.full(len(moments), -1, np.int32)
        self._since_edge = Lengths(np.empty(0, np.int64))

    def _times(self) -> tuple[NDArray[np.int32], Ints, Ints]:
        """Returns the lane, the time and the end (ns) of each interval, in stored order.

        The arrays grow with the rows that are read, whatever number of rows the file claims.
        """
        parts: list[list[NDArray[Any]]] = [
            [np.empty(0, kind)] for kind in (np.int32, np.int64, np.int64)
        ]
        for batch in self._trace.batches(_TIMES):
            tid, began, length = (batch[name].to_numpy() for name in batch.schema.names)
            life, wanted = self._lives(tid, began)
            until = np.empty(len(wanted), np.int64)
            fill_ends(began[wanted], length[wanted], until)
            lane = life.astype(np.int32)
            for part, found in zip(parts, (lane, began[wanted], until), strict=True):
                part.append(found)
        lanes, times, ends = concatenated(parts)
        return lanes, times, ends

    def _lives(self, tid: Ints, ts: Ints) -> tuple[Ints, Ints]:
        """Returns the wanted lives of thread numbers at times, and which of the times are theirs.

        The first has a value for each of the second, which are places in the arrays.
        """
        life = self.lives.of(tid, ts)
        known = np.flatnonzero(life >= 0)
        wanted = known[self._waiting[life[known]]]
        return life[wanted], wanted

    def see(self, calls: Calls) -> None:
        """Takes a batch of calls into account: their lanes are places in `lives`."""
        found, rows = self._around.see(calls)
        self._call[found] = calls.what.to_numpy()[rows]

    def close(self) -> None:
        """Completes the calls. Call it after the last batch."""
        around = self._around
        call = self._call[around.close()]
        # Few bytes for few calls: codes begin with -1.
        self._call = call.astype(np.min_scalar_type(-1 - int(call.max(initial=0))))
        del call
        inside = (around.entered > -LATEST) & (self._ts <= around.returned)
        self._place_of_call = np.where(inside, _INSIDE, np.int8(_AFTER))
        self._place_of_call[inside & (around.returned == LATEST)] = _OPEN
        self._place_of_call[around.entered == -LATEST] = _NO_CALL
        self._result = around.result
        # Of a call that had returned, only that time matters; of another one, only its entry.
        since = around.returned
        since[inside] = around.entered[inside]
        del self._around, around, inside
        np.subtract(self._ts, since, out=since)
        del self._ts
        since[self._place_of_call == _NO_CALL] = 0
        self._since_edge = Lengths(since)

    def batches(
        self, marks: Sequence[Marks], of_calls: Marks, of_wakers: Marks
    ) -> Iterator[pa.Table]:
        """Yields the intervals in stored order, with more columns; other queries may run meanwhile.

        - since: end of the thread's interval before (ns); null: there is none;
        - entered: time of entry of its last call up to `ts` (ns), and call: that call's code; null:
          it had returned by then, or there was none; returned: when it had (ns), and call_before:
          its code then;
        - open: true if it is in a call whose return is not known; zero: if that call returned 0;
          cut_short: if that call was interrupted, or the one before if it is in none;
        - the columns of each of `marks` for the thread's last moment up to `ts`, and those of
          `of_calls` for the moment at which the call that it is in was entered, and those of
          `of_wakers` for the waker at `wake_ns`;
        - life, late_life: row of `threads` at `ts` and at `wake_ns`, as `life` there; waker_life:
          the same of the waker at `wake_ns`; ran_life: of `ran_tid` at the end of the interval.
        """
        places, done = _Places(self._first, self._sorted), 0
        for batch in self._trace.batches(_ROWS, _BATCH, beside=True):
            life, kept = self._lives(batch["number"].to_numpy(), batch["ts"].to_numpy())
            if len(kept):
                rows = batch.take(pa.array(kept))
                yield self._around_rows(rows, life, done, places, marks, of_calls, of_wakers)
                done += len(kept)

    def _around_rows(
        self,
        batch: pa.RecordBatch,
        life: Ints,
        done: int,
        places: _Places,
        marks: Sequence[Marks],
        of_calls: Marks,
        of_wakers: Marks,
    ) -> pa.Table:
        names = ("ts", "woken", "number", "waker", "ran", "length")
        ts, woken, tid, waker, ran, length = (batch[name].to_numpy() for name in names)
        ended = np.empty(len(ts), np.int64)
        fill_ends(ts, length, ended)
        at, since = places.of(done, life, ts, length)
        edge, place = ts - self._since_edge.of(at), self._place_of_call[at]
        inside = (place == _INSIDE) | (place == _OPEN)
        call, result = self._call[at], self._result[at]
        told: dict[str, pa.Array | pa.ChunkedArray] = {
            "since": pa.array(since, mask=at == self._first[life]),
            "calls_known": pa.array(place != _NO_CALL),
            "entered": pa.array(edge, mask=~inside),
            "returned": pa.array(edge, mask=place != _AFTER),
            "call": pa.array(call, mask=~inside | (call < 0)),
            "call_before": pa.array(call, mask=(place != _AFTER) | (call < 0)),
            "open": pa.array(place == _OPEN),
            "zero": pa.array(result == 1, mask=~inside | (result < 0)),
            "cut_short": pa.array(result == 2, mask=result < 0),
            "life": pa.array((life + 1).astype(np.int32)),
        }
        for name, number, moment in (
            ("late_life", tid, woken),
            ("waker_life", waker, woken),
            ("ran_life", ran, ended),
        ):
            known = self.lives.of(number, moment)
            told[name] = pa.array((known + 1).astype(np.int32), mask=known < 0)
        found = [one.last(life, ts) for one in marks]
        found.append(of_calls.exact(np.where(inside, life, -1), edge))
        found.append(of_wakers.exact(self.lives.of(waker, woken), woken))
        for one in found:
            told |= dict(zip(one.column_names, one.columns, strict=True))
        rows = pa.Table.from_batches([batch]).drop_columns(list(names[1:]))
        for name, column in told.items():
            rows = rows.append_column(name, column)
        return rows


class _Places:
    """The places of intervals in the order of lanes and times, as they are read in stored order."""

    def __init__(self, first: Ints, known: tuple[NDArray[np.int32], Ints] | None) -> None:
        """`first` has the first place of each lane.

        `known` has the place of each row, and the end (ns) of the interval at each place; None: the
        intervals of each lane are stored in order of time.
        """
        self._known = known
        self._following = first[:-1].copy()
        self._ended = np.zeros(len(first) - 1, np.int64)

    def of(self, done: int, lane: Ints, began: Ints, length: Ints) -> tuple[Ints, Ints]:
        """Returns the places of the rows that follow, and the ends (ns) of the intervals before.

        `done`: the number of rows before them. The first interval of a lane has any end before it.
        """
        if self._known is not None:
            place, until = self._known
            at = place[done : done + len(lane)].astype(np.int64)
            return at, until[np.maximum(at, 1) - 1]
        at, since = np.empty(len(lane), np.int64), np.empty(len(lane), np.int64)
        _follow(lane, began, length, self._following, self._ended, at, since)
        return at, since


def placed(lane: NDArray[np.int32], ts: Ints, lanes: int) -> tuple[NDArray[np.int32], Ints, bool]:
    """Returns the place of each row in the order of lanes and times, and the lanes' first places.

    Rows of one time keep their order. The last value tells whether the rows of each lane are in
    order of time.
    """
    place = np.empty(len(lane), np.int32)
    first = np.zeros(lanes + 1, np.int64)
    ascends = _place(lane, ts, first, place)
    if not ascends:
        place[np.lexsort((ts, lane))] = np.arange(len(lane), dtype=np.int32)
    return place, first, ascends


@compiled
def _place(lane: NDArray[np.int32], ts: Ints, first: Ints, place: NDArray[np.int32]) -> bool:
    """Places rows whose times ascend in each lane; False: they do not."""
    for row in range(len(lane)):
        first[lane[row] + 1] += 1
    for at in range(1, len(first)):
        first[at] += first[at - 1]
    following = first[:-1].copy()
    last = np.full(len(first) - 1, _NONE)
    ascends = True
    for row in range(len(lane)):
        at = lane[row]
        ascends &= ts[row] >= last[at]
        last[at] = ts[row]
        place[row] = following[at]
        following[at] += 1
    return ascends


@compiled
def ordered(values: NDArray[T], place: NDArray[np.int32]) -> NDArray[T]:
    """Returns values in the order of their places, as `placed` finds them."""
    found = np.empty(len(values), values.dtype)
    for row in range(len(values)):
        found[place[row]] = values[row]
    return found


@compiled
def fill_ends(began: Ints, length: Ints, until: Ints) -> None:
    """Fills `until` with the ends of intervals, within the bounds of 64 bits."""
    for at in range(len(until)):
        until[at] = _end(began[at], length[at])


@compiled
def _follow(
    lane: Ints, began: Ints, length: Ints, following: Ints, ended: Ints, place: Ints, since: Ints
) -> None:
    """Counts on from the places that follow in each lane, and from the ends so far."""
    for row in range(len(lane)):
        at = lane[row]
        place[row], since[row] = following[at], ended[at]
        following[at] += 1
        ended[at] = _end(began[row], length[row])


@compiled
def _end(began: int, length: int) -> int:
    """Adds up, within the bounds of 64 bits."""
    if began > 0 and length > LATEST - began:
        return LATEST
    if began < 0 and length < _NONE - began:
        return _NONE
    return began + length
