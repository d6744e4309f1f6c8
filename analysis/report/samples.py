"""The report's table of samples."""

from __future__ import annotations

import pandas as pd

from tracer.analysis.report.table import Column, ReportTable
from tracer.probes.sampler.catalogue import COUNTERS, SERIES
from tracer.store.trace import Trace


def samples(trace: Trace) -> pd.DataFrame:
    """Returns one row per series of each target and of the machine. `SAMPLES` has the columns.

    Series whose values identify something are left out.
    """
    trace.require("samples")
    frame = trace.sql(
        """
        WITH steps AS (
            SELECT *, value - lag(value) OVER w AS grown, ts::HUGEINT - lag(ts) OVER w AS ns
            FROM samples WHERE value IS NOT NULL
            WINDOW w AS (PARTITION BY target, name, instance ORDER BY ts)
        )
        SELECT target, name, instance, unit, count(*) AS samples, min(value) AS min,
            -- In order of time, because the sum of floats depends on their order.
            list_avg(list(value ORDER BY ts)) AS mean, max(value) AS max,
            arg_max(value, ts) AS last,
            list_sum(list(grown ORDER BY ts) FILTER (grown >= 0)) AS growth,
            growth / (sum(ns) FILTER (grown >= 0) / 1e9) AS speed
        FROM steps GROUP BY ALL
        """
    )
    frame = frame[~frame["name"].isin(_IDENTITIES)]
    order = {name: place for place, name in enumerate(_ORDER)}
    frame = frame.assign(place=frame["name"].map(order))
    frame = frame.sort_values(["target", "place", "name", "instance"], na_position="last")
    frame = frame.drop(columns="place").reset_index(drop=True)
    keys = [tuple(key) for key in frame[["target", "name", "instance"]].fillna("").to_numpy()]
    speeds = dict(zip(keys, frame.pop("speed"), strict=True))
    for row, (target, name, instance) in enumerate(keys):
        if (counter := COUNTERS.get(name)) is not None and counter.rate is not None:
            speed = speeds.get((target, counter.name, instance))
            if speed is not None and pd.notna(speed):
                frame.loc[row, "mean"] = speed * counter.rate.scale
    frame["growth"] = frame["growth"].where(frame["name"].isin(_COUNTERS))
    return frame


_COUNTERS = {series.name for series in COUNTERS.values()}
_IDENTITIES = {series.name for series in SERIES.values() if series.identifies}
_ORDER = [
    name
    for series in SERIES.values()
    for name in ([series.rate.name] if series.rate else []) + [series.name]
]


SAMPLES = ReportTable(
    "samples",
    "Samples",
    (
        Column("target", "whose; null: the machine's"),
        Column("name", "series"),
        Column("instance", "which disk, GPU, CPU, ..."),
        Column("unit", "unit of the values"),
        Column("samples", "how many"),
        Column("min", "least value"),
        Column("mean", "of a rate: its counter's growth divided by the time; otherwise of samples"),
        Column("max", "greatest value"),
        Column("last", "last value"),
        Column("growth", "of a counter, from the first sample to the last"),
    ),
    needs=("samples",),
    make=samples,
)
