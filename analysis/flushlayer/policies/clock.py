"""CLOCK: first in, first out, but a page used since it was queued gets another round.

Each page has one reference bit, which a hit sets and the passing hand clears (Corbato, A paging
experiment with the Multics system, 1969). The hand's circle is a queue: a page that the hand
passes goes to its end.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from tracer.analysis.flushlayer.policies.accounting import COPY, DIRTY, EVICTED, RESIDENT, admitted
from tracer.analysis.flushlayer.policies.operations import LOOK, PAST, WRITE
from tracer.analysis.flushlayer.policies.queue import GONE, ring_size, squeeze
from tracer.probes.compiled import compiled

_USED = 4


@compiled
def clock(
    page: Any, op: Any, unique: int, capacity: int, tally: Any, found: Any, victim: Any
) -> Any:
    """Runs accesses through a buffer of at least 1 page; accounting.py describes the arrays."""
    mixed, told = len(op) > 0, len(found) > 0
    state = np.zeros(unique, np.uint8)
    slot = np.empty(unique, np.int32)
    ring = np.empty(ring_size(capacity), np.int32)
    mask = len(ring) - 1
    tail = head = 0
    resident = 0
    for i in range(len(page)):
        p = page[i]
        kind = op[i] if mixed else WRITE
        tally[kind, state[p] & COPY] += 1
        if told:
            found[i] = state[p] & COPY
        if state[p] & RESIDENT:
            if kind == PAST:
                state[p] = 0
                ring[slot[p]] = GONE
                resident -= 1
            else:
                state[p] |= admitted(kind)
                if kind != LOOK:
                    state[p] |= _USED
        elif kind != PAST and kind != LOOK:
            while resident == capacity:
                v = ring[tail & mask]
                tail += 1
                if v == GONE:
                    continue
                if state[v] & _USED:
                    state[v] ^= _USED
                    ring[head & mask] = v
                    slot[v] = head & mask
                    head += 1
                else:
                    tally[EVICTED, state[v] & COPY] += 1
                    if told:
                        victim[i] = v
                        found[i] |= (state[v] & DIRTY) << 1
                    state[v] = 0
                    resident -= 1
            if head - tail > mask:
                _, head = squeeze(ring, slot, tail, tail, head)
            ring[head & mask] = p
            slot[p] = head & mask
            head += 1
            resident += 1
            state[p] = admitted(kind)
    return state
