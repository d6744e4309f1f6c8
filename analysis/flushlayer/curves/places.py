"""Places in time, of which some are marked: the last use of each page, and holes.

Places are bits. Marks are counted 512 places at a time in a Fenwick tree that fits the first-level
cache; the tree has the blocks before the block of the next free place. When all places are used,
`renumber` moves the marks to the first places.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from tracer.analysis.flushlayer.policies.bits import bit, ones
from tracer.probes.compiled import compiled

ABSENT = -1
WORD = 6
"""Bits of a place's number within its word."""
BLOCK = 9
"""Bits of a place's number within its block."""


@compiled
def below(place: int, before: Any, bits: Any) -> Any:
    """Returns the number of marks before `place`; `before` is that of `sums`."""
    word = place >> WORD
    low = bit(place) - np.uint64(1)
    return before[word] + ones(bits[word] & low)


@compiled
def sums(bits: Any) -> Any:
    """Returns the number of marks before each word."""
    before = np.empty(len(bits), np.int32)
    total = 0
    for word in range(len(bits)):
        before[word] = total
        total += ones(bits[word])
    return before


@compiled
def renumber(mark: Any, holes: Any, bits: Any, tree: Any, total: int) -> None:
    """Moves the marks, `total` in number, to the first places, in their order.

    `mark`: the place of each page, or ABSENT; `holes`: the place of each hole. Both are changed.
    """
    before = sums(bits)
    for p in range(len(mark)):
        if mark[p] != ABSENT:
            mark[p] = below(mark[p], before, bits)
    for h in range(len(holes)):
        holes[h] = below(holes[h], before, bits)
    bits[:] = 0
    for at in range(total):
        bits[at >> WORD] |= bit(at)
    tree[:] = 0
    for block in range(total >> BLOCK):
        tree[block + 1] = 1 << BLOCK
    for node in range(1, len(tree)):
        parent = node + (node & -node)
        if parent < len(tree):
            tree[parent] += tree[node]
