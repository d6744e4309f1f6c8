"""Dirtied pages, written out in a test: times in seconds, as `regenerate` takes them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pandas as pd

from tracer.analysis.flushlayer.flusher import paired
from tracer.analysis.flushlayer.flusher.dirtying import Dirtyings
from tracer.analysis.flushlayer.flusher.fixed_writes import LAST_PAGE, Recorded
from tracer.analysis.flushlayer.flusher.knobs import Knobs
from tracer.analysis.flushlayer.flusher.regenerate import Regenerated, regenerate

S = 10**9
PASSED = ["ts", "dev", "page", "pages", "reason", "dirtier", "inode", "index"]
"""The columns of writes that no knob moves."""
DEV = "254:0"
DEFAULTS = Knobs(20, 10, 0, 0, 3000, 500)
"""The kernel's, of a machine whose memory is not known."""


def ns(seconds: float) -> int:
    """Seconds as ns."""
    return round(seconds * S)


def dirtyings(
    dirtied: list[tuple[Any, ...]],
    end: float = 100.0,
    marks: list[tuple[float, int]] | None = None,
    devices: dict[int, str] | None = None,
    written: dict[int, int] | None = None,
    last_inode: int = 0,
    passed: Sequence[tuple[Any, ...]] = (),
) -> Dirtyings:
    """Makes dirtyings of (second, inode, first page, pages), each with a dirtier or none, and the
    time at which the recording had the pages clean (or the end). `passed`: rows of PASSED."""
    count = max([last_inode, *(row[1] for row in dirtied)]) + 1
    inodes = pd.DataFrame(
        {
            "dev": [(devices or {}).get(i, DEV) for i in range(count)],
            "ino": range(100, 100 + count),
            "device_page": -1,
        }
    )
    pieces = pd.DataFrame(
        [
            {
                "ts": ns(row[0]), "inode": row[1], "index": row[2], "pages": row[3],
                "dirtier": row[4] if len(row) > 4 else 7, "page": 1000 * row[1] + row[2],
                "until": ns(row[5] if len(row) > 5 else end), "how": paired.UNWRITTEN,
            }
            for row in dirtied
        ],
        columns=["ts", "inode", "index", "pages", "dirtier", "page", "until", "how"],
    ).astype("int64")  # fmt: skip
    was = pd.DataFrame(
        [
            {"ts": 0, "inode": i, "reason": "periodic", "pages": pages}
            for i, pages in (written or {}).items()
        ],
        columns=["ts", "inode", "reason", "pages"],
    ).astype({"ts": "int64", "inode": "int64", "pages": "int64"})
    return Dirtyings(
        inodes, pieces, _frame(marks), was, _passed(passed), 0, ns(end),
        {"elsewhere": 0, "mixed": 0, "untold": 0, "no_ends": 0, "uncertain": 0, "pages_told": 0,
         "page_bytes": 4096},
    )  # fmt: skip


def regenerated(
    dirtied: list[tuple[Any, ...]],
    knobs: Knobs = DEFAULTS,
    end: float = 100.0,
    fsyncs: list[tuple[float, int]] | None = None,
    syncs: list[float] | None = None,
    freed: list[tuple[float, int]] | None = None,
    marks: list[tuple[float, int]] | None = None,
    pages_per_s: float | None = None,
    devices: dict[int, str] | None = None,
    written: dict[int, int] | None = None,
    tick: tuple[int, int] | None = None,
    looks: dict[str, int] | None = None,
    at_most: bool = False,
    passed: Sequence[tuple[Any, ...]] = (),
) -> Regenerated:
    """Run the model: `dirtied` has (second, inode, first page, pages) a dirtier (or none), and
    when the recording had it clean (or the end)."""
    others = [i for _, i in [*(fsyncs or []), *(marks or [])]]
    found = dirtyings(dirtied, end, marks, devices, written, max(others, default=0), passed)
    synced = _frame(fsyncs).assign(first=0, last=LAST_PAGE, reason="fsync")
    on = sorted(set(found.inodes["dev"]))
    asked = pd.DataFrame(
        [{"ts": ns(at), "dev": dev, "reason": "sync"} for at in syncs or [] for dev in on],
        columns=["ts", "dev", "reason"],
    ).astype({"ts": "int64"})
    recorded = Recorded(synced, asked, _frame(freed), looks or {}, tick)
    return regenerate(found, recorded, knobs, pages_per_s, at_most)


def _passed(rows: Sequence[tuple[Any, ...]]) -> pd.DataFrame:
    numbers = dict.fromkeys(("ts", "page", "pages", "inode", "index"), "int64")
    return pd.DataFrame(list(rows), columns=PASSED).astype(numbers)


def _frame(rows: list[tuple[float, int]] | None) -> pd.DataFrame:
    made = [(ns(at), inode) for at, inode in rows or []]
    return pd.DataFrame(made, columns=["ts", "inode"]).astype("int64")


def said(made: Regenerated) -> list[tuple[float, int, int, int, str]]:
    """Returns the written runs of pages: (second, inode, first page, pages, reason)."""
    w = made.writes
    return [
        (row.ts / S, row.inode, row.index, row.pages, row.reason)
        for row in w.rename(columns={"index": "place"}).assign(index=w["index"]).itertuples(False)
    ]
