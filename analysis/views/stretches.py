"""Stretches of time: ordered arrays [n, 2] of begin and end (ns) that do not touch."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from tracer.probes.compiled import compiled

Ints = NDArray[np.int64]
Stretches = NDArray[np.int64]

NO_TIME: Stretches = np.empty((0, 2), np.int64)


def joined(begin: Ints, end: Ints) -> Stretches:
    """Returns the times in which at least one of these lasts; empty ones do not count."""
    lasts = end > begin
    order = np.argsort(begin[lasts], kind="stable")
    begin, end = begin[lasts][order], end[lasts][order]
    if not len(begin):
        return NO_TIME
    latest = np.maximum.accumulate(end)
    first = np.flatnonzero(np.append(True, begin[1:] > latest[:-1]))
    last = np.append(first[1:], len(begin)) - 1
    return np.column_stack([begin[first], latest[last]])


def in_any(several: list[Stretches]) -> Stretches:
    """Returns the union of several lists of stretches."""
    together = np.concatenate([NO_TIME, *several])
    return joined(together[:, 0], together[:, 1])


def in_both(one: Stretches, other: Stretches) -> Stretches:
    """Returns the intersection of two lists of stretches."""
    found = np.empty((len(one) + len(other), 2), np.int64)
    return found[: _in_both(one, other, found)]


def at_most(stretches: Stretches, most: int) -> Stretches:
    """Returns at most `most` stretches that cover these; the shortest times between are closed."""
    if len(stretches) <= most:
        return stretches
    apart = stretches[1:, 0] - stretches[:-1, 1]
    kept = np.sort(np.argpartition(apart, -(most - 1))[len(apart) - (most - 1) :])
    begin = stretches[np.append(0, kept + 1), 0]
    return np.column_stack([begin, stretches[np.append(kept, len(stretches) - 1), 1]])


@compiled
def _in_both(one: Stretches, other: Stretches, found: Stretches) -> int:
    count = first = second = 0
    while first < len(one) and second < len(other):
        begin = max(one[first, 0], other[second, 0])
        end = min(one[first, 1], other[second, 1])
        if begin < end:
            found[count, 0], found[count, 1] = begin, end
            count += 1
        if one[first, 1] < other[second, 1]:
            first += 1
        else:
            second += 1
    return count
