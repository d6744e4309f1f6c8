"""The state of a timed simulation: a few arrays, and the fields of their rows.

All state is in arrays, so that a compiled loop can stop, get longer arrays, and continue. Numba's
cache of compiled code contains these types and numbers, but does not notice when they change: after
a change here, also change every file that uses them. Times are in ns, places in sectors of 512
bytes; -1 means none.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

Rows = NDArray[np.void]
"""An array of one of the types below."""


def _row(*fields: str) -> np.dtype[Any]:
    """Returns the type of a row of int64 fields."""
    return np.dtype((np.record, [(name, np.int64) for name in fields]))


WRITE, READ, FLUSH = 0, 1, 2
"""The operation of a bio (`op`)."""

BIO = _row(
    *("ts", "sector", "sectors", "pages", "first", "device", "home_layer", "op", "fua", "tenant"),
    *("waits", "arrived", "finished", "pending", "needs_room", "hits", "evictions", "fills"),
    *("around", "next", "releases", "blockers", "gap"),
)
"""A bio. fills: sectors of a read that the medium writes after it, because their pages enter the
layer. around: ALL_LAYERS or 1 + the layer that it goes around; 0: none. The last four fields are
used in closed replay only."""

ALL_LAYERS = -1

PAGE = _row(
    *("home", "newer", "older", "dirty_newer", "dirty_older", "dirty", "base", "place", "span"),
    *("disk", "written", "number", "flight", "taken"),
)
"""A page. base: the sector at which it begins on its disk; place, span: the first dirty sector, and
the sectors up to the last dirty one; taken: the number of the slot that it took as it became dirty,
of all slots so far. The last rows are heads of lists: one for each layer (its pages), then one for
each layer and disk (its dirty pages)."""

LAYER = _row(
    *("capacity", "used", "dirties", "flying", "active", "writes", "committed", "overwritten"),
    *("destaged", "read_hits", "age_armed", "commit_armed", "high", "low", "peak"),
    *("taken", "paused", "around", "passing", "filled"),
)
"""A layer. around: pages written around it; passing: bios in flight that go around it; paused: the
time until which it does not destage after them; filled: pages of reads that entered."""

PART = _row(
    *("sector", "sectors", "op", "fua", "kind", "owner", "since", "chain", "last", "ahead"),
    *("behind", "epoch", "layer", "device", "own_sectors"),
)
"""A part of a device's request: the share of one bio or one page. Merged parts are chained to the
first one, which is in the device's queue."""

HOST, EVICTED, BACKGROUND, CACHED = 0, 1, 2, 3
"""Kinds of parts: of a bio; of a page that is evicted for a bio; of a page that the destage policy
sends; of a write that the disk's cache has acknowledged."""

LINE = _row(
    *("head", "tail", "waiting", "free", "in_system", "most", "at_sector", "at_time", "bus_free"),
    *("busy", "served", "merged", "changed", "last_host", "idle_armed", "touched", "passed"),
    *("cache_used", "cache_out", "epoch", "oldest_epoch", "bytes_read", "bytes_written", "parts"),
)
"""A device and its queue: the disks, then the medium of the layer."""

EPOCH = _row("out", "flush", "next")
"""An epoch: the writes that a disk's cache accepted between two flushes."""

CLOCK = _row(
    *("now", "next_bio", "heap_size", "sequence", "free_part", "free_parts", "done", "last_end"),
    *("closed", "heap_margin", "part_margin", "touches", "epochs", "waiting_tenants"),
    *("reads_enter", "flushes_pass"),
)
"""The scalars of a simulation: one row."""

RULE = _row(
    *("when", "outstanding", "idle_ns", "age_ns", "commit_pages", "commit_ns"),
    *("runs", "around", "pause_ns", "flushes", "renews", "batch", "leaves"),
)
"""The destage policy: one row."""

RENEWS_ALL, RENEWS_COMMITTED, RENEWS_NONE = range(3)
"""Dirty pages that become the newest as they are written again."""

ARRIVE, FINISH_SERVICE, ACKNOWLEDGE, AGE, COMMIT, IDLE = range(6)
"""Kinds of events, packed with the row they are about."""
EVENT_BITS = 3
EVENT = _row("at", "sequence", "what")


class World(NamedTuple):
    """Every array of a simulation, for the compiled loops."""

    page: NDArray[np.int32]
    """Pages of all bios, one bio after another."""
    ahead: NDArray[np.int32]
    """Sectors of its bio before each page access. Empty: pages begin at every eighth sector."""
    within: NDArray[np.uint8]
    """Sectors of its page before each page access; empty if `ahead` is."""
    following: NDArray[np.int32]
    """The page that follows each page on its disk; -1: none was written. Empty: not needed."""
    evicted: NDArray[np.int32]
    """The page that another policy evicts at each page access. Empty: least recently used."""
    bio: Rows
    slot: Rows
    layer: Rows
    part: Rows
    line: Rows
    epoch: Rows
    heap: Rows
    clock: Rows
    touched: NDArray[np.int64]
    tenant: NDArray[np.int64]
    """1 if the tenant's last bio was in a phase that waits for the disk."""
    model: NDArray[np.float64]
    """One row per device; columns in service.py."""
    area: NDArray[np.float64]
    """Integral over time (ns) of the parts in each device."""
    rule: Rows
