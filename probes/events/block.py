"""The block layer: bios and requests from queue to completion.

Kernel: include/trace/events/block.h.
"""

from __future__ import annotations

import re

from tracer.probes.schema import (
    CPU,
    EVENT,
    PID,
    SHORT,
    TID,
    TS,
    Column,
    Event,
    Probe,
    Scope,
    Table,
    Type,
    characters,
    device,
    number,
)

SECTOR_BYTES = 512
"""Bytes in a sector. The block layer uses this size even if the device's own sectors differ."""

OPERATIONS = {"write": "^F?W", "read": "^F?R", "discard": "^F?D", "flush": "^F"}
"""Operations, each with the pattern of the rwbs strings that name it; the first match counts.

Kernel: blk_fill_rwbs() in kernel/trace/blktrace.c.
"""
OTHER = "other"
"""The name of all other operations."""


def operation(rwbs: str) -> str:
    """Returns the operation that an rwbs string names."""
    return next((name for name, form in OPERATIONS.items() if re.match(form, rwbs)), OTHER)


TABLE = Table(
    "block",
    "One row per event of a bio or a request.",
    (
        TS,
        CPU,
        PID,
        TID,
        Column(
            "comm", Type.TEXT, "name of the thread; null: the event does not name it", longest=SHORT
        ),
        EVENT,
        Column("dev", Type.TEXT, "whole disk, MAJOR:MINOR; a partition is shown as its disk"),
        Column(
            "sector", Type.UINT64, "first sector, counted from the start of the disk", "sectors"
        ),
        Column("nr_sector", Type.INT64, "length", "sectors"),
        Column("rwbs", Type.TEXT, "operation and flags: R W D F, then F S M A ...", longest=SHORT),
        Column("error", Type.INT32, "status of a completion; 0: no error"),
        Column(
            "from_dev",
            Type.TEXT,
            "of a remap: the stacked device or partition above, MAJOR:MINOR",
        ),
        Column("from_sector", Type.UINT64, "of a remap: the first sector there", "sectors"),
    ),
    example="SELECT event, rwbs, count(*), sum(nr_sector)*512 b FROM block GROUP BY ALL ORDER BY 4",
)

_BIO = {
    "comm": characters("comm"),
    "dev": device("dev"),
    "sector": number("sector"),
    "nr_sector": number("nr_sector"),
    "rwbs": characters("rwbs"),
}
_REMAP = {**_BIO, "from_dev": device("old_dev"), "from_sector": number("old_sector")}
_DONE = {**_BIO, "error": number("error", "errors")}

PROBE = Probe(
    "block",
    "bios and block requests: queue, merge, insert, issue, complete; machine-wide",
    TABLE,
    (
        Event("block:block_bio_queue", "bio_queue", _BIO),
        Event("block:block_bio_backmerge", "backmerge", _BIO),
        Event("block:block_bio_frontmerge", "frontmerge", _BIO),
        Event("block:block_bio_remap", "remap", _REMAP),
        Event("block:block_rq_insert", "insert", _BIO),
        Event("block:block_rq_merge", "rq_merge", _BIO),
        Event("block:block_rq_issue", "issue", _BIO),
        Event("block:block_rq_requeue", "requeue", _BIO, interrupts=True),
        Event("block:block_rq_complete", "complete", _DONE, interrupts=True),
        Event("block:block_rq_error", "error", _DONE, interrupts=True),
    ),
    Scope.MACHINE,
    rate="about four events per request",
)
