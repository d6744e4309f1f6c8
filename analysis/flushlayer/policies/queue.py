"""A queue of pages in a ring, from which any page can be taken out.

`ring[at & mask]` is the page at place `at`, or GONE; places only grow, from `tail` (oldest) to
`head` (the next free). `slot[page]` is where in the ring a page is. Taking a page out of the middle
leaves GONE; when the ring is full of those, `squeeze` closes the gaps. Pages moved to the head on
every hit make it an LRU list whose hits touch two cache lines, where a linked list touches four.
"""

from __future__ import annotations

from typing import Any

from probes.compiled import compiled

GONE = -1


@compiled
def ring_size(pages: int) -> int:
    """A power of two with room for twice that many pages: a squeeze frees at least half of it."""
    size = 64
    while size < 2 * pages:
        size *= 2
    return size


@compiled
def squeeze(ring: Any, slot: Any, tail: int, middle: int, head: int) -> Any:
    """Close the gaps towards the tail. Returns where the places `middle` and `head` came to lie."""
    mask = len(ring) - 1
    free = tail
    moved = tail
    for at in range(tail, head):
        if at == middle:
            moved = free
        p = ring[at & mask]
        if p != GONE:
            ring[free & mask] = p
            slot[p] = free & mask
            free += 1
    if middle >= head:
        moved = free
    return moved, free
