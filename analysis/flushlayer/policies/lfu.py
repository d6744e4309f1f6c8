"""LFU: evicts the page with the fewest uses; of several, the least recently used.

Uses are counted while a page is resident and forgotten when it leaves (in-cache LFU). Each count
has a list of its pages, so that every access is O(1) (Shah, Mitra and Matani, An O(1) algorithm for
implementing the LFU cache eviction scheme, 2010).
"""

from __future__ import annotations

from typing import Any

import numpy as np

from tracer.analysis.flushlayer.policies.accounting import COPY, DIRTY, EVICTED, admitted
from tracer.analysis.flushlayer.policies.operations import LOOK, PAST, WRITE
from tracer.probes.compiled import compiled

_NONE = -1


@compiled
def lfu(page: Any, op: Any, unique: int, capacity: int, tally: Any, found: Any, victim: Any) -> Any:
    """Runs accesses through a buffer of at least 1 page; accounting.py describes the arrays."""
    mixed, told = len(op) > 0, len(found) > 0
    state = np.zeros(unique, np.uint8)
    used = np.zeros(unique, np.int32)
    for i in range(len(page)):
        used[page[i]] += 1
    most = 0
    for p in range(unique):
        most = max(most, used[p])
    oldest = np.full(most + 1, _NONE, np.int32)
    newest = np.full(most + 1, _NONE, np.int32)
    before = np.empty(unique, np.int32)
    after = np.empty(unique, np.int32)
    least = 1  # exact whenever a page is evicted: a page that just entered has one use
    resident = 0
    for i in range(len(page)):
        p = page[i]
        kind = op[i] if mixed else WRITE
        copy = state[p] & COPY
        tally[kind, copy] += 1
        if told:
            found[i] = copy
        if kind == LOOK or (kind == PAST and not copy):
            continue
        v = _NONE  # the page that is taken out of its list
        if copy:
            v = p
        elif resident == capacity:
            v = oldest[least]
            tally[EVICTED, state[v] & COPY] += 1
            if told:
                victim[i] = v
                found[i] |= (state[v] & DIRTY) << 1
            state[v] = 0
            resident -= 1
        if v != _NONE:
            older, newer = before[v], after[v]
            if older == _NONE:
                oldest[used[v]] = newer
            else:
                after[older] = newer
            if newer == _NONE:
                newest[used[v]] = older
            else:
                before[newer] = older
        if kind == PAST:
            state[p] = 0
            resident -= 1
            continue
        if copy:
            if used[p] == least and oldest[least] == _NONE:
                least += 1
            used[p] += 1
        else:
            least = 1
            used[p] = 1
            resident += 1
        state[p] |= admitted(kind)
        last = newest[used[p]]
        before[p] = last
        after[p] = _NONE
        newest[used[p]] = p
        if last == _NONE:
            oldest[used[p]] = p
        else:
            after[last] = p
    return state
