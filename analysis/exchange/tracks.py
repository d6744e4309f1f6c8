"""Tracks by their subjects, and lanes for slices that overlap."""

from __future__ import annotations

import heapq
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tracer.analysis.exchange.marks import Kind, Marks, Track

_MOST_LANES = 256
"""The most lanes of nested slices; slices that would need more are drawn on the last."""
MOST_LANES = 1 << 14
"""The most lanes of slices that do not overlap; see `crowded`."""


@dataclass
class Tracks:
    """The tracks made so far, by their subjects; those without marks yet are in `new`."""

    names: dict[int, str]
    new: dict[int, Track] = field(default_factory=dict)
    _made: dict[Any, int] = field(default_factory=dict)

    def track(self, kind: Kind, key: Any, name: str, **more: Any) -> int:
        """Returns the number of the track with this key; makes it if it is new."""
        number = self._made.get(key)
        if number is None:
            number = self._made[key] = len(self._made) + 1
            self.new[number] = Track(number, kind, name, **more)
        return number

    def thread(self, pid: int | None, tid: int) -> int:
        """Returns the track of a thread; makes it and that of its process if they are new."""
        process = pid if pid is not None and pid >= 0 else max(tid, 0)
        name = self.names.get(process, "")
        self.track(Kind.PROCESS, ("process", process), name, pid=process)
        tid = max(tid, 0)
        key = ("thread", process, tid)
        return self.track(Kind.THREAD, key, self.names.get(tid, ""), pid=process, tid=tid)

    def of_thread(self, pid: int | None, tid: int, name: str) -> int:
        """Returns a track below a thread's track."""
        parent = self.thread(pid, tid)
        return self.track(Kind.SLICES, (name, parent), name, parent=parent)

    def of_device(self, dev: str, name: str, lane: int = 0) -> int:
        """Returns a track below a block device's track."""
        parent = self.track(Kind.GROUP, ("device", dev), f"block device {dev}")
        return self.track(Kind.SLICES, (name, parent, lane), name, parent=parent)

    def taken(self, marks: Marks) -> Iterator[Track]:
        """Yields the new tracks that have some of the marks, each after those that it is below."""
        if self.new:
            for number in np.unique(marks.track).tolist():
                yield from self._taken(number)

    def _taken(self, number: int) -> Iterator[Track]:
        track = self.new.pop(number, None)
        if track is None:
            return
        if track.kind is Kind.THREAD:
            yield from self._taken(self._made["process", track.pid])
        if track.parent is not None:
            yield from self._taken(track.parent)
        yield track


def nested(lanes: list[list[int]], start: int, stop: int) -> int:
    """Returns the first lane on which a slice lies within, or after, the earlier slices."""
    for number, ends in enumerate(lanes):
        while ends and ends[-1] <= start:
            ends.pop()
        if not ends or stop <= ends[-1] or number == _MOST_LANES - 1:
            ends.append(stop)
            return number
    lanes.append([stop])
    return len(lanes) - 1


class Lanes:
    """Lanes on which slices do not overlap; slices arrive in order of their start."""

    def __init__(self) -> None:
        self._busy: list[tuple[int, int]] = []
        self._free: list[int] = []
        self._made = 0

    def lane(self, start: int, stop: int) -> int:
        """Returns the lane of a slice; MOST_LANES if there is none for it."""
        while self._busy and self._busy[0][0] <= start:
            heapq.heappush(self._free, heapq.heappop(self._busy)[1])
        if self._free:
            number = heapq.heappop(self._free)
        elif self._made < MOST_LANES:
            number, self._made = self._made, self._made + 1
        else:
            return MOST_LANES
        heapq.heappush(self._busy, (stop, number))
        return number


def crowded(slices: Marks, lanes: NDArray[np.int64]) -> Iterator[Marks]:
    """Yields the slices that have a lane, then those that have none as instants with dur_ns.

    A slice on another's lane would end the other.
    """
    left = lanes == MOST_LANES
    yield slices.where(~left)
    if left.any():
        without = slices.where(left).possible()
        assert without.dur is not None
        without.numbers["dur_ns"] = without.dur, np.ones(len(without), np.bool_)
        yield without.instants()
