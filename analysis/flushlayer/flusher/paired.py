"""The state of the pairing (`pairing.py`), its pieces, and what it knows of folios.

Numba's cache of compiled code contains these numbers, but does not notice when they change: after a
change here, also change `pairing.py`.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from tracer.analysis.flushlayer.trace.page_count import MODEL_PAGE
from tracer.probes.compiled import compiled, compiled_lean

SEEN, EARLIER, UNWRITTEN, DROPPED = 0, 1, 2, 3
"""Kinds of pieces. SEEN: dirtied and written. EARLIER: written, but no dirtying was recorded.
UNWRITTEN: dirtied and not written until the end. DROPPED: dirtied, and no longer dirty although it
was not written."""
HOW = ("seen", "earlier", "unwritten", "dropped")

READ_AHEAD = 32
"""Pages of the folios of a default read-ahead, 128 KiB: VM_READAHEAD_PAGES of include/linux/mm.h.
"""
NOWHERE = 1 << 52
"""First index of blocks whose place in the file is not known: index = NOWHERE + block."""
NEVER = -(1 << 62)
SAME_WRITE_OUT_NS = 1_000_000_000
"""Longest time between two bios of one write-out that are consecutive on the disk."""

COLUMNS = 8
TS, INODE, INDEX, PAGES, WHO, BLOCK, UNTIL, KIND = range(COLUMNS)
"""Columns of pieces: time of the dirtying, inode, first page in the file, pages, dirtier, dense
number of the first block (-1: none), time at which it was written or dropped, and kind."""

AT_INODE, LOW, HIGH, LOWEST = range(4)
"""Scalars of `State.at`: the inode, its folios LOW to HIGH, and a folio below which none waits."""
CURRENT, CURRENT_TS, CURRENT_BY = range(4, 7)
"""The folio that is being written (-1: none), and the time and dirtier of its dirtying."""
LAST_INDEX, LAST_BLOCK, LAST_TS, LAST_STARTED = range(7, 11)
"""The last page written: its index and block; its bio's time and the start of the write-out."""
GOES_ON, ROWS, PIECE = range(11, 14)
"""1 if the bio continues the one before; the number of pieces; the piece that can grow, or -1."""
UNIT, LARGEST = range(14, 16)
"""Pages of the smallest folio, which is a page of the kernel, and of the largest one."""
SCALARS = 16


class State(NamedTuple):
    """The arrays of a pairing, for its compiled functions; the first five are its input."""

    folio_index: Any
    room: Any
    block_page: Any
    device_page: Any
    told: Any
    waits: Any
    """Time of the last dirtying of each folio that waits to be written; NEVER: it does not."""
    by: Any
    """The dirtier in `waits`."""
    waited: Any
    """The dirtying before `waits`, if the folio was dirtied again before its bio was recorded."""
    waited_by: Any
    anchor: Any
    """A block of each folio, and its page in the folio; -1: none was written."""
    anchored_at: Any
    size: Any
    """Pages of each folio that its last write-out wrote."""
    owner: Any
    """The inode that wrote each block last, and the block's place in that file."""
    place: Any
    at: Any
    """Scalars, see AT_INODE and the others."""
    out: Any
    """The pieces."""


def largest_folio(unit: int) -> int:
    """Returns the most pages of a folio, if a page of the kernel has `unit` pages.

    MAX_PAGECACHE_ORDER of include/linux/pagemap.h is the order of a huge page, 11 at most. A huge
    page has as many pages as a page has entries of 8 bytes: 512 of 4 KiB.
    """
    return min(unit * MODEL_PAGE // 8, 1 << 11) * unit


def folio_room(index: NDArray[np.int64], unit: int = 1) -> NDArray[np.int64]:
    """Returns the most pages that a folio at each index can have.

    A folio lies at a multiple of its size (mm/filemap.c __filemap_add_folio()), a power of 2, and
    is no larger than the `largest_folio`.
    """
    most = largest_folio(unit)
    return np.minimum(np.where(index == 0, most, index & -index), most).astype(np.int64)


@compiled
def with_rows(s: Any, more: int) -> Any:
    """Returns the state with room for further pieces."""
    n = s.at[ROWS]
    if n + more <= len(s.out):
        return s
    longer = np.empty((2 * (n + more), COLUMNS), np.int64)
    longer[:n] = s.out[:n]
    return State(
        s.folio_index, s.room, s.block_page, s.device_page, s.told, s.waits, s.by, s.waited,
        s.waited_by, s.anchor, s.anchored_at, s.size, s.owner, s.place, s.at, longer,
    )  # fmt: skip


@compiled_lean
def add(s: Any, ts: int, index: int, pages: int, who: int, block: int, until: int,
         kind: int) -> None:  # fmt: skip
    n = s.at[ROWS]
    s.out[n, TS] = ts
    s.out[n, INODE] = s.at[AT_INODE]
    s.out[n, INDEX] = index
    s.out[n, PAGES] = pages
    s.out[n, WHO] = who
    s.out[n, BLOCK] = block
    s.out[n, UNTIL] = until
    s.out[n, KIND] = kind
    s.at[ROWS] = n + 1


@compiled_lean
def give_up(s: Any, f: int, until: int, kind: int) -> None:
    """Adds a piece for the dirtying that folio `f` waits with, which was not written."""
    add(s, s.waits[f], s.folio_index[f], typical(s, f), s.by[f], -1, until, kind)


@compiled_lean
def give_up_earlier(s: Any, f: int, until: int) -> None:
    """Adds a piece for the dirtying before that one."""
    add(s, s.waited[f], s.folio_index[f], typical(s, f), s.waited_by[f], -1, until, DROPPED)


@compiled_lean
def covering(s: Any, index: int) -> Any:
    """Returns the waiting or current folio that can contain a page of the file; -1: none.

    Smaller folios from the file's past may lie between.
    """
    low, high = s.at[LOW], s.at[HIGH]
    while low < high:  # the last folio at or before the page
        middle = (low + high) // 2
        if s.folio_index[middle] <= index:
            low = middle + 1
        else:
            high = middle
    f = low - 1
    while f >= s.at[LOW] and index - s.folio_index[f] < s.at[LARGEST]:
        reaches = index < s.folio_index[f] + s.room[f]
        if reaches and (s.waits[f] != NEVER or f == s.at[CURRENT]):
            return f
        f -= 1
    return -1


@compiled_lean
def near_blocks(s: Any, f: int) -> Any:
    """Returns the distance in pages below which two blocks belong to one folio and were not
    allocated anew."""
    if f + 1 < s.at[HIGH]:
        return min(s.room[f], s.folio_index[f + 1] - s.folio_index[f])
    return min(s.room[f], max(READ_AHEAD, s.at[UNIT]))


@compiled_lean
def typical(s: Any, f: int) -> Any:
    """Returns the likely pages of a folio that was not written: the number last written, or the
    distance to the next folio, or a page of the kernel."""
    if s.device_page[s.at[AT_INODE]] >= 0:
        return 1
    if s.size[f] > 0:
        return s.size[f]
    if f + 1 < s.at[HIGH]:
        gap = s.folio_index[f + 1] - s.folio_index[f]
        if gap <= s.room[f] and gap & (gap - 1) == 0:
            return gap
    return s.at[UNIT]
