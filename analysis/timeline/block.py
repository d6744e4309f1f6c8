"""Lanes of block requests, by device: latency and throughput.

Quantiles are those of `tracer.analysis.report.histogram`. The database computes them, so that no
single values are kept in memory.
"""

from __future__ import annotations

import pandas as pd

from tracer.analysis.report.histogram import buckets, spread_query
from tracer.analysis.timeline.axis import Axis, show_width
from tracer.analysis.timeline.binned import count_query, counted
from tracer.analysis.timeline.lane import Kind, Lane
from tracer.analysis.views.disks.requests import requests
from tracer.probes.events.block import SECTOR_BYTES
from tracer.probes.text import shortened
from tracer.store.trace import Trace

MOST_DEVICES = 4
MOST_BINS = 500
"""Most bins of a latency lane. Wider bins have more requests, which a quantile needs."""
_MIB = 1 << 20
_MOST_NAME = 40
_PARTS = {"queued to issued": "queue_latency_ns", "issued to completed": "service_latency_ns"}


def devices(trace: Trace) -> tuple[list[str], int]:
    """Returns the devices with the most requests, and the number of other devices.

    A device without a number (MAJOR:MINOR) counts among the others. Needs the table block.
    """
    found = trace.sql(
        f"SELECT dev, regexp_full_match(coalesce(dev, ''), '[0-9]{{1,9}}:[0-9]{{1,9}}') AS known"
        f" FROM {requests(trace)} GROUP BY dev ORDER BY known DESC, count(*) DESC, dev"
    )
    shown = [str(dev) for dev in found[found["known"]]["dev"][:MOST_DEVICES]]
    return shown, len(found) - len(shown)


def block_lanes(trace: Trace, axis: Axis) -> list[Lane]:
    """Returns two lanes per device: latency, and throughput by operation in MiB/s.

    Their frames are those of `latencies` and `counted`. Needs the table block.
    """
    shown, more = devices(trace)
    coarse = axis.coarser(MOST_BINS)
    names = {disk.get("dev"): disk.get("name") for disk in trace.manifest.get("disks", [])}
    lanes = []
    for number, dev in enumerate(shown):
        title = f"{dev} ({shortened(str(names[dev]), _MOST_NAME)})" if names.get(dev) else dev
        note = f"The tables have {more} more devices." if more and number == 0 else ""
        lanes.append(
            Lane(
                "Block devices",
                f"Block latency of {title}",
                "ms",
                Kind.LATENCIES,
                latencies(trace, coarse, dev),
                f"By time of completion, in bins of {show_width(coarse)}. {note}".strip(),
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
                "By time of completion.",
                count_query(axis, rows),
            )
        )
    return lanes


def latencies(trace: Trace, axis: Axis, dev: str) -> pd.DataFrame:
    """Returns the latencies of a device's requests, by the bin in which they completed.

    Columns: series (queued to issued, issued to completed), from_s, to_s, requests, p50_ms, p99_ms,
    max_ms. One row per series and bin with requests. Quantiles are those of `histogram.spread`.
    """
    return trace.sql(latency_query(trace, axis, dev))


def latency_query(trace: Trace, axis: Axis, dev: str) -> str:
    """Returns the SQL of `latencies`."""
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
