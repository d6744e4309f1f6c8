"""A trace that means harm: every table full of values at their limits and names of an enemy."""

from __future__ import annotations

from itertools import cycle
from pathlib import Path
from typing import Any

from tests.support.traces import make_trace
from tracer.probes.catalogue import TABLES
from tracer.probes.schema import Type
from tracer.store.trace import Trace

FORMULA = "=cmd|' /C calc'!A0"
NAMES = (
    "<script>alert(1)</script>",
    "\x1b[2J\x1b]0;x\x07",
    "two\nlines",
    "'; DROP TABLE x; --",
    "",
    FORMULA,
    "@SUM(1+1)",
    "\u202egnp.exe",
)
_EVENTS = {
    "writeback": ("start", "written"),
    "dirty": ("dirty_folio", "mark_inode_dirty", "balance_dirty_pages"),
    "inode_writeback": ("start", "end"),
    "file_writes": ("writepages_start", "writepages_end", "fsync_start", "fsync", "direct_start"),
    "reclaim": ("memcg_begin", "memcg_end", "direct_begin", "direct_end", "throttled", "oom_kill"),
    "page_cache": ("access", "add", "fault", "map", "delete", "sync_read_ahead", "read_ahead", "x"),
    "block": ("bio_queue", "insert", "issue", "requeue", "complete"),
}
_TEXTS = {
    "rwbs": ("W", "WS", "R", "FWFSM", "\x1b[31m"),
    "role": ("target", "child", "daemon", "flusher", "<b>"),
    "target": ("job", *NAMES),
    "dev": ("254:0", "0:0", *NAMES),
    "bdi": ("254:0", *NAMES),
    "kind": ("minor", "major", "unknown", "syscall"),
    "name": ("step", "train", "forward", "fetch", "fsync", "read", *NAMES),
}
_NUMBERS: dict[Type, tuple[Any, ...]] = {
    Type.INT16: (0, 1, -(1 << 15), (1 << 15) - 1),
    Type.INT32: (7, 8, 7, 0, -(1 << 31), (1 << 31) - 1),
    Type.INT64: (0, 5, 100, (1 << 63) - 1, -(1 << 63), 10**18, -7, 3, 1 << 62, 50, 200),
    Type.UINT64: (11, 1 << 63, (1 << 64) - 1, 0, 12),
    Type.FLOAT64: (0.5, float("nan"), float("inf"), -1e308, 1e308),
    Type.BOOL: (True, False),
}
_ROWS = 157  # a prime: no two columns repeat together


def make_harmful(
    folder: Path, rows: int = _ROWS, instead: dict[str, list[dict[str, Any]]] | None = None
) -> Trace:
    """A trace that has every table, and in it all that a column can hold.

    `instead` has rows for some of the tables.
    """
    made = {}
    for table in TABLES.values():
        columns = {}
        for number, column in enumerate(table.columns):
            of = _NUMBERS.get(column.type) or _TEXTS.get(column.name, NAMES)
            if column.name == "event":
                of = _EVENTS.get(table.name, NAMES)
            if column.nullable:
                of = (*of, None)
            values = cycle(of)
            for _ in range(number):
                next(values)
            columns[column.name] = values
        made[table.name] = [
            {name: next(values) for name, values in columns.items()} for _ in range(rows)
        ]
    return make_trace(folder, made | (instead or {}))
