"""The table of system calls."""

from __future__ import annotations

import pandas as pd

from tracer.analysis.report.histogram import buckets, spread
from tracer.analysis.report.table import QUANTILES, Column, MergedTable
from tracer.analysis.views.threads import make_threads, owns
from tracer.store.trace import Trace


def _parts(trace: Trace) -> pd.DataFrame:
    trace.require("syscalls")
    return _parts_of(trace, "syscalls")


def _parts_of(trace: Trace, rows: str) -> pd.DataFrame:
    return trace.sql(
        f"""
        SELECT name, {buckets("dur_ns")}, count(*) FILTER (ret BETWEEN -4095 AND -1) AS errors
        FROM {rows} GROUP BY ALL
        """
    )


def _finish(parts: pd.DataFrame) -> pd.DataFrame:
    found = pd.DataFrame(
        {
            "calls": parts.groupby("name", dropna=False)["n"].sum(),
            "errors": parts.groupby("name", dropna=False)["errors"].sum(),
            "unfinished": parts["n"]
            .where(parts["bucket"].isna(), 0)
            .groupby(parts["name"], dropna=False)
            .sum(),
        }
    ).astype("int64")
    times = spread(parts, ["name"])
    found["total_s"] = times["total"] / 1e9
    for column, of in {
        "mean_us": "mean",
        "p50_us": "p50",
        "p99_us": "p99",
        "max_us": "max",
    }.items():
        found[column] = times[of] / 1e3
    return found.reset_index().sort_values(
        ["total_s", "calls", "name"], ascending=[False, False, True], ignore_index=True
    )


SYSCALLS = MergedTable(
    "syscalls",
    "System calls of the targets, by time",
    (
        Column("name", "system call", "call", text=True),
        Column("calls", "how many were entered", "calls"),
        Column("errors", "how many returned an error", "errors"),
        Column("unfinished", "how many did not return"),
        Column("total_s", "wall time in the call, including waits", "total s"),
        Column("mean_us", "mean of that time", "mean us"),
        Column("p50_us", "median"),
        Column("p99_us", "99th percentile", "p99 us"),
        Column("max_us", "longest"),
    ),
    needs=("syscalls",),
    keys=("name", "bucket"),
    parts=_parts,
    finish=_finish,
    note=f"Times are wall times, including waits. {QUANTILES}",
)


def syscalls(trace: Trace) -> pd.DataFrame:
    """Returns the system calls of the targets by name, longest total time first.

    `SYSCALLS` has the columns.
    """
    return SYSCALLS.of(trace)


def syscalls_of_jobs(trace: Trace) -> pd.DataFrame:
    """Returns the same table without the calls of the Docker daemon and its command line."""
    trace.require("syscalls")
    make_threads(trace)
    daemons = f"(SELECT * FROM threads WHERE role = 'daemon') o ON {owns('o', 'e')}"
    return _finish(_parts_of(trace, f"(SELECT e.* FROM syscalls e ANTI JOIN {daemons})"))
