"""The last of the next entries that cover a range of sectors, found in n log n steps.

The block layer may serve a bio by several requests, and several bios by one request. So a bio is
complete when the last of the requests that cover its sectors is.

The bounds of ranges and entries are places, numbered in ascending order: each range and each entry
is a run of places. A binary tree over the places holds the value of the next entry of each place.
The tree is filled backward in time, so the entry that covers a place last is its next one. Each
node has the greatest value below it, and says whether all places below it have that value.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from tracer.probes.compiled import compiled

Ints = NDArray[np.int64]
Sectors = NDArray[np.uint64]

_LAST_SECTOR = np.uint64((1 << 64) - 1)
_LEAST = -(1 << 63)


def stops(first: Sectors, lengths: Ints) -> Sectors:
    """Returns the sector behind each range of at least one sector, or the last sector there is."""
    found = first + np.maximum(lengths, 1).astype(np.uint64)
    behind: Sectors = np.where(found < first, _LAST_SECTOR, found)
    return behind


def meets(first: Sectors, end: Sectors, begins: Sectors, ends: Sectors) -> NDArray[np.bool_]:
    """Returns whether each range, from `first` to before `end`, meets one of some other ranges.

    These have the first sectors `begins`, and the ones behind them `ends`, both in ascending order.
    """
    found: NDArray[np.bool_] = np.searchsorted(begins, end) > np.searchsorted(ends, first, "right")
    return found


def last_cover(
    begin: Sectors,
    stop: Sectors,
    before: Ints,
    first: Sectors,
    end: Sectors,
    value: Ints,
    nothing: int,
    once: bool = False,
) -> Ints:
    """Returns the greatest value among the next entries that cover the sectors of each range.

    The ranges, from the sector `begin` to before `stop`, are in order of time. So are the entries,
    from `first` to before `end`, which have a `value`; `before` is the number of ranges before each
    entry. A sector of a range has the value of the first entry after the range that covers it. A
    sector without such an entry has the value `nothing`, and so has a range without sectors. With
    `once`, a sector has only entries that come before the next range of this sector.
    """
    begins, ends = np.sort(begin), np.sort(stop)
    bounds = np.concatenate([first, end])
    # Only bounds within ranges matter.
    within = np.searchsorted(begins, bounds, "right") > np.searchsorted(ends, bounds, "right")
    places = np.unique(np.concatenate([begin, stop, bounds[within]]))
    runs = [np.searchsorted(places, sectors) for sectors in (begin, stop, first, end)]
    found: Ints = _sweep(
        runs[0], runs[1], before, runs[2], runs[3], value, len(places), nothing, once
    )
    return found


@compiled
def _sweep(
    begin: Ints,
    stop: Ints,
    before: Ints,
    first: Ints,
    end: Ints,
    value: Ints,
    places: int,
    nothing: int,
    once: bool,
) -> Ints:
    """Does the work of `last_cover`, with places instead of sectors."""
    size, levels = 1, 0
    while size < places:
        size *= 2
        levels += 1
    most = np.full(2 * size, nothing, np.int64)
    alike = np.zeros(2 * size, np.bool_)
    found = np.full(len(begin), nothing, np.int64)
    left = len(before)
    for at in range(len(begin) - 1, -1, -1):
        while left > 0 and before[left - 1] > at:
            left -= 1
            _cover(most, alike, levels, first[left], end[left], value[left])
        if begin[at] < stop[at]:
            found[at] = _greatest(most, alike, levels, begin[at], stop[at])
            if once:
                _cover(most, alike, levels, begin[at], stop[at], nothing)
    return found


@compiled
def _cover(
    most: Ints, alike: NDArray[np.bool_], levels: int, first: int, end: int, value: int
) -> None:
    """Gives all places of a run a value."""
    if first >= end:
        return
    low, high = first + len(most) // 2, end + len(most) // 2
    _hand_down(most, alike, levels, low)
    _hand_down(most, alike, levels, high - 1)
    left, right = low, high
    while left < right:
        if left % 2:
            most[left] = value
            alike[left] = True
            left += 1
        if right % 2:
            right -= 1
            most[right] = value
            alike[right] = True
        left //= 2
        right //= 2
    _add_up(most, alike, low)
    _add_up(most, alike, high - 1)


@compiled
def _greatest(most: Ints, alike: NDArray[np.bool_], levels: int, first: int, end: int) -> int:
    """Returns the greatest value of a run of places, which is not empty."""
    left, right = first + len(most) // 2, end + len(most) // 2
    _hand_down(most, alike, levels, left)
    _hand_down(most, alike, levels, right - 1)
    found = _LEAST
    while left < right:
        if left % 2:
            found = max(found, most[left])
            left += 1
        if right % 2:
            right -= 1
            found = max(found, most[right])
        left //= 2
        right //= 2
    return found


@compiled
def _hand_down(most: Ints, alike: NDArray[np.bool_], levels: int, leaf: int) -> None:
    """Makes the nodes on the way from the root to a leaf, and those beside it, true by themselves.

    A node all of whose places are alike says nothing about the nodes below it.
    """
    for level in range(levels, 0, -1):
        node = leaf >> level
        if alike[node]:
            most[2 * node] = most[2 * node + 1] = most[node]
            alike[2 * node] = alike[2 * node + 1] = True
            alike[node] = False


@compiled
def _add_up(most: Ints, alike: NDArray[np.bool_], leaf: int) -> None:
    """Makes the nodes above a leaf true again."""
    node = leaf // 2
    while node > 0:
        if not alike[node]:
            most[node] = max(most[2 * node], most[2 * node + 1])
        node //= 2
