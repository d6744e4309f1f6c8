"""Pairing: finds the dirtying of each written page.

A dirtying event names the first page of a folio, whichever part of the folio was dirtied. A bio
has a number of pages and a place on the disk, but no place in the file. Both name the inode, and a
write-out goes through a file from its beginning to its end (mm/page-writeback.c writeback_iter(),
fs/ext4/inode.c mpage_prepare_extent_to_map()). The place of a bio's page in the file is the one
that the file system reported (probe `extents`). If it reported none, the bio's first page has the
place that its block had in the file before, or else it is the first page of the lowest folio that
waits to be written. The bio's next pages follow in the file as far as the folio can reach, then
continue in the next waiting folio. The number of pages is a fact; their folio is inferred if the
file has more than one.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from probes.compiled import compiled

DIRTIED, WRITTEN, VISITED, FREED = 0, 1, 2, 3
"""Kinds of an inode's events: a folio is dirtied, a bio writes its pages, the flusher completes a
write-out, the inode ends."""

SEEN, EARLIER, UNWRITTEN, DROPPED = 0, 1, 2, 3
"""Kinds of pieces. SEEN: dirtied and written. EARLIER: written, but no dirtying was recorded.
UNWRITTEN: dirtied and not written until the end. DROPPED: dirtied, and no longer dirty although it
was not written."""
HOW = ("seen", "earlier", "unwritten", "dropped")

LARGEST_FOLIO = 512
"""Most pages of a folio: MAX_PAGECACHE_ORDER of include/linux/pagemap.h is the order of a huge
page, 2 MiB on x86."""
READ_AHEAD = 32
"""Pages of the folios of a default read-ahead: VM_READAHEAD_PAGES of include/linux/mm.h."""
NOWHERE = 1 << 52
"""First index of blocks whose place in the file is not known: index = NOWHERE + block."""
NEVER = -(1 << 62)
SAME_WRITE_OUT_NS = 1_000_000_000
"""Longest time between two bios of one write-out that are consecutive on the disk."""

_COLUMNS = 8
TS, INODE, INDEX, PAGES, WHO, BLOCK, UNTIL, KIND = range(_COLUMNS)
"""Columns of pieces: time of the dirtying, inode, first page in the file, pages, dirtier, dense
number of the first block (-1: none), time at which it was written or dropped, and kind."""


def folio_room(index: NDArray[np.int64]) -> NDArray[np.int64]:
    """Returns the most pages that a folio at each index can have.

    A folio lies at a multiple of its size (mm/filemap.c __filemap_add_folio()), a power of 2, and
    is no larger than LARGEST_FOLIO.
    """
    aligned = np.where(index == 0, LARGEST_FOLIO, index & -index)
    return np.minimum(aligned, LARGEST_FOLIO).astype(np.int64)


def pair(
    events: dict[str, NDArray[Any]],
    first_folio: NDArray[np.int64],
    folio_index: NDArray[np.int64],
    room: NDArray[np.int64],
    block_page: NDArray[np.int64],
    device_page: NDArray[np.int64],
    told: NDArray[np.int64],
    start_ns: int,
    end_ns: int,
) -> NDArray[np.int64]:
    """Returns pieces of consecutive pages that were dirtied at one time, as rows of the columns
    TS .. KIND.

    `events`, sorted by inode and time, has the columns inode, kind, ts, x (the folio's number for
    DIRTIED, the first block for WRITTEN), pages, who, started (start of the write-out), since
    (time at which the inode became dirty, NEVER: not known), first (the bio's first entry in
    `told`). Inode i has the folios first_folio[i] to first_folio[i + 1]. `block_page` is the page
    on the disk of each dense block. An inode with a `device_page` is the disk itself from that
    page on (-1: the inode is a file). `told` is the reported index in the file of each page of
    each bio; -1: not reported. Every page of every bio is in exactly one piece.
    """
    pieces = _pair(
        events["inode"], events["kind"], events["ts"], events["x"], events["pages"], events["who"],
        events["started"], events["since"], first_folio, folio_index, room, block_page,
        device_page, events["first"], told, start_ns,
        end_ns,
    )  # fmt: skip
    return np.asarray(pieces)


@compiled
def _add(out: Any, n: int, ts: int, inode: int, index: int, pages: int, who: int, block: int,
         until: int, kind: int) -> Any:  # fmt: skip
    if n == len(out):
        more = np.empty((2 * n + 16, out.shape[1]), np.int64)
        more[:n] = out
        out = more
    out[n, TS] = ts
    out[n, INODE] = inode
    out[n, INDEX] = index
    out[n, PAGES] = pages
    out[n, WHO] = who
    out[n, BLOCK] = block
    out[n, UNTIL] = until
    out[n, KIND] = kind
    return out


@compiled
def _covering(folio_index: Any, room: Any, waits: Any, low: int, high: int, index: int,
              current: int) -> Any:  # fmt: skip
    """Returns the waiting or current folio that can contain a page of the file; -1: none.

    Smaller folios from the file's past may lie between.
    """
    s = low + np.searchsorted(folio_index[low:high], index, side="right") - 1
    while s >= low and index - folio_index[s] < LARGEST_FOLIO:
        if index < folio_index[s] + room[s] and (waits[s] != NEVER or s == current):
            return s
        s -= 1
    return -1


@compiled
def _near(folio_index: Any, room: Any, s: int, last: int) -> Any:
    """Returns the distance in pages below which two blocks belong to one folio and were not
    allocated anew."""
    if s + 1 < last:
        return min(room[s], folio_index[s + 1] - folio_index[s])
    return min(room[s], READ_AHEAD)


@compiled
def _typical(size: Any, room: Any, folio_index: Any, s: int, last: int, device: bool) -> Any:
    """Returns the likely pages of a folio that was not written: the number last written, or the
    distance to the next folio, or 1."""
    if device:
        return 1
    if size[s] > 0:
        return size[s]
    if s + 1 < last:
        gap = folio_index[s + 1] - folio_index[s]
        if gap <= room[s] and gap & (gap - 1) == 0:
            return gap
    return 1


@compiled
def _pair(inode: Any, kind: Any, ts: Any, x: Any, pages: Any, who: Any, started: Any, since: Any,
          first_folio: Any, folio_index: Any, room: Any, block_page: Any, device_page: Any,
          first: Any, told: Any, start_ns: int, end_ns: int) -> Any:  # fmt: skip
    folios = len(folio_index)
    out = np.empty((max(16, folios), _COLUMNS), np.int64)
    n = 0
    owner = np.full(len(block_page), -1, np.int32)
    place = np.zeros(len(block_page), np.int64)
    # For each folio that waits to be written: the time and the dirtier of its last dirtying
    # (`waits`, `by`), and of the dirtying before it, if the folio was dirtied again before its bio
    # was recorded (`waited`, `waited_by`).
    waits = np.full(folios, NEVER, np.int64)
    by = np.full(folios, -1, np.int64)
    waited = np.full(folios, NEVER, np.int64)
    waited_by = np.full(folios, -1, np.int64)
    anchor = np.full(folios, -1, np.int64)
    anchored_at = np.zeros(folios, np.int64)
    size = np.zeros(folios, np.int64)
    i = -1
    low = high = lowest = 0
    current, current_ts, current_by = -1, NEVER, -1
    last_index = last_block = -2
    last_ts = last_started = NEVER
    for e in range(len(kind) + 1):
        if e == len(kind) or inode[e] != i:
            for s in range(low, high):
                if waited[s] != NEVER:
                    out = _add(
                        out,
                        n,
                        waited[s],
                        i,
                        folio_index[s],
                        _typical(size, room, folio_index, s, high, device_page[i] >= 0),
                        waited_by[s],
                        -1,
                        waits[s],
                        DROPPED,
                    )
                    n += 1
                if waits[s] != NEVER:
                    out = _add(
                        out,
                        n,
                        waits[s],
                        i,
                        folio_index[s],
                        _typical(size, room, folio_index, s, high, device_page[i] >= 0),
                        by[s],
                        -1,
                        end_ns,
                        UNWRITTEN,
                    )
                    n += 1
            if e == len(kind):
                break
            i = inode[e]
            low, high = first_folio[i], first_folio[i + 1]
            lowest = high
            current, last_index, last_block = -1, -2, -2
            last_ts = last_started = NEVER
        if kind[e] == DIRTIED:
            s = x[e]
            if waits[s] != NEVER:
                if waited[s] != NEVER:
                    out = _add(
                        out,
                        n,
                        waited[s],
                        i,
                        folio_index[s],
                        _typical(size, room, folio_index, s, high, device_page[i] >= 0),
                        waited_by[s],
                        -1,
                        waits[s],
                        DROPPED,
                    )
                    n += 1
                waited[s] = waits[s]
                waited_by[s] = by[s]
            waits[s] = ts[e]
            by[s] = who[e]
            lowest = min(lowest, s)
            continue
        if kind[e] >= VISITED:
            # A folio that waited before the write-out, which did not write it, is no longer dirty.
            for s in range(low, high):
                if waited[s] != NEVER and waited[s] < started[e]:
                    out = _add(
                        out,
                        n,
                        waited[s],
                        i,
                        folio_index[s],
                        _typical(size, room, folio_index, s, high, device_page[i] >= 0),
                        waited_by[s],
                        -1,
                        min(started[e], waits[s]),
                        DROPPED,
                    )
                    n += 1
                    waited[s] = NEVER
                if waits[s] != NEVER and waits[s] < started[e]:
                    out = _add(
                        out,
                        n,
                        waits[s],
                        i,
                        folio_index[s],
                        _typical(size, room, folio_index, s, high, device_page[i] >= 0),
                        by[s],
                        -1,
                        started[e],
                        DROPPED,
                    )
                    n += 1
                    waits[s] = NEVER
            current = -1
            continue
        goes_on = (
            x[e] == last_block + 1
            and (started[e] == last_started or started[e] == ts[e])
            and ts[e] - last_ts < SAME_WRITE_OUT_NS
        )
        if not goes_on and started[e] != last_started:
            current = -1
        piece = -1
        for j in range(pages[e]):
            block = x[e] + j
            target, index = -1, -1
            if device_page[i] >= 0:
                owner[block] = i
                place[block] = block_page[block] - device_page[i]
            elif told[first[e] + j] >= 0:
                owner[block] = i
                place[block] = told[first[e] + j]
            if owner[block] == i:
                s = _covering(folio_index, room, waits, low, high, place[block], current)
                if s >= 0:
                    target, index = s, place[block]
                if target < 0 and (device_page[i] >= 0 or told[first[e] + j] >= 0):
                    index = place[block]
            if index < 0 and (goes_on or j > 0):
                following = last_index + 1
                s = _covering(folio_index, room, waits, low, high, following, current)
                if s >= 0:
                    target, index = s, following
            if index < 0:
                s = lowest
                if current >= 0 and (goes_on or j > 0):
                    s = current + 1
                while s < high and (waits[s] == NEVER or waits[s] > ts[e]):
                    s += 1
                if s < high:
                    target, index = s, folio_index[s]
                    near = _near(folio_index, room, s, high)
                    if anchor[s] >= 0 and abs(block - anchor[s]) < near:
                        index += (block - anchor[s] + anchored_at[s]) % near
            if index < 0:
                if owner[block] == i:
                    index = place[block]
                elif (goes_on or j > 0) and last_index >= NOWHERE:
                    index = NOWHERE + block
                elif goes_on or j > 0:
                    index = last_index + 1
                else:
                    index = NOWHERE + block
            if target < 0:
                current = -1
                first_known = since[e] if since[e] != NEVER and since[e] <= ts[e] else start_ns
                current_ts, current_by = min(first_known, ts[e]), -1
            elif target != current:
                current = target
                if waited[target] != NEVER and waits[target] >= started[e]:
                    current_ts, current_by = waited[target], waited_by[target]
                else:
                    if waited[target] != NEVER:
                        out = _add(
                            out,
                            n,
                            waited[target],
                            i,
                            folio_index[target],
                            _typical(size, room, folio_index, target, high, device_page[i] >= 0),
                            waited_by[target],
                            -1,
                            waits[target],
                            DROPPED,
                        )
                        n += 1
                        piece = -1
                    current_ts, current_by = waits[target], by[target]
                    waits[target] = NEVER
                waited[target] = NEVER
                size[target] = 0
                while lowest < high and waits[lowest] == NEVER:
                    lowest += 1
            if target >= 0:
                size[target] += 1
                near = _near(folio_index, room, target, high)
                if anchor[target] < 0 or abs(block - anchor[target]) >= near:
                    anchor[target] = block
                    anchored_at[target] = index - folio_index[target]
            known = SEEN if target >= 0 else EARLIER
            if (
                piece >= 0
                and out[piece, TS] == current_ts
                and out[piece, KIND] == known
                and out[piece, INDEX] + out[piece, PAGES] == index
                and out[piece, WHO] == current_by
            ):
                out[piece, PAGES] += 1
            else:
                piece = n
                out = _add(out, n, current_ts, i, index, 1, current_by, block, ts[e], known)
                n += 1
            owner[block] = i
            place[block] = index
            last_index, last_block = index, block
        last_ts, last_started = ts[e], started[e]
    return out[:n].copy()
