"""The requests that disks served while threads waited for storage."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pandas as pd
import pyarrow as pa

from tracer.analysis.views.requests import requests
from tracer.store.trace import Trace

STORAGE = ("disk", "fault", "sync", "dirty")
"""Kinds of waits for storage."""
_SECTOR_BYTES = 512
_MOST = 5

# A wait for a known device asks for that device; another one for all of them.
_SERVED = f"""
SELECT s.number, r.dev, r.operation, r.comm, r.tid = s.tid AS own, count(*) AS requests,
    sum(r.nr_sector::HUGEINT * {_SECTOR_BYTES})::DOUBLE AS bytes
FROM storage_waits s JOIN requests r
    ON r.issue_ns < s.until AND r.complete_ns > s.ts AND (s.device IS NULL OR r.dev = s.device)
WHERE r.nr_sector >= 0
GROUP BY ALL ORDER BY s.number, bytes DESC, r.dev, r.operation, r.comm
"""


def add_meanwhile(trace: Trace, segments: Sequence[dict[str, Any]]) -> None:
    """Adds to segments that wait for storage what the disks served in that time.

    The key `meanwhile` gets at most five entries, the most bytes first: dev, operation, comm (of
    the thread that issued the requests), own (it is the segment's thread), requests, bytes. Other
    segments, and those of a trace without the table block, have none.
    """
    chosen = [one for one in segments if one["kind"] in STORAGE]
    for one in segments:
        one["meanwhile"] = []
    if not chosen or "block" not in trace.tables:
        return
    requests(trace)
    trace.execute("DROP TABLE IF EXISTS storage_waits")
    trace.keep(
        "storage_waits",
        pa.table(
            {
                "number": pa.array(range(len(chosen)), pa.int64()),
                "tid": pa.array([one["tid"] for one in chosen], pa.int64()),
                "ts": pa.array([one["ts"] for one in chosen], pa.int64()),
                "until": pa.array([one["ts"] + one["dur_ns"] for one in chosen], pa.int64()),
                "device": pa.array(
                    [one["detail"] if one["kind"] == "disk" else None for one in chosen],
                    pa.string(),
                ),
            }
        ),
    )
    found = trace.sql(_SERVED)
    trace.execute("DROP TABLE storage_waits")
    rows = found.astype(object).where(found.notna(), None)
    for number, own in rows.groupby("number", sort=True):
        listed = own.drop(columns="number").head(_MOST).to_dict("records")
        chosen[int(str(number))]["meanwhile"] = [
            {**row, "requests": int(row["requests"]), "bytes": _bytes(row["bytes"])}
            for row in listed
        ]


def _bytes(value: Any) -> int | None:
    return None if value is None or pd.isna(value) else int(value)
