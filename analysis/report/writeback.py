"""Tables of write-back: reasons, intervals between starts, and pages by reason."""

from __future__ import annotations

import numpy as np
import pandas as pd

from tracer.analysis.report.histogram import buckets, spread
from tracer.analysis.report.mergeable import whole
from tracer.analysis.report.table import QUANTILES, Column, MergedTable
from tracer.analysis.views.disks.volumes import bdis_of
from tracer.analysis.views.writing.flushes import flushes
from tracer.analysis.views.writing.passes import gaps, passes
from tracer.analysis.views.writing.whose import MINE, everybody_because
from tracer.store.trace import Trace

_INTERVAL_SHARES = [step / 50 for step in range(51)]
BETWEEN = ("wakes", "passes")
"""The starts that intervals lie between. A wake has one or more passes (`views.passes`)."""


def _reasons_of(trace: Trace, dev: str | None = None) -> pd.DataFrame:
    return trace.sql(
        "SELECT reason, count(*) AS writebacks, count(*) FILTER (begins_reason) AS wakes,"
        " count(*) FILTER (wake IS NULL) AS unknown"
        f" FROM {passes(trace)} WHERE {bdis_of(trace, dev)} GROUP BY reason"
    )


def _reasons(parts: pd.DataFrame) -> pd.DataFrame:
    found = parts.assign(
        ratio=parts["writebacks"] / parts["writebacks"].sum(),
        wakes=whole(parts["wakes"]).astype("Int64").where(parts["unknown"] == 0),
    )
    found = found.sort_values(["writebacks", "reason"], ascending=[False, True], ignore_index=True)
    return found[["reason", "writebacks", "ratio", "wakes"]]


REASONS = MergedTable(
    "writeback_reasons",
    "Write-backs by reason (writeback_start)",
    (
        Column("reason", "as the kernel names it", "reason", text=True),
        Column("writebacks", "writeback_start events", "write-backs"),
        Column("ratio", "of all of them", "ratio"),
        Column("wakes", "wakes of the flusher with this reason; null: not recorded", "wakes"),
    ),
    needs=("writeback",),
    keys=("reason",),
    parts=_reasons_of,
    finish=_reasons,
    note="Write-backs are passes of the flusher; one wake makes one or more. A wake with several"
    " reasons counts for each.",
)


def writeback_reasons(trace: Trace, dev: str | None = None) -> pd.DataFrame:
    """Returns write-backs by reason, on one device or all (Park & Bahn 2023, Tables 9 and 10).

    Write-back events name whole disks: if `dev` is a partition, its disk counts. `REASONS` has the
    columns; the ratios sum to 1.
    """
    return _reasons(_reasons_of(trace, dev))


def _flushed_of(trace: Trace) -> pd.DataFrame:
    mine = f"coalesce(sum(pages) FILTER (NOT own AND whose IN {MINE}), 0)"
    if everybody_because(trace, all_writers=False):
        mine = "NULL"
    return trace.sql(
        f"""
        SELECT reason, certainty, count(*) AS bios, sum(pages)::DOUBLE AS pages,
            {mine}::DOUBLE AS target_pages,
            coalesce(sum(pages) FILTER (own), 0)::DOUBLE AS own_pages
        FROM {flushes(trace)} WHERE NOT below GROUP BY ALL
        """
    )


def _flushed(parts: pd.DataFrame) -> pd.DataFrame:
    found = parts.assign(
        ratio=parts["pages"] / parts["pages"].sum(),
        pages=whole(parts["pages"]),
        target_pages=whole(parts["target_pages"]),
        own_pages=whole(parts["own_pages"]),
    )
    found = found.sort_values(
        ["pages", "reason", "certainty"], ascending=[False, True, True], ignore_index=True
    )
    return found[["reason", "certainty", "bios", "pages", "ratio", "target_pages", "own_pages"]]


FLUSHED_PAGES = MergedTable(
    "flushed_pages",
    "Pages written to devices, by reason",
    (
        Column("reason", "as in the view flushes", "reason", text=True),
        Column("certainty", "exact, ambiguous, inferred or unknown", "certainty", text=True),
        Column("bios", "block I/O units", "bios"),
        Column("pages", "pages of 4096 bytes, of the whole machine", "pages"),
        Column("ratio", "of all pages", "ratio"),
        Column(
            "target_pages",
            "pages that targets dirtied, alone or with others; null: the whole machine was"
            " recorded, the trace names no target, or no event names who dirtied a page",
            "targets'",
        ),
        Column("own_pages", "pages of files that the recorder wrote", "own"),
    ),
    needs=("block",),
    keys=("reason", "certainty"),
    unknown=("target_pages",),
    parts=_flushed_of,
    finish=_flushed,
    note="Pages: of the whole machine. Targets': dirtied by targets, alone or with others. Own: the"
    " tracer's. Certainty: exact (kernel events name the reason), ambiguous (several processes had"
    " dirtied the file), inferred (from a system call) or unknown.",
)


