"""Lanes of the page cache: pages used, pages in it, and the files that are read."""

from __future__ import annotations

import numpy as np
import pandas as pd

from tracer.analysis.timeline.axis import Axis
from tracer.analysis.timeline.binned import REST, count_query, counted
from tracer.analysis.timeline.heat import MOST_COLUMNS, by_file
from tracer.analysis.timeline.lane import MOST_LINES, Kind, Lane
from tracer.analysis.views.reading.page_uses import page_uses
from tracer.analysis.views.threads import name_of_others, of_everybody
from tracer.store.manifest import page_bytes
from tracer.store.trace import Trace

_MIB = 1 << 20
_PAGE_BYTES = 4096


def page_cache_lanes(trace: Trace, axis: Axis) -> list[Lane]:
    """Returns the lanes of the use of the page cache by targets, or by all processes.

    Needs the table page_cache.
    """
    page_uses(trace)
    page = page_bytes(trace.manifest)
    return [
        _used(trace, axis, page),
        _cached(trace, axis, page),
        *(lane for lane in (_files(trace, axis, page),) if len(lane.frame)),
    ]


def _of_targets(trace: Trace) -> str:
    """Returns the SQL condition that a row of `page_uses` is drawn."""
    return f"(target IS NOT NULL OR {of_everybody(trace)})"


def _used(trace: Trace, axis: Axis, page: int) -> Lane:
    mine = _of_targets(trace)
    rows = (
        f"SELECT ts, 'in the cache' AS series, (accessed - missed) * {page} AS amount"
        f" FROM page_uses WHERE {mine} AND accessed != missed UNION ALL"
        f" SELECT ts, 'missed', missed * {page} FROM page_uses WHERE {mine} AND missed > 0"
    )
    return Lane(
        "Memory",
        "Files used through the page cache",
        "MiB/s",
        Kind.AREAS,
        counted(trace, axis, rows, a_second=1 / _MIB),
        "Pages that calls read, that faults touch, and that are mapped around them.",
        count_query(axis, rows),
    )


def _lines_of_growth(axis: Axis, found: pd.DataFrame) -> tuple[pd.DataFrame, int]:
    """Returns the lines, and the number of series that the line `REST` adds up.

    `found`: series, bin, grown (MiB), in order of series and bin. The lines that are drawn alone
    are the `MOST_LINES` that get farthest from 0.
    """
    by_series = found.groupby("series", sort=False)
    farthest = found.assign(most=by_series["grown"].cumsum().abs()).groupby("series", sort=False)
    ranked = farthest["most"].max().sort_values(ascending=False, kind="stable").index
    shown, others = ranked[:MOST_LINES], len(ranked[MOST_LINES:])
    own = found[found["series"].isin(shown)]
    lines = [(str(name), part) for name, part in own.groupby("series", sort=False)]
    if others:
        lines.append((REST, found[~found["series"].isin(shown)]))
    frames = [
        pd.DataFrame(
            {
                "series": name,
                "at_s": np.arange(1, axis.bins + 1) * axis.width_s,
                "value": np.cumsum(np.bincount(part["bin"], part["grown"], axis.bins)),
            }
        )
        for name, part in lines
    ]
    empty = pd.DataFrame(columns=["series", "at_s", "value"])
    return pd.concat(frames or [empty], ignore_index=True), others


def _cached(trace: Trace, axis: Axis, page: int) -> Lane:
    """Draws the growth of the cache. Columns: series (target), at_s, value (MiB)."""
    moved = (
        "SELECT ts, target, read + written AS pages FROM page_uses WHERE read + written > 0"
        " UNION ALL SELECT ts, brought_by, -(evicted + removed) FROM page_uses"
        " WHERE evicted + removed > 0"
    )
    query = (
        f"SELECT target, {axis.bin('ts')} AS bin, sum(pages) * {page} / {_MIB} AS grown"
        f" FROM ({moved}) WHERE {_of_targets(trace)} AND {axis.within('ts')}"
        " GROUP BY ALL ORDER BY target, bin"
    )
    found = trace.sql(query)
    names = found["target"].astype(object).where(found["target"].notna(), name_of_others(trace))
    frame, others = _lines_of_growth(axis, found.assign(series=names))
    rest = f" The targets that changed least are drawn as one line: {others:,}." if others else ""
    return Lane(
        "Memory",
        "Growth of the files in the page cache",
        "MiB",
        Kind.LINES,
        frame,
        "Pages that each target brought in since the recording began, without those of them that"
        " were taken out, by anybody. Below 0: pages left that were there before; they count for"
        f" the target that used their file last.{rest}",
        query,
    )


def _files(trace: Trace, axis: Axis, page: int) -> Lane:
    """Returns the lane of the files by pages of 4096 bytes, as in the other heat maps."""
    name = "coalesce(path, concat('inode ', ino, ' of ', dev))"
    rows = (
        f"SELECT ts, {name} AS file, read * {page // _PAGE_BYTES} AS pages FROM page_uses"
        f" WHERE {_of_targets(trace)}"
    )
    frame, query = by_file(trace, axis.coarser(MOST_COLUMNS), rows)
    whose = "" if of_everybody(trace) else " of the targets"
    note = f"Pages of 4096 bytes that calls and faults{whose} brought into the cache."
    return Lane("Heat maps", "Files read, by time", "pages", Kind.FILES, frame, note, query)
