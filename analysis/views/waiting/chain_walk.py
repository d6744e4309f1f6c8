"""The walk along a chain of waits: which thread's time each part of a span depends on.

While a thread runs, its span depends on itself. While it waits for a thread whose waits are
recorded, too, it depends on what that thread does meanwhile, and so on.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tracer.analysis.views.stretches import Ints
from tracer.probes.compiled import compiled, read_only

_DEEPEST = 64
"""Waits that are followed one into the other. A longer chain ends in the last wait."""
NO_WAIT = -1


@dataclass(frozen=True)
class WaitsOfLanes:
    """The waits of all threads, ordered by lane and begin; those of a lane do not overlap.

    A lane is the number of a thread, from 0.
    """

    first: Ints
    """Place of the first wait of each lane, and the number of all waits."""
    begin: Ints
    """Time in ns."""
    end: Ints
    """Time in ns."""
    by: NDArray[np.int32]
    """Lane of the thread to follow; -1: this wait is not followed."""
    born: Ints
    """Time in ns at which the thread of each lane began to exist."""


@dataclass(frozen=True)
class Pieces:
    """The pieces of spans, in the order of the spans and of time. The pieces of a span adjoin."""

    span: Ints
    """Number of the span."""
    begin: Ints
    end: Ints
    lane: Ints
    """Lane of the thread that the piece belongs to."""
    wait: Ints
    """Number of the wait that the piece is part of; NO_WAIT: the thread runs."""


@dataclass(frozen=True)
class SpansOfLanes:
    """Spans of threads: their lanes, begins and ends (ns)."""

    lane: Ints
    begin: Ints
    end: Ints

    def part(self, first: int, last: int) -> SpansOfLanes:
        """Returns the spans from one number up to another one."""
        return SpansOfLanes(self.lane[first:last], self.begin[first:last], self.end[first:last])


def pieces_of(
    waits: WaitsOfLanes, spans: SpansOfLanes, cuts: tuple[Ints, Ints], most: int
) -> Iterator[Pieces]:
    """Yields the pieces of spans, all pieces of some neighbouring spans at a time.

    `cuts` are the times at which a running thread's piece ends and another one begins, ordered by
    lanes and times, after the place of each lane's first cut and the number of all cuts. A span's
    pieces add up to its length exactly. There are at most `most` pieces at a time, or those of one
    span.
    """
    first_cut, cut = cuts
    told = (
        read_only(waits.begin), read_only(waits.end), read_only(waits.by), read_only(waits.born),
        read_only(waits.first), read_only(cut), read_only(first_cut),
    )  # fmt: skip
    count = np.empty(len(spans.lane), np.int64)
    spans = SpansOfLanes(read_only(spans.lane), read_only(spans.begin), read_only(spans.end))
    _walk(*told, spans.lane, spans.begin, spans.end, np.empty((0, 5), np.int64), count)
    upto = np.cumsum(count)
    first = 0
    while first < len(upto):
        before = int(upto[first - 1]) if first else 0
        last = max(first + 1, int(np.searchsorted(upto, before + most, "right")))
        found = np.empty((int(upto[last - 1]) - before, 5), np.int64)
        some = spans.part(first, last)
        _walk(*told, some.lane, some.begin, some.end, found, count[first:last])
        found[:, 0] += first
        yield Pieces(*(np.ascontiguousarray(found[:, column]) for column in range(5)))
        first = last


@compiled
def _walk(
    begins: Ints,
    ends: Ints,
    by: NDArray[np.int32],
    born: Ints,
    first_wait: Ints,
    cuts: Ints,
    first_cut: Ints,
    lanes: Ints,
    starts: Ints,
    stops: Ints,
    found: NDArray[np.int64],
    count: Ints,
) -> None:
    """Counts the pieces of each span, and writes them to `found` if it has room for them."""
    n = 0
    # For each wait that is followed: the thread, the time from which and until which it counts,
    # its next wait, and the wait that led to it.
    lane_at = np.empty(_DEEPEST, np.int64)
    now = np.empty(_DEEPEST, np.int64)
    until = np.empty(_DEEPEST, np.int64)
    coming = np.empty(_DEEPEST, np.int64)
    led_by = np.empty(_DEEPEST, np.int64)
    for span in range(len(lanes)):
        count[span] = 0
        before = n
        if lanes[span] < 0 or lanes[span] >= len(born) or stops[span] <= starts[span]:
            continue
        depth = 0
        lane_at[0], now[0], until[0] = lanes[span], starts[span], stops[span]
        coming[0] = _first_after(ends, first_wait, lanes[span], starts[span])
        led_by[0] = NO_WAIT
        while depth >= 0:
            lane, at, stop, wait = lane_at[depth], now[depth], until[depth], coming[depth]
            if at >= stop:
                depth -= 1
                continue
            if led_by[depth] != NO_WAIT and at < born[lane]:
                # The thread did not exist yet: the wait for it stays as it is.
                birth = min(stop, born[lane])
                n = _add(found, n, span, at, birth, lane_at[depth - 1], led_by[depth])
                now[depth] = birth
                continue
            begin = stop
            if wait < first_wait[lane + 1]:
                begin = min(stop, begins[wait])
            if begin > at:
                n = _run(found, n, span, at, begin, lane, cuts, first_cut)
                now[depth] = begin
                continue
            end = min(stop, ends[wait])
            coming[depth] = wait + 1
            now[depth] = max(at, end)
            follow = by[wait]
            if end <= at:
                continue
            if 0 <= follow < len(born) and depth + 1 < _DEEPEST:
                depth += 1
                lane_at[depth], now[depth], until[depth] = follow, at, end
                coming[depth] = _first_after(ends, first_wait, follow, at)
                led_by[depth] = wait
            else:
                n = _add(found, n, span, at, end, lane, wait)
        count[span] = n - before


@compiled
def _first_after(ends: Any, first_wait: Any, lane: int, at: int) -> Any:
    """The first wait of a lane that ends after a time."""
    low, high = first_wait[lane], first_wait[lane + 1]
    while low < high:
        middle = (low + high) // 2
        if ends[middle] <= at:
            low = middle + 1
        else:
            high = middle
    return low


@compiled
def _run(
    found: Any, n: int, span: int, begin: int, end: int, lane: int, cuts: Ints, first_cut: Ints
) -> int:
    """The thread runs from `begin` to `end`, in a piece for each part between two cuts."""
    low, high = first_cut[lane], first_cut[lane + 1]
    last = high
    while low < high:
        middle = (low + high) // 2
        if cuts[middle] <= begin:
            low = middle + 1
        else:
            high = middle
    while low < last and cuts[low] < end:
        if cuts[low] > begin:
            n = _add(found, n, span, begin, cuts[low], lane, NO_WAIT)
            begin = cuts[low]
        low += 1
    return _add(found, n, span, begin, end, lane, NO_WAIT)


@compiled
def _add(found: Any, n: int, span: int, begin: int, end: int, lane: int, wait: int) -> int:
    if n < len(found):
        found[n, 0] = span
        found[n, 1] = begin
        found[n, 2] = end
        found[n, 3] = lane
        found[n, 4] = wait
    return n + 1
