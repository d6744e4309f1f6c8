"""The table of system calls."""

from __future__ import annotations

import pandas as pd

from analysis.report.histogram import buckets, spread
from analysis.report.mergeable import Mergeable
from tracer.store.trace import Trace


def _parts(trace: Trace) -> pd.DataFrame:
    trace.require("syscalls")
    return trace.sql(
        f"""
        SELECT name, {buckets("dur_ns")}, count(*) FILTER (ret BETWEEN -4095 AND -1) AS errors
        FROM syscalls GROUP BY ALL
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


SYSCALLS = Mergeable(("name", "bucket"), _parts, _finish)


def syscalls(trace: Trace) -> pd.DataFrame:
    """Returns the system calls of the targets by name, longest total time first.

    Columns: name, calls, errors, unfinished (did not return), total_s, mean_us, p50_us, p99_us,
    max_us. Times are wall time in the call, including waits. Quantiles are those of
    `histogram.spread`.
    """
    return SYSCALLS.of(trace)
