"""Misses of plain LRU at every capacity, in one pass.

An LRU cache of c pages holds the top c pages of one stack, so an access to the page at depth s hits
if c >= s (Mattson et al., Evaluation techniques for storage hierarchies, IBM Systems Journal 1970).
Depths are counted over places in time (places.py).

Pages that were last used one directly after the other, and are used so again, lie at the same
depth, because each moves to the top before the next is looked for. A pass takes time by such
stretches, not by pages: a whole file that is read again costs little more than one page.

A page that is removed leaves a hole in the stack: each cache that had the page has room for one
more. A new page fills the topmost hole. A page from below that hole fills it, too, and leaves a
hole where it was: caches that had the page as well as the hole still have the room. While there
are holes, a pass takes time by pages.

Each tenant has a cache of its own. There is no read-ahead. A page that two tenants read is in both
caches.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from tracer.analysis.flushlayer.curves.places import ABSENT, BLOCK, WORD, renumber
from tracer.analysis.flushlayer.policies.bits import ones
from tracer.analysis.heaps import pop, push
from tracer.analysis.memory.page_runs import REMOVE, WRITE, PageRuns
from tracer.probes.compiled import compiled
from tracer.probes.errors import UsageError


@dataclass(frozen=True)
class Misses:
    """Pages by group."""

    accessed: NDArray[np.int64]
    """Pages read or faulted in (int64[group])."""
    cold: NDArray[np.int64]
    """Those among them that their tenant had never accessed before, or not since they were removed:
    missed at any capacity."""
    missed: NDArray[np.int64]
    """Pages missed, cold ones included (int64[group, capacity])."""


def lru_misses(runs: PageRuns, capacities: ArrayLike) -> Misses:
    """Returns the misses of LRU caches of `capacities` pages.

    `capacities`: int[capacity], the same for all tenants, or int[tenant, capacity]; 0 holds
    nothing. The pass takes about 5 bytes for each page of the files. Raises UsageError for a
    capacity below 0.
    """
    wanted = by_tenant(runs, capacities)
    count = wanted.shape[1]
    missed = np.zeros((runs.groups, count), np.int64)
    cold = np.zeros(runs.groups, np.int64)
    for own, capacity in zip(runs.of_tenants, wanted, strict=True):
        order = np.argsort(capacity, kind="stable")
        found = np.zeros((len(own.groups), count + 1), np.int64)
        new = np.zeros(len(own.groups), np.int64)
        removed = own.all_pages if np.any(own.kind == REMOVE) else 0
        places = 1 << max(16, (4 * own.all_pages - 1).bit_length())
        _pass(
            *(own.first, own.pages, own.kind, own.group),
            *(own.all_pages, removed, places),
            *(capacity[order], found, new),
        )
        # Element j of `found` missed in the first j capacities.
        deeper = found[:, ::-1].cumsum(axis=1)[:, ::-1][:, 1:]
        missed[own.groups[:, None], order] += deeper + new[:, None]
        cold[own.groups] += new
    return Misses(runs.accessed(), cold, missed)


def by_tenant(runs: PageRuns, capacities: ArrayLike) -> NDArray[np.int64]:
    """Returns `capacities` as int64[tenant, capacity]; raises UsageError unless they can be."""
    wanted = np.asarray(capacities, np.int64)
    if wanted.ndim == 1:
        wanted = np.broadcast_to(wanted, (runs.tenants, len(wanted)))
    if wanted.ndim != 2 or len(wanted) != runs.tenants:
        raise UsageError(
            f"capacities of shape {wanted.shape} do not fit {runs.tenants} tenants",
            "give one list of capacities, or one for each tenant",
        )
    if wanted.size and wanted.min() < 0:
        raise UsageError(f"a capacity of {wanted.min()} pages cannot be", "give 0 or more")
    return wanted


@compiled
def _mask(low: int, high: int) -> Any:
    # Returns a word with the bits low .. high-1 set; 0 <= low < high <= 64.
    return (~np.uint64(0) >> np.uint64(64 - (high - low))) << np.uint64(low)


@compiled
def _toggle(bits: Any, low: int, high: int) -> None:
    # Toggles the marks of the places low .. high-1.
    first, last = low >> WORD, (high - 1) >> WORD
    if first == last:
        bits[first] ^= _mask(low & 63, ((high - 1) & 63) + 1)
        return
    bits[first] ^= _mask(low & 63, 64)
    for word in range(first + 1, last):
        bits[word] = ~bits[word]
    bits[last] ^= _mask(0, ((high - 1) & 63) + 1)


@compiled
def _add(tree: Any, block: int, marks: int) -> None:
    node = block + 1
    while node < len(tree):
        tree[node] += marks
        node += node & -node


@compiled
def _unmark(bits: Any, tree: Any, low: int, high: int, now_block: int) -> None:
    # Removes the marks of the places low .. high-1, which lie in at most two blocks.
    _toggle(bits, low, high)
    block, last = low >> BLOCK, (high - 1) >> BLOCK
    middle = high if block == last else last << BLOCK
    if block < now_block:
        _add(tree, block, low - middle)
    if block != last and last < now_block:
        _add(tree, last, middle - high)


@compiled
def _depth(bits: Any, tree: Any, place: int, total: int) -> int:
    # Returns the number of marks at `place` or later.
    node = place >> BLOCK
    word = place >> WORD
    depth = total
    for before in range(node << (BLOCK - WORD), word):
        depth -= ones(bits[before])
    if place & 63:
        depth -= ones(bits[word] & _mask(0, place & 63))
    while node > 0:
        depth -= tree[node]
        node &= node - 1
    return depth


@compiled
def _smaller(ascending: Any, depth: int) -> int:
    # Returns the number of capacities that are smaller than `depth`.
    low, high = 0, len(ascending)
    while low < high:
        middle = (low + high) >> 1
        if ascending[middle] < depth:
            low = middle + 1
        else:
            high = middle
    return low


@compiled
def _pass(
    first: Any,
    pages: Any,
    kinds: Any,
    groups: Any,
    all_pages: int,
    most_holes: int,
    places: int,
    ascending: Any,
    found: Any,
    new: Any,
) -> None:
    # Adds the pages that were found to found[group, capacities too small for their depth], the
    # others to new[group]; writes are in neither.
    mark = np.full(all_pages, ABSENT, np.int32)
    bits = np.zeros(places >> WORD, np.uint64)
    # Marks of whole blocks before the block of `now`, which is added when it is full.
    tree = np.zeros((places >> BLOCK) + 1, np.int32)
    holes = np.empty(most_holes, np.int32)  # a heap, the topmost first
    n_holes = 0
    block_size = 1 << BLOCK
    now = 0
    total = 0
    for i in range(len(first)):
        p = first[i]
        end = p + pages[i]
        if kinds[i] == REMOVE:
            for q in range(p, end):
                if mark[q] != ABSENT:
                    push(holes, n_holes, mark[q])
                    n_holes += 1
                    mark[q] = ABSENT
            continue
        counts = kinds[i] != WRITE
        group = groups[i]
        while p < end:
            most = 1 if n_holes else min(end - p, block_size - (now & (block_size - 1)))
            m = mark[p]
            length = 1
            if m == ABSENT:
                while length < most and mark[p + length] == ABSENT:
                    length += 1
                if n_holes:
                    _unmark(bits, tree, holes[0], holes[0] + 1, now >> BLOCK)
                    pop(holes, n_holes)
                    n_holes -= 1
                else:
                    total += length
                if counts:
                    new[group] += length
            else:
                while length < most and mark[p + length] == m + length:
                    length += 1
                if counts:
                    depth = _depth(bits, tree, m, total)
                    found[group, _smaller(ascending, depth)] += length
                gone = m
                if n_holes and holes[0] > m:
                    gone = holes[0]
                    pop(holes, n_holes)
                    push(holes, n_holes - 1, m)
                _unmark(bits, tree, gone, gone + length, now >> BLOCK)
            _toggle(bits, now, now + length)
            for k in range(length):
                mark[p + k] = now + k
            p += length
            now += length
            if now == places:
                renumber(mark, holes[:n_holes], bits, tree, total)
                now = total
            elif now & (block_size - 1) == 0:
                block = (now >> BLOCK) - 1
                marks = 0
                for word in range(block << (BLOCK - WORD), now >> WORD):
                    marks += ones(bits[word])
                _add(tree, block, marks)
