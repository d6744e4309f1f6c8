"""A queue of pages in a ring, from which any page can be removed.

`ring[at & mask]` is the page at place `at`, or GONE; places only grow, from `tail` (oldest) to
`head` (the next free). `slot[page]` is the place of a page in the ring. A page removed from the
middle leaves GONE; when the ring is full, `squeeze` closes these gaps. If every hit moves its page
to the head, the queue is an LRU list; a hit touches two cache lines, in a linked list four.
"""

from __future__ import annotations

from typing import Any

from tracer.probes.compiled import compiled

GONE = -1


@compiled
def ring_size(pages: int) -> int:
    """Returns a power of two of at least twice `pages`, so that a squeeze frees half of the ring
    or more."""
    size = 64
    while size < 2 * pages:
        size *= 2
    return size


@compiled
def squeeze(ring: Any, slot: Any, tail: int, middle: int, head: int) -> Any:
    """Closes the gaps towards the tail. Returns the new places of `middle` and `head`."""
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
