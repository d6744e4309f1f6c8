"""S3-FIFO: a small FIFO queue filters out pages used once, a main queue keeps the others.

The small queue has a tenth of the capacity. A page used twice in it moves to the main queue. Other
pages are evicted and remembered for a while as ghosts; the next miss of a ghost enters the main
queue at once. The main queue gives a page another round for each use, up to three (Yang et al.,
FIFO queues are all you need for cache eviction, SOSP 2023). Before the first eviction, pages that
do not fit in the small queue enter the main queue, as in the authors' libCacheSim since 2024.
libCacheSim admits no page below a capacity of 20, where its small queue has less than two pages;
here the small queue has at least one.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from tracer.analysis.flushlayer.policies.accounting import COPY, DIRTY, EVICTED, RESIDENT, admitted
from tracer.analysis.flushlayer.policies.operations import LOOK, PAST, WRITE
from tracer.analysis.flushlayer.policies.queue import GONE, ring_size, squeeze
from tracer.probes.compiled import compiled

SMALL, REMEMBERED = 0.1, 0.9
"""Shares of the capacity: the small queue, and the ghosts."""
ENOUGH, MOST_USES = 2, 3
"""Uses in the small queue with which a page moves to the main one, and the most that count."""

_SMALL, _MAIN = 4, 8  # in the small queue or a ghost; in the main queue
_ONE_USE = 16
_USES = MOST_USES * _ONE_USE  # a mask of two bits


@compiled
def s3_fifo(
    page: Any, op: Any, unique: int, capacity: int, tally: Any, found: Any, victim: Any
) -> Any:
    """Runs accesses through a buffer of at least 1 page; accounting.py describes the arrays."""
    most_small = max(1, int(capacity * SMALL))
    most_main = capacity - most_small
    most_remembered = int(capacity * REMEMBERED)
    mixed, told = len(op) > 0, len(found) > 0
    state = np.zeros(unique, np.uint8)
    slot = np.empty(unique, np.int32)
    # Pages become ghosts in order, so the ghosts and the small queue are one ring: ghosts from tail
    # to middle.
    small = np.empty(ring_size(capacity + most_remembered + 1), np.int32)
    main = np.empty(ring_size(capacity + 1), np.int32)
    small_mask, main_mask = len(small) - 1, len(main) - 1
    tail = middle = small_head = 0
    main_tail = main_head = 0
    in_small = remembered = in_main = 0
    filling = True
    for i in range(len(page)):
        p = page[i]
        kind = op[i] if mixed else WRITE
        tally[kind, state[p] & COPY] += 1
        if told:
            found[i] = state[p] & COPY
        was = state[p]
        if was & RESIDENT:
            if kind == PAST:
                if was & _SMALL:
                    small[slot[p]] = GONE
                    in_small -= 1
                else:
                    main[slot[p]] = GONE
                    in_main -= 1
                state[p] = 0
            else:
                state[p] |= admitted(kind)
                if kind != LOOK and was & _USES != _USES:
                    state[p] += _ONE_USE
            continue
        if kind in (PAST, LOOK):
            continue
        if was:
            small[slot[p]] = GONE
            remembered -= 1
        while in_small + in_main == capacity:
            filling = False
            if in_main > most_main or in_small == 0:
                v = main[main_tail & main_mask]
                main_tail += 1
                if v == GONE:
                    continue
                if state[v] & _USES:
                    state[v] -= _ONE_USE
                    main[main_head & main_mask] = v
                    slot[v] = main_head & main_mask
                    main_head += 1
                else:
                    tally[EVICTED, state[v] & COPY] += 1
                    if told:
                        victim[i] = v
                        found[i] |= (state[v] & DIRTY) << 1
                    state[v] = 0
                    in_main -= 1
                continue
            while in_small:  # until one page is evicted, or all have moved to the main queue
                v = small[middle & small_mask]
                middle += 1
                if v == GONE:
                    continue
                in_small -= 1
                if state[v] & _USES >= ENOUGH * _ONE_USE:
                    small[(middle - 1) & small_mask] = GONE
                    state[v] = state[v] & ~(_USES | _SMALL) | _MAIN
                    if main_head - main_tail > main_mask:
                        _, main_head = squeeze(main, slot, main_tail, main_tail, main_head)
                    main[main_head & main_mask] = v
                    slot[v] = main_head & main_mask
                    main_head += 1
                    in_main += 1
                    continue
                tally[EVICTED, state[v] & COPY] += 1
                if told:
                    victim[i] = v
                    found[i] |= (state[v] & DIRTY) << 1
                state[v] = _SMALL
                remembered += 1
                if remembered > most_remembered:
                    while small[tail & small_mask] == GONE:
                        tail += 1
                    state[small[tail & small_mask]] = 0
                    tail += 1
                    remembered -= 1
                break
        if was or (filling and in_small >= most_small):
            state[p] = admitted(kind) | _MAIN
            if main_head - main_tail > main_mask:
                _, main_head = squeeze(main, slot, main_tail, main_tail, main_head)
            main[main_head & main_mask] = p
            slot[p] = main_head & main_mask
            main_head += 1
            in_main += 1
        else:
            state[p] = admitted(kind) | _SMALL
            if small_head - tail > small_mask:
                middle, small_head = squeeze(small, slot, tail, middle, small_head)
            small[small_head & small_mask] = p
            slot[p] = small_head & small_mask
            small_head += 1
            in_small += 1
    return state
