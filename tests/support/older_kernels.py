"""Recordings as an older kernel would have made them: without some events of the page cache."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pyarrow.compute as pc
import pyarrow.parquet as pq

from tracer.probes.events.page_cache import PROBE

ACCESSES = ("access", "map", "fault")
READ_AHEAD = ("sync_read_ahead", "async_read_ahead", "read_ahead")
"""Events that Linux has since 6.10, and since 6.18."""


def without_accesses(trace: Path, to: Path) -> Path:
    """Copies a trace as Linux 6.9 would have recorded it: only pages that come and go."""
    shutil.copytree(trace, to, ignore=shutil.ignore_patterns("raw"))
    table = to / "events" / "page_cache.parquet"
    rows = pq.read_table(table)
    event = rows["event"].cast("string")
    gone = pc.is_in(event, value_set=_names())
    left = rows.filter(pc.invert(gone))
    pq.write_table(left, table)
    facts = json.loads((to / "manifest.json").read_text())
    facts["tables"]["page_cache"] = {"rows": left.num_rows}
    unknown = {one.name for one in PROBE.events if one.label in (*ACCESSES, *READ_AHEAD)}
    formats = facts["capture"]["formats"]
    facts["capture"]["formats"] = {one: formats[one] for one in formats.keys() - unknown}
    (to / "manifest.json").write_text(json.dumps(facts))
    return to


def _names():
    import pyarrow as pa

    return pa.array([*ACCESSES, *READ_AHEAD])
