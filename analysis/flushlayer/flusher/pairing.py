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

from tracer.analysis.flushlayer.flusher.paired import (
    AT_INODE,
    COLUMNS,
    CURRENT,
    CURRENT_BY,
    CURRENT_TS,
    DROPPED,
    EARLIER,
    GOES_ON,
    HIGH,
    INDEX,
    KIND,
    LARGEST,
    LAST_BLOCK,
    LAST_INDEX,
    LAST_STARTED,
    LAST_TS,
    LOW,
    LOWEST,
    NEVER,
    NOWHERE,
    PAGES,
    PIECE,
    ROWS,
    SAME_WRITE_OUT_NS,
    SCALARS,
    SEEN,
    TS,
    UNIT,
    UNWRITTEN,
    WHO,
    State,
    add,
    covering,
    give_up,
    give_up_earlier,
    largest_folio,
    near_blocks,
    with_rows,
)
from tracer.probes.compiled import compiled, compiled_lean, read_only

DIRTIED, WRITTEN, VISITED, FREED = 0, 1, 2, 3
"""Kinds of an inode's events: a folio is dirtied, a bio writes its pages, the flusher completes a
write-out, the inode ends."""


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
    unit: int = 1,
) -> NDArray[np.int64]:
    """Returns pieces of consecutive pages that were dirtied at one time, as rows of the columns
    TS .. KIND.

    `events`, sorted by inode and time, has the columns inode, kind, ts, x (the folio's number for
    DIRTIED, the first block for WRITTEN), pages, who, started (start of the write-out), since
    (time at which the inode became dirty, NEVER: not known), first (the bio's first entry in
    `told`). Inode i has the folios first_folio[i] to first_folio[i + 1]. `block_page` is the page
    on the disk of each dense block. An inode with a `device_page` is the disk itself from that
    page on (-1: the inode is a file). `told` is the reported index in the file of each page of
    each bio; -1: not reported. `unit`: how many pages a page of the kernel has. Every page of every
    bio is in exactly one piece.
    """
    folios, blocks = len(folio_index), len(block_page)
    scalars = np.zeros(SCALARS, np.int64)
    scalars[UNIT], scalars[LARGEST] = unit, largest_folio(unit)
    state = State(
        folio_index=read_only(folio_index),
        room=read_only(room),
        block_page=read_only(block_page),
        device_page=read_only(device_page),
        told=read_only(told),
        waits=np.full(folios, NEVER, np.int64),
        by=np.full(folios, -1, np.int64),
        waited=np.full(folios, NEVER, np.int64),
        waited_by=np.full(folios, -1, np.int64),
        anchor=np.full(folios, -1, np.int64),
        anchored_at=np.zeros(folios, np.int64),
        size=np.zeros(folios, np.int64),
        owner=np.full(blocks, -1, np.int32),
        place=np.zeros(blocks, np.int64),
        at=scalars,
        out=np.empty((max(16, folios), COLUMNS), np.int64),
    )
    of = {name: read_only(column) for name, column in events.items()}
    pieces = _pair(
        state, of["inode"], of["kind"], of["ts"], of["x"], of["pages"], of["who"], of["started"],
        of["since"], of["first"], read_only(first_folio), start_ns, end_ns,
    )  # fmt: skip
    return np.asarray(pieces)


