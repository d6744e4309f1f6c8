"""Totals counted in the kernel (`tracer record --summary`) over the whole recording."""

from __future__ import annotations

import pandas as pd

from tracer.analysis.report.mergeable import whole
from tracer.analysis.report.table import Column, MergedTable
from tracer.store.trace import Trace


def _parts(trace: Trace) -> pd.DataFrame:
    trace.require("summaries")
    return trace.sql(
        """
        SELECT kind, name, dev, sum(count)::DOUBLE AS count, sum(errors)::DOUBLE AS errors,
            sum(total_ns)::DOUBLE AS total_ns, sum(bytes)::DOUBLE AS bytes
        FROM summaries GROUP BY kind, name, dev
        """
    )


def _finish(parts: pd.DataFrame) -> pd.DataFrame:
    found = parts[["kind", "name", "dev"]].assign(
        count=whole(parts["count"]),
        errors=whole(parts["errors"]),
        total_s=parts["total_ns"] / 1e9,
        mean_us=parts["total_ns"] / parts["count"].where(parts["count"] > 0) / 1e3,
        mib=parts["bytes"] / 2**20,
    )
    return found.sort_values(
        ["kind", "total_s", "count", "name", "dev"],
        ascending=[True, False, False, True, True],
        ignore_index=True,
    )


SUMMARIES = MergedTable(
    "summaries",
    "Counted in the kernel (--summary)",
    (
        Column("kind", "what was counted", "kind", text=True),
        Column("name", "call, kind of fault, operation or reason", "name", text=True),
        Column("dev", "device", "dev", text=True),
        Column("count", "how many", "n"),
        Column("errors", "calls that returned an error", "errors"),
        Column("total_s", "time together", "total s"),
        Column("mean_us", "mean time", "mean us"),
        Column("mib", "data", "MiB"),
    ),
    needs=("summaries",),
    keys=("kind", "name", "dev"),
    parts=_parts,
    finish=_finish,
    note="A dash: the column does not apply to the kind.",
)


def summaries(trace: Trace) -> pd.DataFrame:
    """Returns the calls, faults, requests and write-back counted in the kernel.

    `SUMMARIES` has the columns; null: the column does not apply to the kind.
    """
    return SUMMARIES.of(trace)
