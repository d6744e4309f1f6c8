"""SLRU: two LRU lists; a page that is used again moves from the probationary to the protected one.

The protected segment holds at most PROTECTED of the capacity. A page that no longer fits in it goes
back to the head of the probationary segment, whose oldest page is evicted first (Karedla, Love and
Wherry, Caching strategies to improve disk system performance, IEEE Computer 1994). The SLRU of
libCacheSim differs: it has four segments, and new pages enter the upper ones while these have room.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from tracer.analysis.flushlayer.policies.accounting import COPY, DIRTY, EVICTED, RESIDENT, admitted
from tracer.analysis.flushlayer.policies.operations import LOOK, PAST, WRITE
from tracer.analysis.flushlayer.policies.queue import GONE, ring_size, squeeze
from tracer.probes.compiled import compiled

PROTECTED = 0.8
"""Largest share of the protected segment. The paper names none; this is the value of Caffeine."""

_PROTECTED = 4


@compiled
def slru(
    page: Any, op: Any, unique: int, capacity: int, tally: Any, found: Any, victim: Any
) -> Any:
    """Runs accesses through a buffer of at least 1 page; accounting.py describes the arrays."""
    most = int(capacity * PROTECTED)
    mixed, told = len(op) > 0, len(found) > 0
    state = np.zeros(unique, np.uint8)
    slot = np.empty(unique, np.int32)
    young = np.empty(ring_size(capacity), np.int32)  # the probationary segment
    safe = np.empty(ring_size(most + 1), np.int32)  # the protected segment
    young_mask, safe_mask = len(young) - 1, len(safe) - 1
    young_tail = young_head = safe_tail = safe_head = 0
    in_young = in_safe = 0
    for i in range(len(page)):
        p = page[i]
        kind = op[i] if mixed else WRITE
        tally[kind, state[p] & COPY] += 1
        if told:
            found[i] = state[p] & COPY
        incoming = p  # the page that goes to the head of the probationary segment
        if state[p] & RESIDENT:
            if kind != PAST:
                state[p] |= admitted(kind)
                if kind == LOOK:
                    continue
            if state[p] & _PROTECTED:
                safe[slot[p]] = GONE
                in_safe -= 1
            else:
                young[slot[p]] = GONE
                in_young -= 1
            if kind == PAST:
                state[p] = 0
                continue
            if safe_head - safe_tail > safe_mask:
                _, safe_head = squeeze(safe, slot, safe_tail, safe_tail, safe_head)
            state[p] |= _PROTECTED
            safe[safe_head & safe_mask] = p
            slot[p] = safe_head & safe_mask
            safe_head += 1
            in_safe += 1
            if in_safe <= most:
                continue
            while safe[safe_tail & safe_mask] == GONE:
                safe_tail += 1
            incoming = safe[safe_tail & safe_mask]
            safe_tail += 1
            in_safe -= 1
            state[incoming] ^= _PROTECTED
        elif kind in (PAST, LOOK):
            continue
        else:
            if in_young + in_safe == capacity:
                # The protected segment is smaller than the capacity, so this one is not empty.
                while young[young_tail & young_mask] == GONE:
                    young_tail += 1
                v = young[young_tail & young_mask]
                tally[EVICTED, state[v] & COPY] += 1
                if told:
                    victim[i] = v
                    found[i] |= (state[v] & DIRTY) << 1
                state[v] = 0
                young_tail += 1
                in_young -= 1
            state[p] = admitted(kind)
        if young_head - young_tail > young_mask:
            _, young_head = squeeze(young, slot, young_tail, young_tail, young_head)
        young[young_head & young_mask] = incoming
        slot[incoming] = young_head & young_mask
        young_head += 1
        in_young += 1
    return state
