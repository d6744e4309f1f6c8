"""The processes that dirty pages and inodes, and those that are throttled for it.

A large folio logs one dirty_folio event with its first index, for any size of the folio and any
number of dirtied pages. Pages are therefore counted from block events, never from these events.
Kernel: include/trace/events/writeback.h.
"""

from __future__ import annotations

from tracer.probes.schema import (
    CPU,
    EVENT,
    INO,
    PID,
    TID,
    TS,
    Column,
    Event,
    Probe,
    Scope,
    Table,
    Type,
    characters,
    number,
)

TABLE = Table(
    "dirty",
    "One row per event that dirties a folio or an inode, or throttles a task that dirties.",
    (
        TS,
        CPU,
        PID,
        TID,
        EVENT,
        Column("dev", Type.TEXT, "backing device: MAJOR:MINOR of the whole disk, or a name"),
        INO,
        Column("index", Type.UINT64, "first page of the folio in its file", "pages"),
        Column("pause_ns", Type.INT64, "sleep imposed on the dirtier", "ns"),
        Column(
            "flags",
            Type.UINT64,
            "mark_inode_dirty: the kind of dirtiness; I_DIRTY_... bits of this kernel",
        ),
    ),
    example="SELECT pid, ino, count(*) FROM dirty GROUP BY ALL ORDER BY 3 DESC LIMIT 20",
)

_INODE = {"dev": characters("name"), "ino": number("ino")}

PROBE = Probe(
    "dirty",
    "folios and inodes dirtied, and dirty throttling, machine-wide",
    TABLE,
    (
        Event(
            "writeback:writeback_dirty_folio",
            "dirty_folio",
            {**_INODE, "index": number("index")},
        ),
        # The name of this event before folios (kernel 5.18 and older).
        Event(
            "writeback:writeback_dirty_page",
            "dirty_folio",
            {**_INODE, "index": number("index")},
        ),
        Event(
            "writeback:writeback_mark_inode_dirty",
            "mark_inode_dirty",
            {**_INODE, "flags": number("flags")},
        ),
        Event(
            "writeback:balance_dirty_pages",
            "balance_dirty_pages",
            # The kernel logs the pause in ms.
            {"dev": characters("bdi", "name"), "pause_ns": number("pause", scale=1_000_000)},
        ),
    ),
    Scope.MACHINE,
    rate="about one event per folio written",
)
