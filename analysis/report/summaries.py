"""Totals counted in the kernel (`tracer record --summary`) over the whole recording."""

from __future__ import annotations

import pandas as pd

from analysis.report.mergeable import Mergeable, whole
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


SUMMARIES = Mergeable(("kind", "name", "dev"), _parts, _finish)


def summaries(trace: Trace) -> pd.DataFrame:
    """Returns the calls, faults, requests and write-back counted in the kernel.

    Columns: kind, name, dev, count, errors, total_s, mean_us, mib; null where a column
    does not apply to the kind.
    """
    return SUMMARIES.of(trace)
