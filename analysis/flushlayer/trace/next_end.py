"""The next request that covers a sector, found in n log n steps.

The sectors of bios are places, numbered in ascending order. A request covers a run of places: at
most 2 log2(places) nodes of a binary tree over the places. Each node keeps the last request stored
there, which covers all places below the node. The tree is filled backward in time, so the last
stored request is the next one after the bio.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from tracer.probes.compiled import compiled

Ints = NDArray[np.int64]


@compiled
def next_ends(
    row: Ints,
    place: Ints,
    fua: NDArray[np.bool_],
    told: Ints,
    done_ns: Ints,
    ending: NDArray[np.bool_],
    first: Ints,
    last: Ints,
    places: int,
) -> Ints:
    """Returns the time in ns at which each bio was complete; -1: no request, or end not known.

    Bios have `row` (ascending: their order), `place` and `fua`. Requests have `told` (ascending:
    their order among the bios), `done_ns` (-1: not known) and the places from `first` to before
    `last`. A bio belongs to the first request from its own row on. Entries marked `ending` are not
    requests, but ends of FUA writes. A bio with `fua` that is followed by such an end, before
    another bio of its place comes, is complete at that end, and not before its request.
    """
    none = len(told)
    covered = np.full(2 * places, none, np.int64)
    ended = np.full(2 * places, none, np.int64)
    # For each place: ends from this number on belong to later bios.
    of_later = np.full(places, none, np.int64)
    done = np.full(len(row), -1, np.int64)
    left = none
    for bio in range(len(row) - 1, -1, -1):
        while left > 0 and told[left - 1] >= row[bio]:
            left -= 1
            _cover(ended if ending[left] else covered, left, first[left], last[left], places)
        at = place[bio]
        request = _next_of(covered, at, places)
        if request < none:
            done[bio] = done_ns[request]
        if fua[bio]:
            end = _next_of(ended, at, places)
            if end < of_later[at]:
                done[bio] = max(done[bio], done_ns[end])
        of_later[at] = left
    return done


@compiled
def _cover(tree: Ints, number: int, first: int, last: int, places: int) -> None:
    """Stores a number for a run of places; the number is lower than all numbers stored before."""
    low, high = first + places, last + places
    while low < high:
        if low % 2:
            tree[low] = number
            low += 1
        if high % 2:
            high -= 1
            tree[high] = number
        low //= 2
        high //= 2


@compiled
def _next_of(tree: Ints, place: int, places: int) -> int:
    """Returns the lowest number that covers a place."""
    found = tree[place + places]
    node = (place + places) // 2
    while node > 0:
        found = min(found, tree[node])
        node //= 2
    return int(found)
