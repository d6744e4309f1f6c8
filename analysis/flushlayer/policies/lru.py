"""LRU: evicts the least recently used page.

The stream itself is the list: the layer holds the pages used since `tail`, in the order of their
last uses. The page to evict is the first one from `tail` on that was not used again. One bit per
access is set while the access is the last use of its page.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from tracer.analysis.flushlayer.policies.accounting import COPY, DIRTY, EVICTED, admitted
from tracer.analysis.flushlayer.policies.bits import bit, lowest
from tracer.analysis.flushlayer.policies.operations import LOOK, PAST, WRITE
from tracer.probes.compiled import compiled

_NEVER = -1


@compiled
def lru(page: Any, op: Any, unique: int, capacity: int, tally: Any, found: Any, victim: Any) -> Any:
    """Runs accesses through a buffer of at least 1 page; accounting.py describes the arrays."""
    mixed, told = len(op) > 0, len(found) > 0
    state = np.zeros(unique, np.uint8)  # kept only if pages may be clean; else made at the end
    used = np.full(unique, _NEVER, np.int32)
    last = np.full((len(page) >> 6) + 1, ~np.uint64(0), np.uint64)
    tail = 0
    resident = 0
    for i in range(len(page)):
        p = page[i]
        kind = op[i] if mixed else WRITE
        was = used[p]
        copy = 0
        if was >= tail:
            copy = state[p] if mixed else COPY
        tally[kind, copy] += 1
        if told:
            found[i] = copy
        if kind == LOOK:
            last[i >> 6] &= ~bit(i)
            continue
        if copy:
            last[was >> 6] &= ~bit(was)
        if kind == PAST:
            last[i >> 6] &= ~bit(i)
            if copy:
                used[p] = _NEVER
                state[p] = 0
                resident -= 1
            continue
        if not copy:
            if resident == capacity:
                word = last[tail >> 6] >> np.uint64(tail & 63)
                if word == 0:
                    tail = (tail | 63) + 1
                    while last[tail >> 6] == 0:
                        tail += 64
                    word = last[tail >> 6]
                tail += lowest(word)
                v = page[tail]
                left = COPY
                if mixed:
                    left = state[v]
                    state[v] = 0
                tally[EVICTED, left] += 1
                if told:
                    victim[i] = v
                    found[i] |= (left & DIRTY) << 1
                tail += 1
                resident -= 1
            resident += 1
        used[p] = i
        if mixed:
            state[p] |= admitted(kind)
    if not mixed:
        for p in range(unique):
            if used[p] >= tail:
                state[p] = COPY
    return state
