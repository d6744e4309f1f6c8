"""SIEVE: a hand sweeps from old to new and takes the first page unused since it last passed.

Pages stay where they came in; new ones come before the hand's end of the queue (Zhang et al.,
SIEVE is simpler than LRU, NSDI 2024).
"""

from __future__ import annotations

from typing import Any

import numpy as np

from analysis.flushlayer.operations import LOOK, PAST, WRITE
from analysis.flushlayer.policies.accounting import RESIDENT, admitted, drop, evict, finish, hit
from analysis.flushlayer.policies.queue import GONE, ring_size, squeeze
from probes.compiled import compiled

_USED = 4
_AT_TAIL = -1


@compiled
def _next_page(ring: Any, at: int, head: int) -> int:
    # Past the newest page the hand starts again at the oldest, whatever comes in meanwhile.
    mask = len(ring) - 1
    while at < head:
        if ring[at & mask] != GONE:
            return at
        at += 1
    return _AT_TAIL


@compiled
def sieve(
    page: Any, op: Any, unique: int, capacity: int, tally: Any, code: Any, victim: Any
) -> None:
    """Accesses to a buffer of `capacity` pages, at least 1; arrays as accounting.py says."""
    state = np.zeros(unique, np.uint8)
    slot = np.empty(unique, np.int32)
    ring = np.empty(ring_size(capacity), np.int32)
    mask = len(ring) - 1
    tail = head = 0
    hand = _AT_TAIL
    resident = 0
    for i in range(len(page)):
        p = page[i]
        kind = op[i] if len(op) else WRITE
        if state[p] & RESIDENT:
            if kind == PAST:
                drop(p, i, state, tally, code)
                ring[slot[p]] = GONE
                resident -= 1
                if hand != _AT_TAIL:
                    hand = _next_page(ring, hand, head)
            else:
                hit(p, kind, i, state, tally, code)
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
                evict(v, i, state, tally, code, victim)
                ring[hand & mask] = GONE
                hand = _next_page(ring, hand + 1, head)
                resident -= 1
            if head - tail > mask:
                moved, head = squeeze(ring, slot, tail, max(hand, tail), head)
                hand = moved if hand != _AT_TAIL else _AT_TAIL
            ring[head & mask] = p
            slot[p] = head & mask
            head += 1
            resident += 1
            state[p] = admitted(kind)
    finish(state, tally)
