"""Write-back of an LRU layer at every capacity, in one pass.

For every c, an LRU layer of c pages holds the top c pages of one stack (Mattson et al., Evaluation
techniques for storage hierarchies, IBM Systems Journal 1970): an access to the page at depth s
hits if c >= s. A page is dirty if c is at least its *level*: the deepest place at which it was
found since its last write, because every smaller layer destaged it before (Thompson and Smith,
Efficient (stack) algorithms for analysis of write-back and sector memories, ACM TOCS 1989).
So an access at depth s to a page of level d means one destage for each capacity in d .. s-1.

A write past the layer removes a page from the middle of the stack and leaves a *hole*. The hole is
a free slot in every layer that reaches down to it. The next page that comes from below a hole, or
from outside, fills the topmost hole.

Depths are counted over places in time (places.py): the depth of a page last used at place m is the
number of pages and holes at m or later. The pass takes O(N log U) time and about 5 bytes a page.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tracer.analysis.flushlayer.curves.places import ABSENT, BLOCK, WORD, below, renumber, sums
from tracer.analysis.flushlayer.policies.bits import bit, ones
from tracer.analysis.flushlayer.policies.operations import LOOK, PAST, WRITE
from tracer.analysis.flushlayer.policies.simulation import Operations, Pages, check, seen
from tracer.analysis.heaps import pop, push
from tracer.probes.compiled import compiled


@dataclass(frozen=True)
class LruCounts:
    """Pages at each capacity: element c of an array is for a layer of c pages, c = 0 .. U."""

    destaged: NDArray[np.int64]
    """Dirty pages written to the disk to make room."""
    resident: NDArray[np.int64]
    """Dirty pages left at the end."""
    write_hits: NDArray[np.int64]
    read_hits: NDArray[np.int64]


def lru_counts(page: Pages, unique: int, op: Operations | None = None) -> LruCounts:
    """Returns the counts of `simulate("lru", ...)` at every capacity; same arguments.

    At capacity 0 all counts are 0, because every write goes past the layer.
    """
    check(page, unique, op)
    page, op = seen(page, op)
    counts = np.zeros((4, unique + 2), np.int32)
    places = 1 << max(16, (4 * unique - 1).bit_length())
    asked = np.empty(0, np.uint8) if op is None else op
    _pass(page.view(np.uint32), asked, unique, places, counts)
    if op is None:
        hits = counts[2].cumsum(dtype=np.int64)[:-1]
        resident = np.minimum(np.arange(unique + 1), len(page) - hits[-1])
        destaged = len(page) - hits - resident
        destaged[0] = 0
        return LruCounts(destaged, resident, hits, np.zeros(unique + 1, np.int64))
    sums = counts.cumsum(axis=1, dtype=np.int64)[:, :-1]
    return LruCounts(*sums)


@compiled
def _pass(page: Any, op: Any, unique: int, places: int, counts: Any) -> None:
    # counts[:, c]: change from capacity c-1 to c of destaged, resident, write hits and read hits.
    mixed = len(op) > 0
    clean = unique + 1  # a level that no capacity has
    mark = np.full(unique, ABSENT, np.int32)
    level = np.full(unique if mixed else 0, clean, np.int32)
    holes = np.empty(unique if mixed else 0, np.int32)  # a heap, the topmost first
    n_holes = 0
    bits = np.zeros(places >> WORD, np.uint64)
    # Marks of whole blocks before the block of `now`, which is added when it is full.
    tree = np.zeros((places >> BLOCK) + 1, np.int32)
    now = 0
    total = 0
    for i in range(len(page)):
        p = page[i]
        kind = op[i] if mixed else WRITE
        m = mark[p]
        if m == ABSENT:
            if kind in (PAST, LOOK):
                continue
            if n_holes:
                gone = holes[0]
                pop(holes, n_holes)
                n_holes -= 1
            else:
                gone = ABSENT
                total += 1
            if mixed:
                level[p] = 1 if kind == WRITE else clean
        else:
            depth = total
            node = m >> BLOCK
            for word in range(node << (BLOCK - WORD), m >> WORD):
                depth -= ones(bits[word])
            low = bit(m) - np.uint64(1)
            depth -= ones(bits[m >> WORD] & low)
            while node > 0:
                depth -= tree[node]
                node &= node - 1
            if kind == WRITE:
                counts[2, depth] += 1
            elif kind != PAST:
                counts[3, depth] += 1
            if kind == LOOK:
                continue
            gone = m
            if mixed:
                if level[p] < depth:
                    counts[0, level[p]] += 1
                    counts[0, depth] -= 1
                if kind == PAST:
                    mark[p] = ABSENT
                    push(holes, n_holes, m)
                    n_holes += 1
                    continue
                if kind == WRITE:
                    level[p] = 1
                elif level[p] < depth:
                    level[p] = depth
                if n_holes and holes[0] > m:
                    gone = holes[0]
                    pop(holes, n_holes)
                    push(holes, n_holes - 1, m)
        if gone != ABSENT:
            bits[gone >> WORD] ^= bit(gone)
            node = gone >> BLOCK
            if node < now >> BLOCK:
                node += 1
                while node < len(tree):
                    tree[node] -= 1
                    node += node & -node
        bits[now >> WORD] |= bit(now)
        mark[p] = now
        now += 1
        if now == places:
            renumber(mark, holes[:n_holes], bits, tree, total)
            now = total
        elif now & ((1 << BLOCK) - 1) == 0:
            block = (now >> BLOCK) - 1
            marks = 0
            for word in range(block << (BLOCK - WORD), now >> WORD):
                marks += ones(bits[word])
            node = block + 1
            while node < len(tree):
                tree[node] += marks
                node += node & -node
    if not mixed:
        return
    before = sums(bits)
    for p in range(unique):
        if mark[p] != ABSENT:
            depth = total - below(mark[p], before, bits)
            if level[p] < depth:
                counts[0, level[p]] += 1
                counts[0, depth] -= 1
            if level[p] < clean:
                counts[1, max(level[p], depth)] += 1
