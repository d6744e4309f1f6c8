"""A search for the last cut of a thread before a moment, for SQL over tables of any length.

DuckDB's ASOF join sorts both of its sides. Here only the cuts are in memory, and the rows keep
their order. The search starts at the previous result, so rows roughly in order of time are fast.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from tracer.probes.compiled import compiled, read_only
from tracer.store.trace import Trace


class Cuts:
    """Moments at which the time of each lane (for example a thread) is cut."""

    def __init__(self, lane: NDArray[np.int64] | NDArray[np.int32], ts: NDArray[np.int64]) -> None:
        """Takes the cuts: `lane` (from 0) ascends, and `ts` (ns) ascends within each lane."""
        lanes = int(lane[-1]) + 1 if len(lane) else 0
        # Needles of the same type: otherwise, `lane` would be copied.
        self._first = np.searchsorted(lane, np.arange(lanes + 1, dtype=lane.dtype)).astype(np.int64)
        self._ts = read_only(np.ascontiguousarray(ts, np.int64))
        self._hint = self._first[:-1].copy()

    def last(
        self, lane: NDArray[np.int64], ts: NDArray[np.int64], before: bool = False
    ) -> NDArray[np.int64]:
        """Returns for each moment the number of the last cut of its lane at or before it.

        With `before`, a cut at the moment itself does not count. -1: no such cut, or no such lane.
        """
        found = np.empty(len(ts), np.int64)
        moments = read_only(lane), read_only(ts)
        _last(*moments, before, self._first, self._ts, self._hint, found)
        return found

    def following(
        self, lane: NDArray[np.int64], ts: NDArray[np.int64], otherwise: int
    ) -> NDArray[np.int64]:
        """Returns for each moment the time (ns) of the first cut of its lane after it.

        `otherwise`: there is none.
        """
        found = np.full(len(ts), otherwise, np.int64)
        known = np.flatnonzero((lane >= 0) & (lane < len(self._first) - 1))
        of, last = lane[known], self.last(lane[known], ts[known])
        at = np.where(last < 0, self._first[of], last + 1)
        there = at < self._first[of + 1]
        found[known[there]] = self._ts[at[there]]
        return found

    def sums_before(
        self, rows: Iterable[tuple[NDArray[np.int64], ...]], values: int
    ) -> NDArray[np.float64]:
        """Returns cumulated sums over the rows: [value, n] sums all rows before cut n.

        Lanes follow one another. A row's values lie between two cuts of its lane, so the difference
        between the sums at two cuts is the sum of the rows between them. `rows` are batches of
        lane, ts and then `values` columns.
        """
        between = np.zeros((values, len(self._ts) + 1))
        for lane, ts, *columns in rows:
            at = self.last(lane, ts)
            for value, column in enumerate(columns):
                _add(at, column, between[value])
        return np.cumsum(between, axis=1)


def define(trace: Trace, name: str, cuts: Cuts, before: bool = False) -> None:
    """Adds `Cuts.last` to SQL as NAME(lane BIGINT, ts BIGINT). A null argument gives null."""

    def last(lane: pa.ChunkedArray, ts: pa.ChunkedArray) -> pa.Array:
        return pa.array(cuts.last(lane.to_numpy(), ts.to_numpy(), before))

    connection: Any = trace.connection
    with contextlib.suppress(duckdb.Error):
        connection.remove_function(name)
    connection.create_function(
        name, last, ["BIGINT", "BIGINT"], "BIGINT", type="arrow", side_effects=False
    )


@compiled
def _add(at: NDArray[np.int64], column: NDArray[np.int64], between: NDArray[np.float64]) -> None:
    for row in range(len(at)):
        if at[row] >= 0:
            between[at[row] + 1] += column[row]


@compiled
def _last(
    lane: NDArray[np.int64],
    ts: NDArray[np.int64],
    before: bool,
    first: NDArray[np.int64],
    cuts: NDArray[np.int64],
    hint: NDArray[np.int64],
    found: NDArray[np.int64],
) -> None:
    # DuckDB's threads may share `hint`: any value that one of them leaves lies within the lane.
    for row in range(len(ts)):
        at = lane[row]
        if at < 0 or at >= len(first) - 1:
            found[row] = -1
            continue
        least, most, moment = first[at], first[at + 1], ts[row]
        low = high = hint[at]
        stride = 1
        if low < most and (cuts[low] < moment if before else cuts[low] <= moment):
            low += 1
            high = low
            while high < most and (cuts[high] < moment if before else cuts[high] <= moment):
                low = high + 1
                high = min(high + stride, most)
                stride *= 2
        else:
            while low > least and not (
                cuts[low - 1] < moment if before else cuts[low - 1] <= moment
            ):
                high = low - 1
                low = max(low - stride, least)
                stride *= 2
        while low < high:
            middle = (low + high) // 2
            if cuts[middle] < moment if before else cuts[middle] <= moment:
                low = middle + 1
            else:
                high = middle
        hint[at] = low
        found[row] = low - 1 if low > least else -1
