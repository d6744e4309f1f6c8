"""SIEVE: a hand moves from old to new pages and evicts the first one not used since its last pass.

Pages keep their place in the queue; new pages enter at its head (Zhang et al., SIEVE is simpler
than LRU, NSDI 2024).
"""

from __future__ import annotations

from typing import Any

import numpy as np

from tracer.analysis.flushlayer.policies.accounting import COPY, DIRTY, EVICTED, RESIDENT, admitted
from tracer.analysis.flushlayer.policies.operations import LOOK, PAST, WRITE
from tracer.analysis.flushlayer.policies.queue import GONE, ring_size, squeeze
from tracer.probes.compiled import compiled

_USED = 4
_AT_TAIL = -1


@compiled
def sieve(
    page: Any, op: Any, unique: int, capacity: int, tally: Any, found: Any, victim: Any
) -> Any:
    """Runs accesses through a buffer of at least 1 page; accounting.py describes the arrays."""
    mixed, told = len(op) > 0, len(found) > 0
    state = np.zeros(unique, np.uint8)
    slot = np.empty(unique, np.int32)
    ring = np.empty(ring_size(capacity), np.int32)
    mask = len(ring) - 1
    tail = head = 0
    hand = _AT_TAIL
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
                while hand != _AT_TAIL and ring[hand & mask] == GONE:
                    hand = hand + 1 if hand + 1 < head else _AT_TAIL
            else:
                state[p] |= admitted(kind)
                if kind != LOOK:
                    state[p] |= _USED
        elif kind != PAST and kind != LOOK:
            if resident == capacity:
                while ring[tail & mask] == GONE:
                    tail += 1
                if hand == _AT_TAIL:
                    hand = tail
                while True:
                    v = ring[hand & mask]
                    if v != GONE:
                        if not state[v] & _USED:
                            break
                        state[v] ^= _USED
                    hand += 1
                    if hand == head:
                        hand = tail
                tally[EVICTED, state[v] & COPY] += 1
                if told:
                    victim[i] = v
                    found[i] |= (state[v] & DIRTY) << 1
                state[v] = 0
                ring[hand & mask] = GONE
                # After the newest page, the hand restarts at the oldest, also if new pages enter.
                while hand != _AT_TAIL and ring[hand & mask] == GONE:
                    hand = hand + 1 if hand + 1 < head else _AT_TAIL
                resident -= 1
            if head - tail > mask:
                moved, head = squeeze(ring, slot, tail, max(hand, tail), head)
                hand = moved if hand != _AT_TAIL else _AT_TAIL
            ring[head & mask] = p
            slot[p] = head & mask
            head += 1
            resident += 1
            state[p] = admitted(kind)
    return state
