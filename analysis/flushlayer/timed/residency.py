"""The pages that a layer holds, in order of use, and its dirty pages: compiled lists."""

from __future__ import annotations

from typing import Any

from tracer.analysis.flushlayer.timed.queueing import submit
from tracer.analysis.flushlayer.timed.state import (
    BACKGROUND,
    DESTAGED,
    DIRTIES,
    DIRTY,
    DIRTY_NEWER,
    DIRTY_OLDER,
    DISK,
    EVICTED,
    FLIGHT,
    FLYING,
    HOME,
    NEWER,
    NOW,
    NUMBER,
    OLDER,
    OVERWRITTEN,
    P_KIND,
    P_LAYER,
    P_OWNER,
    PEAK,
    PLACE,
    SPAN,
    USED,
    WRITE,
    WRITES,
    WRITTEN,
)
from tracer.probes.compiled import compiled_lean

PAGE_SECTORS = 8


@compiled_lean
def first_head(w: Any) -> int:
    """Returns the row of the first list head: heads of layers, then of each layer's disks."""
    layers = w.layer.shape[0]
    disks = w.line.shape[0] - 1
    return int(w.slot.shape[0] - layers - layers * disks)


@compiled_lean
def dirty_head(w: Any, layer: int, disk: int) -> int:
    """Returns the row of the head of a layer's list of dirty pages of one disk."""
    return int(first_head(w) + w.layer.shape[0] + layer * (w.line.shape[0] - 1) + disk)


@compiled_lean
def _unlink(slot: Any, newer: int, older: int, row: int) -> None:
    slot[slot[row, newer], older] = slot[row, older]
    slot[slot[row, older], newer] = slot[row, newer]


@compiled_lean
def _append(slot: Any, newer: int, older: int, head: int, row: int) -> None:
    # A ring: the head's `older` is the newest page, its `newer` the oldest.
    newest = slot[head, older]
    slot[row, older] = newest
    slot[row, newer] = head
    slot[newest, newer] = row
    slot[head, older] = row


@compiled_lean
def touch(w: Any, page: int) -> None:
    """Makes a resident page the most recently used."""
    _unlink(w.slot, NEWER, OLDER, page)
    _append(w.slot, NEWER, OLDER, first_head(w) + w.slot[page, HOME], page)


@compiled_lean
def enter(w: Any, layer: int, page: int) -> None:
    """Gives a page a slot of a layer, as a clean page."""
    slot = w.slot
    slot[page, HOME] = layer
    _append(slot, NEWER, OLDER, first_head(w) + layer, page)
    w.layer[layer, USED] += 1


@compiled_lean
def leave(w: Any, page: int) -> None:
    """Frees the slot of a page; a destage in flight continues."""
    slot = w.slot
    layer = slot[page, HOME]
    if slot[page, DIRTY]:
        clean(w, page)
    _unlink(slot, NEWER, OLDER, page)
    slot[page, HOME] = -1
    slot[page, FLIGHT] = -1
    w.layer[layer, USED] -= 1


@compiled_lean
def least_recent(w: Any, layer: int) -> int:
    """Returns the least recently used page of a layer; the layer must not be empty."""
    return int(w.slot[first_head(w) + layer, NEWER])


@compiled_lean
def clean(w: Any, page: int) -> None:
    """Marks a dirty page clean."""
    slot = w.slot
    _unlink(slot, DIRTY_NEWER, DIRTY_OLDER, page)
    slot[page, DIRTY] = 0
    w.layer[slot[page, HOME], DIRTIES] -= 1


@compiled_lean
def write_page(w: Any, page: int, disk: int, sector: int, sectors: int) -> int:
    """Writes `sectors` sectors of a resident page: the page becomes the newest dirty page.

    The dirty part of a page is one range: the disk writes its first to its last dirty sector.
    Returns 1 if the page was dirty before, which saves a disk write, else 0.
    """
    slot, layers = w.slot, w.layer
    layer = slot[page, HOME]
    saved = slot[page, DIRTY]
    end = sector + sectors
    if saved:
        before = slot[page, PLACE]
        # If a file's page has moved on the disk, its old place is not written.
        if slot[page, DISK] == disk and before // PAGE_SECTORS == sector // PAGE_SECTORS:
            end = max(end, before + slot[page, SPAN])
            sector = min(sector, before)
        clean(w, page)
        layers[layer, OVERWRITTEN] += 1
    slot[page, DIRTY] = 1
    slot[page, DISK] = disk
    slot[page, PLACE] = sector
    slot[page, SPAN] = end - sector
    slot[page, WRITTEN] = w.clock[NOW]
    slot[page, NUMBER] = layers[layer, WRITES]
    layers[layer, WRITES] += 1
    layers[layer, DIRTIES] += 1
    layers[layer, PEAK] = max(layers[layer, PEAK], layers[layer, DIRTIES])
    _append(slot, DIRTY_NEWER, DIRTY_OLDER, dirty_head(w, layer, disk), page)
    return int(saved)


@compiled_lean
def evict(w: Any, page: int, bio: int) -> int:
    """Evicts a page. Returns 1 if the bio has to wait until the page is on the disk, else 0."""
    slot, part = w.slot, w.part
    layer = slot[page, HOME]
    if slot[page, DIRTY]:
        w.layer[layer, DESTAGED] += 1
        leave(w, page)
        submit(w, slot[page, DISK], WRITE, slot[page, PLACE], slot[page, SPAN], 0, EVICTED, bio)
        return 1
    flight = slot[page, FLIGHT]
    leave(w, page)
    if flight < 0:
        return 0
    part[flight, P_KIND] = EVICTED
    part[flight, P_OWNER] = bio
    w.layer[layer, FLYING] -= 1
    return 1


@compiled_lean
def oldest_dirty(w: Any, layer: int, disk: int) -> int:
    """Returns the least recently written dirty page of a layer, for one disk or (-1) all; or -1."""
    slot = w.slot
    best = -1
    disks = w.line.shape[0] - 1
    for d in range(disks):
        if disk >= 0 and d != disk:
            continue
        head = dirty_head(w, layer, d)
        page = slot[head, DIRTY_NEWER]
        if page != head and (best < 0 or slot[page, NUMBER] < slot[best, NUMBER]):
            best = page
    return int(best)


@compiled_lean
def send(w: Any, page: int) -> None:
    """Destages a dirty page to its disk; the page stays in the layer, clean."""
    slot = w.slot
    layer = slot[page, HOME]
    clean(w, page)
    w.layer[layer, DESTAGED] += 1
    w.layer[layer, FLYING] += 1
    place, span = slot[page, PLACE], slot[page, SPAN]
    row = submit(w, slot[page, DISK], WRITE, place, span, 0, BACKGROUND, page)
    w.part[row, P_LAYER] = layer
    slot[page, FLIGHT] = row
