"""LFU: the page that was used least often leaves first; of several such, the one used longest ago.

Uses are counted while a page is resident and forgotten when it leaves (in-cache LFU). Each count
has a list of its pages, so that every access is O(1) (Shah, Mitra and Matani, An O(1) algorithm for
implementing the LFU cache eviction scheme, 2010).
"""

from __future__ import annotations

from typing import Any

import numpy as np

from analysis.flushlayer.operations import LOOK, PAST, WRITE
from analysis.flushlayer.policies.accounting import COPY, DIRTY, EVICTED, RESIDENT, admitted
from probes.compiled import compiled

_NONE = -1


@compiled
def _append(p: int, uses: int, oldest: Any, newest: Any, before: Any, after: Any) -> None:
    last = newest[uses]
    before[p] = last
    after[p] = _NONE
    newest[uses] = p
    if last == _NONE:
        oldest[uses] = p
    else:
        after[last] = p


@compiled
def _take(p: int, uses: int, oldest: Any, newest: Any, before: Any, after: Any) -> None:
    if before[p] == _NONE:
        oldest[uses] = after[p]
    else:
        after[before[p]] = after[p]
    if after[p] == _NONE:
        newest[uses] = before[p]
    else:
        before[after[p]] = before[p]


@compiled
def lfu(page: Any, op: Any, unique: int, capacity: int, tally: Any, found: Any, victim: Any) -> Any:
    """Accesses to a buffer of `capacity` pages, at least 1; arrays as accounting.py says."""
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
    least = 1  # right whenever a page has to leave: a page that was just let in has one use
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
                _take(p, used[p], oldest, newest, before, after)
                resident -= 1
                continue
            state[p] |= admitted(kind)
            if kind == LOOK:
                continue
            uses = used[p]
            _take(p, uses, oldest, newest, before, after)
            if uses == least and oldest[uses] == _NONE:
                least = uses + 1
            used[p] = uses + 1
            _append(p, uses + 1, oldest, newest, before, after)
        elif kind != PAST and kind != LOOK:
            if resident == capacity:
                v = oldest[least]
                tally[EVICTED, state[v] & COPY] += 1
                if told:
                    victim[i] = v
                    found[i] |= (state[v] & DIRTY) << 1
                state[v] = 0
                _take(v, least, oldest, newest, before, after)
                resident -= 1
            state[p] = admitted(kind)
            least = 1
            used[p] = 1
            _append(p, 1, oldest, newest, before, after)
            resident += 1
    return state
