"""Replacement policies of a write buffer, over dense page ids."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from probes.compiled import compiled


def lru(page: NDArray[np.int32], unique: int, capacity: int) -> tuple[int, int]:
    """A write-only LRU buffer of `capacity` pages over the write-backs `page`.

    A write-back of a resident page overwrites it; of another page it takes a slot, whose least
    recently written page is destaged. Returns (pages destaged to make room, pages resident at
    the end). Capacity 0: every write-back goes to the disk.
    """
    if capacity <= 0:
        return len(page), 0
    destaged, resident = _lru(page, unique, capacity)
    return int(destaged), int(resident)


@compiled
def _lru(page: Any, unique: int, capacity: int) -> Any:
    # A doubly linked list over page ids; `unique` is its head: next is the most recent.
    before = np.full(unique + 1, -1, np.int32)
    after = np.full(unique + 1, -1, np.int32)
    head = unique
    before[head] = head
    after[head] = head
    resident = 0
    destaged = 0
    for i in range(len(page)):
        p = page[i]
        if after[p] >= 0:
            after[before[p]] = after[p]
            before[after[p]] = before[p]
        elif resident == capacity:
            oldest = before[head]
            before[head] = before[oldest]
            after[before[oldest]] = head
            after[oldest] = -1
            destaged += 1
        else:
            resident += 1
        newest = after[head]
        after[p] = newest
        before[p] = head
        before[newest] = p
        after[head] = p
    return destaged, resident
