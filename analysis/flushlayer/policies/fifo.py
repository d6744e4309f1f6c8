"""FIFO: evicts the page that entered first; later uses do not count."""

from __future__ import annotations

from typing import Any

import numpy as np

from tracer.analysis.flushlayer.policies.accounting import COPY, DIRTY, EVICTED, RESIDENT, admitted
from tracer.analysis.flushlayer.policies.operations import LOOK, PAST, WRITE
from tracer.analysis.flushlayer.policies.queue import GONE, ring_size, squeeze
from tracer.probes.compiled import compiled


@compiled
def fifo(
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
        elif kind != PAST and kind != LOOK:
            if resident == capacity:
                while ring[tail & mask] == GONE:
                    tail += 1
                v = ring[tail & mask]
                tally[EVICTED, state[v] & COPY] += 1
                if told:
                    victim[i] = v
                    found[i] |= (state[v] & DIRTY) << 1
                state[v] = 0
                tail += 1
                resident -= 1
            if head - tail > mask:
                _, head = squeeze(ring, slot, tail, tail, head)
            ring[head & mask] = p
            slot[p] = head & mask
            head += 1
            resident += 1
            state[p] = admitted(kind)
    return state
