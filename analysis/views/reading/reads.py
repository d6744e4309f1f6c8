"""Reads of files through the page cache: what a file's pages did in each epoch."""

from __future__ import annotations

from tracer.analysis.views.context import PASS
from tracer.analysis.views.phases.partial_epochs import is_partial, partial_epochs
from tracer.analysis.views.reading.page_states import COUNTS
from tracer.analysis.views.reading.page_uses import INFERRED_COLUMN, PAGE_USES, page_uses
from tracer.analysis.views.view import View
from tracer.probes.schema import DEV, INO, Column, Type
from tracer.store.trace import Trace

VIEW = "reads"

_SQL = f"""
CREATE OR REPLACE TEMP TABLE {VIEW} AS
WITH sums AS (
    SELECT path, dev, ino, target, container, epoch, pass, bool_or(inferred) AS inferred,
        {", ".join(f"sum({name})::BIGINT AS {name}" for name in COUNTS)}
    FROM page_uses GROUP BY ALL
)
SELECT path, dev, ino, target, container, epoch, pass, accessed, mapped, accessed - missed AS hit,
    missed, read, read - missed AS read_ahead, written, unused, evicted, removed, refaulted,
    refault_distance / nullif(refaulted, 0) AS refault_distance, disk_bytes, wait_ns, unplaced,
    inferred, {is_partial("s")} AS partial
FROM sums s ORDER BY accessed DESC, dev, ino, target, container, epoch, pass
"""


def _build(trace: Trace) -> None:
    page_uses(trace)
    partial_epochs(trace)
    trace.execute(_SQL)


def _sum(name: str) -> Column:
    return next(column for column in PAGE_USES.columns if column.name == name)


READS = View(
    VIEW,
    "One row per file, target, container, epoch and pass: the pages of the file that were read"
    " through the cache. Without files that are in memory only (tmpfs, shared memory).",
    (
        Column("path", Type.TEXT, "name at the end of the recording; null: not known"),
        DEV,
        INO,
        Column("target", Type.TEXT, "target whose threads used it; null: others"),
        Column("container", Type.TEXT, "container of those threads, by its id"),
        Column("epoch", Type.INT64, "epoch of the target at that time; null: in none"),
        PASS,
        _sum("accessed"),
        _sum("mapped"),
        Column("hit", Type.INT64, "accessed pages that were in the cache", "pages"),
        _sum("missed"),
        _sum("read"),
        Column("read_ahead", Type.INT64, "pages read before anybody asked for them", "pages"),
        _sum("written"),
        _sum("unused"),
        _sum("evicted"),
        _sum("removed"),
        _sum("refaulted"),
        Column(
            "refault_distance",
            Type.FLOAT64,
            "mean number of pages evicted between the eviction of such a page and its return",
            "pages",
        ),
        _sum("disk_bytes"),
        _sum("wait_ns"),
        _sum("unplaced"),
        INFERRED_COLUMN,
        Column(
            "partial",
            Type.BOOL,
            "true: the epoch began before the recording or did not end in it, so these are the"
            " pages of its recorded part; null: in no epoch, or nobody marked it",
        ),
    ),
    needs=("page_cache",),
    build=_build,
    example="SELECT path, epoch, accessed, missed, disk_bytes FROM reads ORDER BY 5 DESC LIMIT 20",
)


def reads(trace: Trace) -> str:
    """Makes the view `reads` and returns its name. Columns and units: `READS`."""
    return READS.make(trace)
