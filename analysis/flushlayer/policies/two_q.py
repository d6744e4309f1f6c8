"""2Q, full version: a page enters the LRU list only when it is requested after leaving a FIFO.

A1in (FIFO) takes new pages, A1out remembers the pages that left A1in, and Am (LRU) takes pages that
are requested while A1out remembers them. A1in gives up pages once it exceeds a quarter of the
capacity; A1out remembers half as many pages as the capacity (Johnson and Shasha, 2Q: a low overhead
high performance buffer management replacement algorithm, VLDB 1994, section 3).
"""

from __future__ import annotations

from typing import Any

import numpy as np

from tracer.analysis.flushlayer.policies.accounting import COPY, DIRTY, EVICTED, RESIDENT, admitted
from tracer.analysis.flushlayer.policies.operations import LOOK, PAST, WRITE
from tracer.analysis.flushlayer.policies.queue import GONE, ring_size, squeeze
from tracer.probes.compiled import compiled

KIN, KOUT = 0.25, 0.5
"""Shares of the capacity: the size above which A1in gives up pages, and the most in A1out."""

_NEW, _PROVEN = 4, 8  # in A1in or A1out; in Am


@compiled
def two_q(
    page: Any, op: Any, unique: int, capacity: int, tally: Any, found: Any, victim: Any
) -> Any:
    """Runs accesses through a buffer of at least 1 page; accounting.py describes the arrays."""
    most_new, most_remembered = int(capacity * KIN), int(capacity * KOUT)
    mixed, told = len(op) > 0, len(found) > 0
    state = np.zeros(unique, np.uint8)
    slot = np.empty(unique, np.int32)
    # Pages leave A1in for A1out in order, so both are one ring: A1out from tail to middle, A1in
    # from middle to head.
    new = np.empty(ring_size(capacity + most_remembered + 1), np.int32)
    proven = np.empty(ring_size(capacity), np.int32)
    new_mask, proven_mask = len(new) - 1, len(proven) - 1
    tail = middle = new_head = 0
    proven_tail = proven_head = 0
    in_new = remembered = in_proven = 0
    for i in range(len(page)):
        p = page[i]
        kind = op[i] if mixed else WRITE
        tally[kind, state[p] & COPY] += 1
        if told:
            found[i] = state[p] & COPY
        if state[p] & RESIDENT:
            if kind == PAST:
                if state[p] & _NEW:
                    new[slot[p]] = GONE
                    in_new -= 1
                else:
                    proven[slot[p]] = GONE
                    in_proven -= 1
                state[p] = 0
                continue
            state[p] |= admitted(kind)
            if kind == LOOK or state[p] & _NEW:
                continue
            proven[slot[p]] = GONE
        elif kind in (PAST, LOOK):
            continue
        else:
            known = state[p] == _NEW
            if known:
                new[slot[p]] = GONE
                remembered -= 1
            if in_new + in_proven == capacity:
                if in_new > most_new:
                    while new[middle & new_mask] == GONE:
                        middle += 1
                    v = new[middle & new_mask]
                    middle += 1
                    tally[EVICTED, state[v] & COPY] += 1
                    if told:
                        victim[i] = v
                        found[i] |= (state[v] & DIRTY) << 1
                    state[v] = _NEW
                    in_new -= 1
                    remembered += 1
                    if remembered > most_remembered:
                        while new[tail & new_mask] == GONE:
                            tail += 1
                        state[new[tail & new_mask]] = 0
                        tail += 1
                        remembered -= 1
                else:
                    while proven[proven_tail & proven_mask] == GONE:
                        proven_tail += 1
                    v = proven[proven_tail & proven_mask]
                    tally[EVICTED, state[v] & COPY] += 1
                    if told:
                        victim[i] = v
                        found[i] |= (state[v] & DIRTY) << 1
                    state[v] = 0
                    proven_tail += 1
                    in_proven -= 1
            if not known:
                state[p] = admitted(kind) | _NEW
                if new_head - tail > new_mask:
                    middle, new_head = squeeze(new, slot, tail, middle, new_head)
                new[new_head & new_mask] = p
                slot[p] = new_head & new_mask
                new_head += 1
                in_new += 1
                continue
            state[p] = admitted(kind) | _PROVEN
            in_proven += 1
        if proven_head - proven_tail > proven_mask:
            _, proven_head = squeeze(proven, slot, proven_tail, proven_tail, proven_head)
        proven[proven_head & proven_mask] = p
        slot[p] = proven_head & proven_mask
        proven_head += 1
    return state