def flushed_pages(trace: Trace) -> pd.DataFrame:
    """Returns pages written to devices by reason and certainty, of the machine and the targets.

    `FLUSHED_PAGES` has the columns; the ratios sum to 1.
    """
    return FLUSHED_PAGES.of(trace)


def _intervals_of(trace: Trace, dev: str | None = None) -> pd.DataFrame:
    view, chosen = passes(trace), bdis_of(trace, dev)
    every = " UNION ALL ".join(
        f"SELECT '{between}' AS between, * FROM ({gaps(view, between, chosen)})"
        for between in BETWEEN
    )
    return trace.sql(
        f"SELECT between, reason, {buckets('ns')}, "
        # Integers: their sum does not depend on the order. Longer intervals count as 104 days.
        " sum(least(ns, 1::BIGINT << 53)::HUGEINT * least(ns, 1::BIGINT << 53)) / 1e18 AS squares"
        f" FROM ({every}) WHERE ns IS NOT NULL GROUP BY ALL"
    )


def _intervals(parts: pd.DataFrame) -> pd.DataFrame:
    times = spread(parts, ["between", "reason"], (0.5, 0.9, 0.99))
    count, mean = times["values"], times["mean"] / 1e9
    beyond = parts.groupby(["between", "reason"], dropna=False)["squares"].sum() - count * mean**2
    # If all values are equal, rounding can make the difference negative.
    variance = beyond.clip(lower=0) / (count - 1).where(count > 1)
    found = pd.DataFrame({"intervals": count, "mean_s": mean, "std_s": np.sqrt(variance)})
    for column in ("min", "p50", "p90", "p99", "max"):
        found[f"{column}_s"] = times[column] / 1e9
    found = found.reset_index()
    found["order"] = found["between"].map(BETWEEN.index)
    found["place"] = found["reason"] != "all"
    found = found.sort_values(
        ["order", "place", "intervals", "reason"],
        ascending=[True, True, False, True],
        ignore_index=True,
    )
    return found.drop(columns=["order", "place"])


INTERVALS = MergedTable(
    "writeback_intervals",
    "Intervals between wakes of the flusher, and between its passes, on one device",
    (
        Column("between", "wakes, or passes (writeback_start events)", "between", text=True),
        Column("reason", "of both write-backs; all: any reason", "reason", text=True),
        Column("intervals", "how many", "n"),
        Column("mean_s", "mean", "mean s"),
        Column("std_s", "sample standard deviation; null: fewer than two", "std s"),
        Column("min_s", "shortest"),
        Column("p50_s", "median", "p50 s"),
        Column("p90_s", "90th percentile", "p90 s"),
        Column("p99_s", "99th percentile", "p99 s"),
        Column("max_s", "longest", "max s"),
    ),
    needs=("writeback",),
    keys=("between", "reason", "bucket"),
    parts=_intervals_of,
    finish=_intervals,
    note="One wake makes one or more passes. Intervals in which events were lost do not count. If"
    f" there are no rows of wakes, their ends were not recorded. {QUANTILES}",
)


def writeback_intervals(trace: Trace, dev: str | None = None) -> pd.DataFrame:
    """Returns times between wakes, and between passes, on one device (Park & Bahn 2023, Figure 3).

    `dev` is the only device that counts (for a partition, its disk); None: every device, each by
    itself. `INTERVALS` has the columns.
    """
    return _intervals(_intervals_of(trace, dev))


def writeback_interval_quantiles(trace: Trace, dev: str | None = None) -> pd.DataFrame:
    """Returns quantiles of the times between successive wakes, and between passes, of any reason.

    `dev` as for `writeback_intervals`. Columns: between (wakes or passes), share (0 to 1 in steps
    of 1/50), interval_s (the quantile at that share). No rows if there are fewer than two starts.
    """
    parts = _intervals_of(trace, dev)
    times = spread(parts[parts["reason"] == "all"], ["between"], _INTERVAL_SHARES)
    rows = [
        (between, share, float(times[f"p{100 * share:g}"][between]) / 1e9)
        for between in BETWEEN
        if between in times.index
        for share in _INTERVAL_SHARES
    ]
    return pd.DataFrame(rows, columns=["between", "share", "interval_s"])
