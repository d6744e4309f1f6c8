"""MIN: evicts the page whose next use is farthest away; no policy has fewer misses.

Belady, A study of replacement algorithms for a virtual-storage computer, IBM Systems Journal 1966.
MIN knows the future, so it is a bound of the misses, not a policy to build. It has the fewest of
all policies that admit every page. It has the fewest destages only if all accesses are writes,
because then every evicted page is dirty. With reads, the eviction of a clean page costs nothing;
with writes past the layer, a page that is about to be dropped need not be destaged. MIN considers
neither.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from tracer.analysis.flushlayer.policies.accounting import COPY, DIRTY, EVICTED, RESIDENT, admitted
from tracer.analysis.flushlayer.policies.operations import LOOK, PAST, READ, WRITE
from tracer.analysis.heaps import order, pop, push
from tracer.probes.compiled import compiled


@compiled
def _next_uses(page: Any, op: Any, unique: int) -> Any:
    # Number of the access that next writes or reads the page of access i through the layer. If
    # there is none, or the page is dropped first: n + page, which is beyond every access.
    n = len(page)
    soonest = np.empty(unique, np.int64)
    for p in range(unique):
        soonest[p] = n + p
    following = np.empty(n, np.int64)
    for i in range(n - 1, -1, -1):
        p = page[i]
        kind = op[i] if len(op) else WRITE
        following[i] = soonest[p]
        if kind in (WRITE, READ):
            soonest[p] = i
        elif kind == PAST:
            soonest[p] = n + p
    return following


@compiled
def belady(
    page: Any, op: Any, unique: int, capacity: int, tally: Any, found: Any, victim: Any
) -> Any:
    """Runs accesses through a buffer of at least 1 page; accounting.py describes the arrays."""
    n = len(page)
    following = _next_uses(page, op, unique)
    mixed, told = len(op) > 0, len(found) > 0
    state = np.zeros(unique, np.uint8)
    due = np.full(unique, -1, np.int64)  # next use of a resident page
    # A heap with the farthest next use on top. Outdated entries of a page sink, because their time
    # is past; they are removed when the heap is full.
    heap = np.empty(2 * capacity + 64, np.int64)
    size = 0
    resident = 0
    for i in range(n):
        p = page[i]
        kind = op[i] if mixed else WRITE
        tally[kind, state[p] & COPY] += 1
        if told:
            found[i] = state[p] & COPY
        if state[p] & RESIDENT:
            if kind == PAST:
                state[p] = 0
                due[p] = -1
                resident -= 1
                continue
            state[p] |= admitted(kind)
            if kind == LOOK:
                continue
        elif kind in (PAST, LOOK):
            continue
        else:
            while resident == capacity:
                farthest = heap[0]
                pop(heap, size)
                size -= 1
                v = page[farthest] if farthest < n else farthest - n
                if due[v] == farthest:
                    tally[EVICTED, state[v] & COPY] += 1
                    if told:
                        victim[i] = v
                        found[i] |= (state[v] & DIRTY) << 1
                    state[v] = 0
                    due[v] = -1
                    resident -= 1
            state[p] = admitted(kind)
            resident += 1
        due[p] = following[i]
        if size == len(heap):
            kept = 0
            for at in range(size):
                key = heap[at]
                v = page[key] if key < n else key - n
                if due[v] == key and v != p:
                    heap[kept] = key
                    kept += 1
            size = kept
            order(heap, size)
        push(heap, size, following[i])
        size += 1
    return state