@compiled
def _pair(s: Any, inode: Any, kind: Any, ts: Any, x: Any, pages: Any, who: Any, started: Any,
          since: Any, first: Any, first_folio: Any, start_ns: int, end_ns: int) -> Any:  # fmt: skip
    _open(s, -1, 0, 0)
    for e in range(len(kind)):
        if inode[e] != s.at[AT_INODE]:
            s = with_rows(s, 2 * (s.at[HIGH] - s.at[LOW]))
            _close(s, end_ns)
            _open(s, inode[e], first_folio[inode[e]], first_folio[inode[e] + 1])
        if kind[e] == DIRTIED:
            s = with_rows(s, 1)
            _dirty(s, x[e], ts[e], who[e])
        elif kind[e] == WRITTEN:
            s = with_rows(s, 2 * pages[e])
            known = since[e] if since[e] != NEVER and since[e] <= ts[e] else start_ns
            _write(s, x[e], pages[e], first[e], ts[e], started[e], min(known, ts[e]))
        else:
            s = with_rows(s, 2 * (s.at[HIGH] - s.at[LOW]))
            _visit(s, started[e])
    s = with_rows(s, 2 * (s.at[HIGH] - s.at[LOW]))
    _close(s, end_ns)
    return s.out[: s.at[ROWS]].copy()


@compiled_lean
def _open(s: Any, inode: int, low: int, high: int) -> None:
    """Begins with the events of an inode, whose folios are `low` to `high`."""
    s.at[AT_INODE] = inode
    s.at[LOW] = low
    s.at[HIGH] = high
    s.at[LOWEST] = high
    s.at[CURRENT] = -1
    s.at[LAST_INDEX] = s.at[LAST_BLOCK] = -2
    s.at[LAST_TS] = s.at[LAST_STARTED] = NEVER


@compiled_lean
def _close(s: Any, end_ns: int) -> None:
    """Ends with the events of the inode: folios that still wait were not written."""
    for f in range(s.at[LOW], s.at[HIGH]):
        if s.waited[f] != NEVER:
            give_up_earlier(s, f, s.waits[f])
        if s.waits[f] != NEVER:
            give_up(s, f, end_ns, UNWRITTEN)


@compiled_lean
def _dirty(s: Any, f: int, ts: int, who: int) -> None:
    """Folio `f` is dirtied."""
    if s.waits[f] != NEVER:
        if s.waited[f] != NEVER:
            give_up_earlier(s, f, s.waits[f])
        s.waited[f] = s.waits[f]
        s.waited_by[f] = s.by[f]
    s.waits[f] = ts
    s.by[f] = who
    s.at[LOWEST] = min(s.at[LOWEST], f)


@compiled_lean
def _visit(s: Any, started: int) -> None:
    """A write-out ends. Folios that waited before it, and that it did not write, are not dirty."""
    for f in range(s.at[LOW], s.at[HIGH]):
        if s.waited[f] != NEVER and s.waited[f] < started:
            give_up_earlier(s, f, min(started, s.waits[f]))
            s.waited[f] = NEVER
        if s.waits[f] != NEVER and s.waits[f] < started:
            give_up(s, f, started, DROPPED)
            s.waits[f] = NEVER
    s.at[CURRENT] = -1


@compiled_lean
def _write(s: Any, block: int, pages: int, first: int, ts: int, started: int,
           first_known: int) -> None:  # fmt: skip
    """A bio writes `pages` from `block` on.

    `first`: its first entry in `told`. `first_known`: the earliest time at which pages whose
    dirtying was not recorded were dirty.
    """
    same = started == s.at[LAST_STARTED]
    s.at[GOES_ON] = (
        block == s.at[LAST_BLOCK] + 1
        and (same or started == ts)
        and ts - s.at[LAST_TS] < SAME_WRITE_OUT_NS
    )
    if not s.at[GOES_ON] and not same:
        s.at[CURRENT] = -1
    s.at[PIECE] = -1
    for j in range(pages):
        known = _known_place(s, block + j, first + j)
        if j > 0:
            s.at[GOES_ON] = 1
        target, index = _find(s, block + j, known, ts)
        if target < 0:
            s.at[CURRENT] = -1
            s.at[CURRENT_TS] = first_known
            s.at[CURRENT_BY] = -1
        else:
            if target != s.at[CURRENT]:
                _begin(s, target, started)
            s.size[target] += 1
            near = near_blocks(s, target)
            if s.anchor[target] < 0 or abs(block + j - s.anchor[target]) >= near:
                s.anchor[target] = block + j
                s.anchored_at[target] = index - s.folio_index[target]
        _written(s, block + j, index, ts, SEEN if target >= 0 else EARLIER)
        s.owner[block + j] = s.at[AT_INODE]
        s.place[block + j] = index
        s.at[LAST_INDEX] = index
        s.at[LAST_BLOCK] = block + j
    s.at[LAST_TS] = ts
    s.at[LAST_STARTED] = started


