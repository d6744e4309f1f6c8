"""ARC: two LRU lists, for pages used once and for pages used again, whose sizes adapt to misses.

T1 and T2 are resident; B1 and B2 remember the pages that left T1 and T2. A miss of a remembered
page moves the target size of T1 (Megiddo and Modha, ARC: a self-tuning, low overhead replacement
cache, FAST 2003, figure 4).
"""

from __future__ import annotations

from typing import Any

import numpy as np

from tracer.analysis.flushlayer.policies.accounting import COPY, DIRTY, EVICTED, RESIDENT, admitted
from tracer.analysis.flushlayer.policies.operations import LOOK, PAST, WRITE
from tracer.analysis.flushlayer.policies.queue import GONE, ring_size, squeeze
from tracer.probes.compiled import compiled

_ONCE, _AGAIN = 4, 8  # in T1 or B1; in T2 or B2


@compiled
def arc(page: Any, op: Any, unique: int, capacity: int, tally: Any, found: Any, victim: Any) -> Any:
    """Runs accesses through a buffer of at least 1 page; accounting.py describes the arrays."""
    mixed, told = len(op) > 0, len(found) > 0
    state = np.zeros(unique, np.uint8)
    slot = np.empty(unique, np.int32)
    # Pages leave T1 for B1 in order, so both are one queue: B1 from tail to middle, T1 from middle
    # to head. T2 and B2 are the other queue.
    once = np.empty(ring_size(capacity + 1), np.int32)
    again = np.empty(ring_size(2 * capacity + 1), np.int32)
    once_mask, again_mask = len(once) - 1, len(again) - 1
    once_tail = once_middle = once_head = 0
    again_tail = again_middle = again_head = 0
    t1 = b1 = t2 = b2 = 0
    target = 0.0  # target size of T1
    for i in range(len(page)):
        p = page[i]
        kind = op[i] if mixed else WRITE
        tally[kind, state[p] & COPY] += 1
        if told:
            found[i] = state[p] & COPY
        was = state[p]
        if was & RESIDENT:
            if kind != PAST:
                state[p] |= admitted(kind)
                if kind == LOOK:
                    continue
            if was & _ONCE:
                once[slot[p]] = GONE
                t1 -= 1
            else:
                again[slot[p]] = GONE
                t2 -= 1
            if kind == PAST:
                state[p] = 0
                continue
            state[p] = state[p] & ~_ONCE | _AGAIN
        elif kind in (PAST, LOOK):
            continue
        else:
            if was == _ONCE:
                target = min(target + max(b2 / b1, 1.0), float(capacity))
                once[slot[p]] = GONE
                b1 -= 1
            elif was == _AGAIN:
                target = max(target - max(b1 / b2, 1.0), 0.0)
                again[slot[p]] = GONE
                b2 -= 1
            elif t1 == capacity:
                while once[once_middle & once_mask] == GONE:
                    once_middle += 1
                v = once[once_middle & once_mask]
                tally[EVICTED, state[v] & COPY] += 1
                if told:
                    victim[i] = v
                    found[i] |= (state[v] & DIRTY) << 1
                state[v] = 0
                once_middle += 1
                once_tail = once_middle
                t1 -= 1
            elif t1 + b1 == capacity:
                while once[once_tail & once_mask] == GONE:
                    once_tail += 1
                state[once[once_tail & once_mask]] = 0
                once_tail += 1
                b1 -= 1
            elif t1 + t2 + b1 + b2 == 2 * capacity and b2:
                while again[again_tail & again_mask] == GONE:
                    again_tail += 1
                state[again[again_tail & again_mask]] = 0
                again_tail += 1
                b2 -= 1
            if t1 + t2 == capacity:
                if t2 == 0 or (t1 and (t1 > target or (t1 == target and was == _AGAIN))):
                    while once[once_middle & once_mask] == GONE:
                        once_middle += 1
                    v = once[once_middle & once_mask]
                    tally[EVICTED, state[v] & COPY] += 1
                    if told:
                        victim[i] = v
                        found[i] |= (state[v] & DIRTY) << 1
                    state[v] = _ONCE
                    once_middle += 1
                    t1 -= 1
                    b1 += 1
                else:
                    while again[again_middle & again_mask] == GONE:
                        again_middle += 1
                    v = again[again_middle & again_mask]
                    tally[EVICTED, state[v] & COPY] += 1
                    if told:
                        victim[i] = v
                        found[i] |= (state[v] & DIRTY) << 1
                    state[v] = _AGAIN
                    again_middle += 1
                    t2 -= 1
                    b2 += 1
            if was == 0:
                state[p] = admitted(kind) | _ONCE
                if once_head - once_tail > once_mask:
                    once_middle, once_head = squeeze(once, slot, once_tail, once_middle, once_head)
                once[once_head & once_mask] = p
                slot[p] = once_head & once_mask
                once_head += 1
                t1 += 1
                continue
            state[p] = admitted(kind) | _AGAIN
        if again_head - again_tail > again_mask:
            again_middle, again_head = squeeze(again, slot, again_tail, again_middle, again_head)
        again[again_head & again_mask] = p
        slot[p] = again_head & again_mask
        again_head += 1
        t2 += 1
    return state
