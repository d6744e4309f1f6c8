"""The table of block requests."""

from __future__ import annotations

import pandas as pd

from analysis.report.histogram import buckets, spread
from analysis.report.mergeable import Mergeable, added, whole
from analysis.views.requests import requests
from analysis.views.volumes import on_device
from tracer.store.trace import Trace

_KEYS = ["dev", "operation"]


def _parts(trace: Trace, dev: str | None = None) -> pd.DataFrame:
    view = f"(SELECT * FROM {requests(trace)} WHERE {on_device(trace, dev)})"
    # BY NAME: the counted rows and the histogram rows have different columns.
    spreads = " UNION ALL BY NAME ".join(
        f"SELECT dev, operation, '{part}' AS part, {buckets(f'{part}_latency_ns')} FROM {view}"
        f" WHERE {part}_latency_ns IS NOT NULL GROUP BY ALL"
        for part in ("queue", "service")
    )
    return trace.sql(
        f"""
        SELECT dev, operation, 'requests' AS part, NULL::BIGINT AS bucket, count(*) AS n,
            512 * sum(nr_sector)::DOUBLE AS bytes,
            count(*) FILTER (complete_ns IS NULL) AS unfinished,
            count(*) FILTER (error != 0) AS errors
        FROM {view} GROUP BY dev, operation
        UNION ALL BY NAME {spreads}
        """
    )


def _finish(parts: pd.DataFrame) -> pd.DataFrame:
    of = {str(name): rows for name, rows in parts.groupby("part")}
    empty = parts[:0]
    found = of.get("requests", empty).rename(columns={"n": "requests"})
    found = found[[*_KEYS, "requests", "bytes", "unfinished", "errors"]].astype(
        dict.fromkeys(("requests", "unfinished", "errors"), "int64")
    )
    found["bytes"] = whole(found["bytes"])
    for part in ("queue", "service"):
        times = spread(of.get(part, empty), _KEYS)[["mean", "p50", "p99", "max"]] / 1e6
        times.columns = [f"{part}_{name}_ms" for name in times.columns]
        found = found.merge(times.reset_index(), on=_KEYS, how="left")
    return found.sort_values(["requests", *_KEYS], ascending=[False, True, True], ignore_index=True)


BLOCK_LATENCY = Mergeable((*_KEYS, "part", "bucket"), _parts, _finish)


def operation_times(trace: Trace, dev: str | None = None) -> pd.DataFrame:
    """Returns times of block requests by operation, on one device or on all together.

    Columns: operation, part (queue: queued to issued; service: issued to completed), mean_ms,
    p50_ms, p99_ms. Times below 0, which result from clock jumps, are left out. Quantiles are
    those of `histogram.spread`.
    """
    parts = _parts(trace, dev)
    those = parts["part"].isin(("queue", "service")) & (parts["min_ns"] >= 0)
    of_all = added(parts[those].drop(columns="dev"), ["operation", "part", "bucket"])
    times = spread(of_all, ["operation", "part"])[["mean", "p50", "p99"]] / 1e6
    return times.add_suffix("_ms").reset_index()


def block_latency(trace: Trace) -> pd.DataFrame:
    """Returns block requests by device and operation.

    Columns: dev, operation, requests, bytes, unfinished (no completion seen), errors; queue_*
    (queued to issued) and service_* (issued to completed): mean_ms, p50_ms, p99_ms, max_ms.
    Quantiles are those of `histogram.spread`.
    """
    return BLOCK_LATENCY.of(trace)