@compiled_lean
def _known_place(s: Any, block: int, entry: int) -> bool:
    """Stores the place of a block in the file if it is known, and returns whether it is."""
    i = s.at[AT_INODE]
    if s.device_page[i] >= 0:
        s.place[block] = s.block_page[block] - s.device_page[i]
    elif s.told[entry] >= 0:
        s.place[block] = s.told[entry]
    else:
        return False
    s.owner[block] = i
    return True


@compiled_lean
def _find(s: Any, block: int, known: bool, ts: int) -> Any:
    """Returns the folio (-1: none that was dirtied) and the index in the file of a written page.

    `known`: the block's place in the file is known. The first of these answers counts: a waiting
    folio at the block's place; that place, if it is known; a folio at the page after the last one;
    the next waiting folio; the block's place in earlier writes; the page after the last one.
    """
    here = s.owner[block] == s.at[AT_INODE]
    if here:
        f = covering(s, s.place[block])
        if f >= 0 or known:
            return f, s.place[block]
    following = s.at[LAST_INDEX] + 1
    if s.at[GOES_ON]:
        f = covering(s, following)
        if f >= 0:
            return f, following
    f = s.at[LOWEST]
    if s.at[CURRENT] >= 0 and s.at[GOES_ON]:
        f = s.at[CURRENT] + 1
    while f < s.at[HIGH] and (s.waits[f] == NEVER or s.waits[f] > ts):
        f += 1
    if f < s.at[HIGH]:
        index = s.folio_index[f]
        near = near_blocks(s, f)
        if s.anchor[f] >= 0 and abs(block - s.anchor[f]) < near:
            index += (block - s.anchor[f] + s.anchored_at[f]) % near
        return f, index
    if here:
        return -1, s.place[block]
    if s.at[GOES_ON] and s.at[LAST_INDEX] < NOWHERE:
        return -1, following
    return -1, NOWHERE + block


@compiled_lean
def _begin(s: Any, f: int, started: int) -> None:
    """The write-out reaches folio `f`, and so ends its dirtying, or the one before if it was
    dirtied again since the start."""
    s.at[CURRENT] = f
    if s.waited[f] != NEVER and s.waits[f] >= started:
        s.at[CURRENT_TS] = s.waited[f]
        s.at[CURRENT_BY] = s.waited_by[f]
    else:
        if s.waited[f] != NEVER:
            give_up_earlier(s, f, s.waits[f])
            s.at[PIECE] = -1
        s.at[CURRENT_TS] = s.waits[f]
        s.at[CURRENT_BY] = s.by[f]
        s.waits[f] = NEVER
    s.waited[f] = NEVER
    s.size[f] = 0
    while s.at[LOWEST] < s.at[HIGH] and s.waits[s.at[LOWEST]] == NEVER:
        s.at[LOWEST] += 1


@compiled_lean
def _written(s: Any, block: int, index: int, ts: int, kind: int) -> None:
    """Adds a written page to the piece before it, or begins a piece."""
    piece = s.at[PIECE]
    if (
        piece >= 0
        and s.out[piece, TS] == s.at[CURRENT_TS]
        and s.out[piece, KIND] == kind
        and s.out[piece, INDEX] + s.out[piece, PAGES] == index
        and s.out[piece, WHO] == s.at[CURRENT_BY]
    ):
        s.out[piece, PAGES] += 1
    else:
        s.at[PIECE] = s.at[ROWS]
        add(s, s.at[CURRENT_TS], index, 1, s.at[CURRENT_BY], block, ts, kind)
