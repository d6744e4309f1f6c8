"""MIN: the fewest pages that a cache of a given size can miss.

MIN evicts the page whose next use is farthest away (Belady, A study of replacement algorithms for a
virtual-storage computer, IBM Systems Journal 1966). It knows the future, so it is a bound, not a
policy to build. A page that is written next, as a whole, or removed next, is of no use before: it
is evicted first. A page whose next use is farther away than those of all cached pages is not taken
in; the kernel would have to, but so the number is a bound for caches that need not. There is no
read-ahead, and each tenant has a cache of its own, as in lru.py.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from tracer.analysis.heaps import order, pop, push
from tracer.analysis.memory.lru import by_tenant
from tracer.analysis.memory.page_runs import REMOVE, WRITE, PageRuns
from tracer.probes.compiled import compiled

_NEVER = -1  # `due` of a page that is not cached


def best_misses(runs: PageRuns, capacities: ArrayLike) -> NDArray[np.int64]:
    """Returns the pages that MIN misses by group (int64[group, capacity]), cold ones included.

    `capacities`: int[capacity], the same for all tenants, or int[tenant, capacity]; 0 holds
    nothing. It takes 12 bytes for each page access and 8 for each page of the files, and one pass
    for each tenant and capacity. Raises UsageError for a capacity below 0.
    """
    wanted = by_tenant(runs, capacities)
    missed = np.zeros((runs.groups, wanted.shape[1]), np.int64)
    for own, room in zip(runs.of_tenants, wanted, strict=True):
        accesses = int(own.pages.sum(dtype=np.int64))
        following, used = np.empty(accesses, np.int64), np.empty(accesses, np.int32)
        _next_uses(own.first, own.pages, own.kind, own.all_pages, following, used)
        found = np.zeros((wanted.shape[1], len(own.groups)), np.int64)
        for at, capacity in enumerate(room.tolist()):
            most = min(capacity, own.all_pages)
            _pass(
                *(own.first, own.pages, own.kind, own.group, own.all_pages, most),
                *(following, used, found[at]),
            )
        missed[own.groups] += found.T
    return missed


@compiled
def _next_uses(
    first: Any, pages: Any, kinds: Any, all_pages: int, following: Any, used: Any
) -> None:
    # Fills the page of each access i, and the number of the access that next reads that page. If
    # none does, or the page is written or removed before: n + page, which is beyond every access.
    n = len(following)
    soonest = np.arange(n, n + all_pages)
    i = n
    for row in range(len(first) - 1, -1, -1):
        for p in range(first[row] + pages[row] - 1, first[row] - 1, -1):
            i -= 1
            used[i] = p
            following[i] = soonest[p]
            soonest[p] = n + p if kinds[row] == WRITE or kinds[row] == REMOVE else i


@compiled
def _without_outdated(heap: Any, size: int, used: Any, due: Any) -> int:
    # Removes outdated and double entries; returns the number of the others, still a heap.
    n = len(used)
    kept = 0
    for at in range(size):
        key = heap[at]
        p = used[key] if key < n else key - n
        if due[p] == key:
            heap[kept] = key
            kept += 1
            due[p] = -2 - key  # marks the page as seen
    for at in range(kept):
        key = heap[at]
        due[used[key] if key < n else key - n] = key
    order(heap, kept)
    return kept


@compiled
def _pass(
    first: Any,
    pages: Any,
    kinds: Any,
    groups: Any,
    all_pages: int,
    capacity: int,
    following: Any,
    used: Any,
    missed: Any,
) -> None:
    n = len(following)
    due = np.full(all_pages, _NEVER, np.int64)  # the next use of a cached page
    # A heap of next uses, the farthest on top. An access leaves the page's older entry behind.
    heap = np.empty(2 * capacity + 64, np.int64)
    size = 0
    cached = 0
    i = -1
    for row in range(len(first)):
        for p in range(first[row], first[row] + pages[row]):
            i += 1
            hit = due[p] != _NEVER
            if kinds[row] == REMOVE:
                cached -= hit
                due[p] = _NEVER
                continue
            if not hit and kinds[row] != WRITE:
                missed[groups[row]] += 1
            if capacity == 0 or due[p] == following[i]:
                continue
            if not hit and cached == capacity:
                while True:
                    farthest = heap[0]
                    victim = used[farthest] if farthest < n else farthest - n
                    current = due[victim] == farthest
                    if current and farthest < following[i]:
                        break
                    pop(heap, size)
                    size -= 1
                    if current:
                        due[victim] = _NEVER
                        cached -= 1
                        break
                if cached == capacity:
                    continue  # its own next use is the farthest away
            if not hit:
                cached += 1
            due[p] = _NEVER
            if size == len(heap):
                size = _without_outdated(heap, size, used, due)
            due[p] = following[i]
            push(heap, size, following[i])
            size += 1
