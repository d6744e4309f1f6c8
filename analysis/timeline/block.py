"""Lanes of block requests, of each device: how long they take, and what they carry.

Quantiles are those of `analysis.report.histogram`, made where the requests are: no value is held.
"""

from __future__ import annotations

import pandas as pd

from analysis.report.histogram import buckets, spread_query
from analysis.timeline.axis import Axis, show_width
from analysis.timeline.binned import count_query, counted
from analysis.timeline.lane import Kind, Lane
from analysis.views.requests import requests
from probes.block import SECTOR_BYTES
from tracer.store.trace import Trace

MOST_DEVICES = 4
MOST_BINS = 500
"""Of latencies: a quantile of few requests says little."""
_MIB = 1 << 20
_MOST_NAME = 40
_PARTS = {"queued to issued": "queue_latency_ns", "issued to completed": "service_latency_ns"}


def devices(trace: Trace) -> tuple[list[str], int]:
    """The devices with most requests, and how many more there are. Needs table block.

    A device that has no number (MAJOR:MINOR) is among the others.
    """
    found = trace.sql(
        f"SELECT dev, regexp_full_match(coalesce(dev, ''), '[0-9]{{1,9}}:[0-9]{{1,9}}') AS known"
        f" FROM {requests(trace)} GROUP BY dev ORDER BY known DESC, count(*) DESC, dev"
    )
    shown = [str(dev) for dev in found[found["known"]]["dev"][:MOST_DEVICES]]
    return shown, len(found) - len(shown)


def block_lanes(trace: Trace, axis: Axis) -> list[Lane]:
    """Two lanes a device: latencies (frame of `latencies`), and throughput by operation (frame of
    `counted`, MiB/s). Needs table block."""
    shown, more = devices(trace)
    coarse = axis.coarser(MOST_BINS)
    names = {disk.get("dev"): disk.get("name") for disk in trace.manifest.get("disks", [])}
    lanes = []
    for number, dev in enumerate(shown):
        title = f"{dev} ({str(names[dev])[:_MOST_NAME]})" if names.get(dev) else dev
        note = f"{more} more devices are in the tables." if more and number == 0 else ""
        lanes.append(
            Lane(
                "Block devices",
                f"Block latency of {title}",
                "ms",
                Kind.LATENCIES,
                latencies(trace, coarse, dev),
                f"By when a request completed, over {show_width(coarse)} each. {note}".strip(),
                latency_query(trace, coarse, dev),
            )
        )
        rows = _carried(trace, dev)
        lanes.append(
            Lane(
                "Block devices",
                f"Throughput of {title}",
                "MiB/s",
                Kind.AREAS,
                counted(trace, axis, rows, a_second=1 / _MIB),
                "By when a request completed.",
                count_query(axis, rows),
            )
        )
    return lanes


def latencies(trace: Trace, axis: Axis, dev: str) -> pd.DataFrame:
    """How long a device's requests took, by the bin in which they completed.

    Columns: series (queued to issued, issued to completed), from_s, to_s, requests, p50_ms, p99_ms,
    max_ms; a row a bin with requests. Quantiles as `histogram.spread`.
    """
    return trace.sql(latency_query(trace, axis, dev))


def latency_query(trace: Trace, axis: Axis, dev: str) -> str:
    """SQL: see `latencies`."""
    rows = " UNION ALL ".join(
        f"SELECT '{name}' AS series, complete_ns AS ts, {column} AS ns FROM {requests(trace)}"
        f" WHERE dev = '{dev}' AND {column} >= 0"
        for name, column in _PARTS.items()
    )
    histogram = (
        f"SELECT series, {axis.bin('ts')} AS bin, {buckets('ns')} FROM ({rows})"
        f" WHERE {axis.within('ts')} GROUP BY ALL"
    )
    return f"""
        SELECT series, {axis.span("bin")}, values AS requests, p50_ns / 1e6 AS p50_ms,
            p99_ns / 1e6 AS p99_ms, max_ns / 1e6 AS max_ms
        FROM ({spread_query(histogram, ("series", "bin"))}) ORDER BY series DESC, bin
        """


def _carried(trace: Trace, dev: str) -> str:
    return (
        f"SELECT complete_ns AS ts, operation AS series,"
        f" greatest(nr_sector, 0)::DOUBLE * {SECTOR_BYTES} AS amount FROM {requests(trace)}"
        f" WHERE dev = '{dev}' AND nr_sector > 0"
    )
