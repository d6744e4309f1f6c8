"""Page write-backs and an LRU layer, worked out naively: lists of pages, walked one by one.

It is written from docs/what-if.md and the docstrings of the models, not from their code.
"""

from __future__ import annotations

from typing import Any

SECTOR, PAGE = 512, 4096


def pages_of(block: list[dict[str, Any]]) -> list[tuple[str, int]]:
    """Device and page of each page write-back; events of one time stay in the order of rows.

    A bio of n pages is n accesses, in ascending order; a page is one that the bio lies on.
    """
    pages = []
    for event in sorted(block, key=lambda event: event["ts"]):
        if event["event"] != "bio_queue" or not event["nr_sector"]:
            continue
        if event["rwbs"].removeprefix("F")[:1] != "W":
            continue
        first = event["sector"] * SECTOR // PAGE
        last = ((event["sector"] + event["nr_sector"]) * SECTOR - 1) // PAGE
        pages += [(event["dev"], page) for page in range(first, last + 1)]
    return pages


def lru(pages: list[Any], capacity: int) -> tuple[int, int]:
    """Pages that reach the disk while the stream lasts, and those left in the layer at the end."""
    if capacity == 0:
        return len(pages), 0
    layer: list[Any] = []  # the page used longest ago first
    destaged = 0
    for page in pages:
        if page in layer:
            layer.remove(page)
        elif len(layer) == capacity:
            del layer[0]
            destaged += 1
        layer.append(page)
    return destaged, len(layer)


def improvement(
    writes: int, into_layer: int, disk_writes: int, medium_ns: float, disk_ns: float
) -> float | None:
    """I = 1 - t_with / t_without (Park & Bahn 2023, section 5); None without writes."""
    if writes == 0:
        return None
    return 1 - (into_layer * medium_ns + disk_writes * disk_ns) / (writes * disk_ns)
