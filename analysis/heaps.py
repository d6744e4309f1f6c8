"""Heaps of numbers in an array, with the largest number first, for compiled loops.

Numba compiles heapq for lists only.
"""

from __future__ import annotations

from typing import Any

from tracer.probes.compiled import compiled


@compiled
def push(heap: Any, size: int, key: int) -> None:
    """Adds a number to a heap of `size` numbers. The array must have room."""
    at = size
    while at > 0 and heap[(at - 1) >> 1] < key:
        heap[at] = heap[(at - 1) >> 1]
        at = (at - 1) >> 1
    heap[at] = key


@compiled
def pop(heap: Any, size: int) -> None:
    """Removes the largest of `size` numbers."""
    heap[0] = heap[size - 1]
    sift_down(heap, 0, size - 1)


@compiled
def order(heap: Any, size: int) -> None:
    """Makes a heap of the first `size` numbers of an array."""
    for at in range(size // 2 - 1, -1, -1):
        sift_down(heap, at, size)


@compiled
def sift_down(heap: Any, at: int, size: int) -> None:
    """Moves the number at `at` below the larger ones under it."""
    key = heap[at]
    while True:
        child = 2 * at + 1
        if child >= size:
            break
        if child + 1 < size and heap[child + 1] > heap[child]:
            child += 1
        if heap[child] <= key:
            break
        heap[at] = heap[child]
        at = child
    heap[at] = key
