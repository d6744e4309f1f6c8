"""The pages that a layer holds, in order of use, and its dirty pages: compiled lists."""

from __future__ import annotations

from typing import Any

from tracer.analysis.flushlayer.timed.queueing import submit
from tracer.analysis.flushlayer.timed.state import (
    BACKGROUND,
    EVICTED,
    RENEWS_ALL,
    RENEWS_COMMITTED,
    WRITE,
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
def _unlink(slot: Any, page: int) -> None:
    """Takes a page out of the list of its layer."""
    newer, older = slot[page].newer, slot[page].older
    slot[newer].older = older
    slot[older].newer = newer


@compiled_lean
def _append(slot: Any, head: int, page: int) -> None:
    """Makes a page the newest of the list with this head.

    The list is a ring: the head's `older` is the newest page, its `newer` the oldest.
    """
    newest = slot[head].older
    slot[page].older = newest
    slot[page].newer = head
    slot[newest].newer = page
    slot[head].older = page


@compiled_lean
def _unlink_dirty(slot: Any, page: int) -> None:
    newer, older = slot[page].dirty_newer, slot[page].dirty_older
    slot[newer].dirty_older = older
    slot[older].dirty_newer = newer


@compiled_lean
def _append_dirty(slot: Any, head: int, page: int) -> None:
    newest = slot[head].dirty_older
    slot[page].dirty_older = newest
    slot[page].dirty_newer = head
    slot[newest].dirty_newer = page
    slot[head].dirty_older = page


@compiled_lean
def touch(w: Any, page: int) -> None:
    """Makes a resident page the most recently used."""
    _unlink(w.slot, page)
    _append(w.slot, first_head(w) + w.slot[page].home, page)


@compiled_lean
def enter(w: Any, layer: int, page: int) -> None:
    """Gives a page a slot of a layer, as a clean page."""
    slot = w.slot
    slot[page].home = layer
    _append(w.slot, first_head(w) + layer, page)
    w.layer[layer].used += 1


@compiled_lean
def leave(w: Any, page: int) -> None:
    """Frees the slot of a page; a destage in flight continues."""
    slot = w.slot
    layer = slot[page].home
    if slot[page].dirty:
        clean(w, page)
    _unlink(w.slot, page)
    slot[page].home = -1
    slot[page].flight = -1
    w.layer[layer].used -= 1


@compiled_lean
def least_recent(w: Any, layer: int) -> int:
    """Returns the least recently used page of a layer; the layer must not be empty."""
    return int(w.slot[first_head(w) + layer].newer)


@compiled_lean
def clean(w: Any, page: int) -> None:
    """Marks a dirty page clean."""
    slot = w.slot
    _unlink_dirty(w.slot, page)
    slot[page].dirty = 0
    w.layer[slot[page].home].dirties -= 1


@compiled_lean
def _renews(w: Any, layer: int, page: int) -> bool:
    """Returns whether a dirty page that is written again becomes the newest."""
    renews = w.rule[0].renews
    if renews == RENEWS_COMMITTED:
        is_committed = w.slot[page].number < w.layer[layer].committed
        return bool(not w.rule[0].commit_pages or is_committed)
    return bool(renews == RENEWS_ALL)


@compiled_lean
def write_page(w: Any, page: int, disk: int, base: int, sector: int, sectors: int) -> int:
    """Writes `sectors` sectors of a resident page: the page becomes the newest dirty page.

    `base`: the sector at which the page begins on its disk. By some destage policies, a dirty page
    that is written again keeps its place (`_renews`). The dirty part of a page is one range: the
    disk writes its first to its last dirty sector. Returns 1 if the page was dirty before, which
    saves a disk write, else 0.
    """
    slot, layers = w.slot, w.layer
    layer = slot[page].home
    saved = slot[page].dirty
    end = sector + sectors
    if saved:
        before = slot[page].place
        layers[layer].overwritten += 1
        # If a file's page has moved on the disk, its old place is not written.
        if slot[page].disk == disk and slot[page].base == base:
            end = max(end, before + slot[page].span)
            sector = min(sector, before)
            if not _renews(w, layer, page):
                slot[page].place = sector
                slot[page].span = end - sector
                layers[layer].writes += 1
                return 1
        clean(w, page)
    else:
        slot[page].taken = layers[layer].taken
        layers[layer].taken += 1
    slot[page].dirty = 1
    slot[page].disk = disk
    slot[page].base = base
    slot[page].place = sector
    slot[page].span = end - sector
    slot[page].written = w.clock[0].now
    slot[page].number = layers[layer].writes
    layers[layer].writes += 1
    layers[layer].dirties += 1
    layers[layer].peak = max(layers[layer].peak, layers[layer].dirties)
    _append_dirty(w.slot, dirty_head(w, layer, disk), page)
    return int(saved)


@compiled_lean
def evict(w: Any, page: int, bio: int) -> int:
    """Evicts a page. Returns 1 if the bio has to wait until the page is on the disk, else 0."""
    slot, part = w.slot, w.part
    layer = slot[page].home
    if slot[page].dirty:
        w.layer[layer].destaged += 1
        leave(w, page)
        submit(w, slot[page].disk, WRITE, slot[page].place, slot[page].span, 0, EVICTED, bio)
        return 1
    flight = slot[page].flight
    leave(w, page)
    if flight < 0:
        return 0
    part[flight].kind = EVICTED
    part[flight].owner = bio
    w.layer[layer].flying -= 1
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
        page = w.slot[head].dirty_newer
        if page != head and (best < 0 or slot[page].number < slot[best].number):
            best = page
    return int(best)


@compiled_lean
def send(w: Any, page: int) -> None:
    """Destages a dirty page to its disk; the page stays in the layer, clean."""
    slot = w.slot
    layer = slot[page].home
    clean(w, page)
    w.layer[layer].destaged += 1
    w.layer[layer].flying += 1
    place, span = slot[page].place, slot[page].span
    row = submit(w, slot[page].disk, WRITE, place, span, 0, BACKGROUND, page)
    w.part[row].layer = layer
    slot[page].flight = row
