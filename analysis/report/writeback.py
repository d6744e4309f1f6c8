"""Tables of write-back: reasons, intervals between starts, and pages by reason."""

from __future__ import annotations

import numpy as np
import pandas as pd

from tracer.analysis.report.histogram import buckets, spread
from tracer.analysis.report.mergeable import whole
from tracer.analysis.report.table import QUANTILES, Column, MergedTable
from tracer.analysis.views.flushes import flushes
from tracer.analysis.views.view import apart
from tracer.analysis.views.volumes import bdis_of
from tracer.analysis.views.whose import MINE
from tracer.store.trace import Trace

_INTERVAL_SHARES = [step / 50 for step in range(51)]


def _reasons_of(trace: Trace, dev: str | None = None) -> pd.DataFrame:
    trace.require("writeback")
    return trace.sql(
        "SELECT reason, count(*) AS writebacks FROM writeback"
        f" WHERE event = 'start' AND {bdis_of(trace, dev)} GROUP BY reason"
    )


def _reasons(parts: pd.DataFrame) -> pd.DataFrame:
    found = parts.assign(ratio=parts["writebacks"] / parts["writebacks"].sum())
    return found.sort_values(["writebacks", "reason"], ascending=[False, True], ignore_index=True)


REASONS = MergedTable(
    "writeback_reasons",
    "Write-backs by reason (writeback_start)",
    (
        Column("reason", "as the kernel names it", "reason", text=True),
        Column("writebacks", "writeback_start events", "write-backs"),
        Column("ratio", "of all of them", "ratio"),
    ),
    needs=("writeback",),
    keys=("reason",),
    parts=_reasons_of,
    finish=_reasons,
)


def writeback_reasons(trace: Trace, dev: str | None = None) -> pd.DataFrame:
    """Returns write-backs by reason, on one device or all (Park & Bahn 2023, Tables 9 and 10).

    Write-back events name whole disks: if `dev` is a partition, its disk counts. `REASONS` has the
    columns; the ratios sum to 1.
    """
    return _reasons(_reasons_of(trace, dev))


def _flushed_of(trace: Trace) -> pd.DataFrame:
    return trace.sql(
        f"""
        SELECT reason, certainty, count(*) AS bios, sum(pages)::DOUBLE AS pages,
            coalesce(sum(pages) FILTER (NOT own AND whose IN {MINE}), 0)::DOUBLE
                AS target_pages,
            coalesce(sum(pages) FILTER (own), 0)::DOUBLE AS own_pages
        FROM {flushes(trace)} GROUP BY ALL
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
        Column("target_pages", "pages that targets dirtied, alone or with others", "targets'"),
        Column("own_pages", "pages of files that the recorder wrote", "own"),
    ),
    needs=("block",),
    keys=("reason", "certainty"),
    parts=_flushed_of,
    finish=_flushed,
    note="Pages: of the whole machine. Targets': dirtied by targets, alone or with others. Own: the"
    " tracer's. Certainty: exact (kernel events name the reason), ambiguous (several processes had"
    " dirtied the file) or inferred (from a system call).",
)


def flushed_pages(trace: Trace) -> pd.DataFrame:
    """Returns pages written to devices by reason and certainty, of the machine and the targets.

    `FLUSHED_PAGES` has the columns; the ratios sum to 1.
    """
    return FLUSHED_PAGES.of(trace)


_GAPS = f"""
WITH starts AS (
    SELECT ts, bdi, reason FROM writeback WHERE event = 'start' AND $chosen
),
gaps AS (
    SELECT 'all' AS reason, {apart("ts", "lag(ts) OVER of_bdi")} AS ns
    FROM starts WINDOW of_bdi AS (PARTITION BY bdi ORDER BY ts)
    UNION ALL
    SELECT reason, {apart("ts", "lag(ts) OVER of_reason")}
    FROM starts WINDOW of_reason AS (PARTITION BY bdi, reason ORDER BY ts)
)
"""


def _intervals_of(trace: Trace, dev: str | None = None) -> pd.DataFrame:
    trace.require("writeback")
    return trace.sql(
        f"{_GAPS.replace('$chosen', bdis_of(trace, dev))} SELECT reason, {buckets('ns')}, "
        # Integers: their sum does not depend on the order. Longer intervals count as 104 days.
        " sum(least(ns, 1::BIGINT << 53)::HUGEINT * least(ns, 1::BIGINT << 53)) / 1e18 AS squares"
        " FROM gaps WHERE ns IS NOT NULL GROUP BY ALL"
    )


def _intervals(parts: pd.DataFrame) -> pd.DataFrame:
    times = spread(parts, ["reason"], (0.5, 0.9, 0.99))
    count, mean = times["values"], times["mean"] / 1e9
    beyond = parts.groupby("reason", dropna=False)["squares"].sum() - count * mean**2
    # If all values are equal, rounding can make the difference negative.
    variance = beyond.clip(lower=0) / (count - 1).where(count > 1)
    found = pd.DataFrame({"intervals": count, "mean_s": mean, "std_s": np.sqrt(variance)})
    for column in ("min", "p50", "p90", "p99", "max"):
        found[f"{column}_s"] = times[column] / 1e9
    found = found.reset_index()
    found["place"] = found["reason"] != "all"
    found = found.sort_values(
        ["place", "intervals", "reason"], ascending=[True, False, True], ignore_index=True
    )
    return found.drop(columns="place")


INTERVALS = MergedTable(
    "writeback_intervals",
    "Intervals between write-back starts on one device",
    (
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
    keys=("reason", "bucket"),
    parts=_intervals_of,
    finish=_intervals,
    note=QUANTILES,
)


def writeback_intervals(trace: Trace, dev: str | None = None) -> pd.DataFrame:
    """Returns times between write-back starts on one device (Park & Bahn 2023, Figure 3).

    `dev` is the only device that counts (for a partition, its disk); None: every device, each by
    itself. `INTERVALS` has the columns.
    """
    return _intervals(_intervals_of(trace, dev))


def writeback_interval_quantiles(trace: Trace, dev: str | None = None) -> pd.DataFrame:
    """Returns quantiles of the times between successive write-back starts of any reason.

    `dev` as for `writeback_intervals`. Columns: share (0 to 1 in steps of 1/50), interval_s
    (the quantile at that share). Empty if there are fewer than two starts.
    """
    parts = _intervals_of(trace, dev)
    times = spread(parts[parts["reason"] == "all"], ["reason"], _INTERVAL_SHARES)
    rows = [
        (share, float(times[f"p{100 * share:g}"].iloc[0]) / 1e9)
        for share in _INTERVAL_SHARES
        if len(times)
    ]
    return pd.DataFrame(rows, columns=["share", "interval_s"])
