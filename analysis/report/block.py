"""The table of block requests."""

from __future__ import annotations

import pandas as pd

from tracer.analysis.report.histogram import buckets, spread
from tracer.analysis.report.mergeable import added, whole
from tracer.analysis.report.table import QUANTILES, Column, MergedTable
from tracer.analysis.views.disks.requests import requests
from tracer.analysis.views.disks.volumes import on_device, requests_on_one_level
from tracer.store.trace import Trace

_KEYS = ["dev", "operation"]


def _parts(trace: Trace, dev: str | None = None) -> pd.DataFrame:
    requests(trace)
    return _parts_of(trace, on_device(trace, dev))


def _parts_of(trace: Trace, chosen: str) -> pd.DataFrame:
    view = f"(SELECT * FROM requests WHERE {chosen})"
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
            -- Some formats that are imported do not tell whether a request failed.
            CASE WHEN bool_or(error IS NOT NULL) OR bool_and(complete_ns IS NULL)
                THEN count(*) FILTER (error != 0)::DOUBLE END AS errors
        FROM {view} GROUP BY dev, operation
        UNION ALL BY NAME {spreads}
        """
    )


def _finish(parts: pd.DataFrame) -> pd.DataFrame:
    of = {str(name): rows for name, rows in parts.groupby("part")}
    empty = parts[:0]
    found = of.get("requests", empty).rename(columns={"n": "requests"})
    found = found[[*_KEYS, "requests", "bytes", "unfinished", "errors"]].astype(
        dict.fromkeys(("requests", "unfinished"), "int64")
    )
    for name in ("bytes", "errors"):
        found[name] = whole(found[name])
    for part in ("queue", "service"):
        times = spread(of.get(part, empty), _KEYS)[["mean", "p50", "p99", "max"]] / 1e6
        times.columns = [f"{part}_{name}_ms" for name in times.columns]
        found = found.merge(times.reset_index(), on=_KEYS, how="left")
    return found.sort_values(["requests", *_KEYS], ascending=[False, True, True], ignore_index=True)


BLOCK_LATENCY = MergedTable(
    "block_latency",
    "Block requests: latency in ms, queued to issued and issued to completed",
    (
        Column("dev", "device", "dev", text=True),
        Column("operation", "read, write, flush, ...", "op", text=True),
        Column("requests", "how many", "requests"),
        Column("bytes", "data", "MiB", factor=2**-20),
        Column("unfinished", "how many did not complete"),
        Column("errors", "how many failed; null: the source of the trace does not tell"),
        Column("queue_mean_ms", "mean time from queued to issued"),
        Column("queue_p50_ms", "its median", "queue p50"),
        Column("queue_p99_ms", "its 99th percentile", "p99"),
        Column("queue_max_ms", "its longest"),
        Column("service_mean_ms", "mean time from issued to completed"),
        Column("service_p50_ms", "its median", "service p50"),
        Column("service_p99_ms", "its 99th percentile", "p99"),
        Column("service_max_ms", "its longest"),
    ),
    needs=("block",),
    keys=(*_KEYS, "part", "bucket"),
    unknown=("errors",),
    parts=_parts,
    finish=_finish,
    note=QUANTILES,
)


def operation_times(trace: Trace, dev: str | None = None) -> pd.DataFrame:
    """Returns times of block requests by operation, on one device or on all together.

    On all together, a request to a device and those for it on the devices below count once.

    Columns: operation, part (queue: queued to issued; service: issued to completed), mean_ms,
    p50_ms, p99_ms. Times below 0, which result from clock jumps, are left out. Quantiles are
    those of `histogram.spread`.
    """
    requests(trace)
    parts = _parts_of(trace, requests_on_one_level(trace, dev))
    those = parts["part"].isin(("queue", "service")) & (parts["min_ns"] >= 0)
    of_all = added(parts[those].drop(columns="dev"), ["operation", "part", "bucket"])
    times = spread(of_all, ["operation", "part"])[["mean", "p50", "p99"]] / 1e6
    return times.add_suffix("_ms").reset_index()


def block_latency(trace: Trace) -> pd.DataFrame:
    """Returns block requests by device and operation. `BLOCK_LATENCY` has the columns."""
    return BLOCK_LATENCY.of(trace)
