"""Binning of events and of intervals, by series.

The database groups the table. The result has one row per bin and series, independent of the length
of the table.
"""

from __future__ import annotations

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from tracer.analysis.timeline.axis import Axis
from tracer.store.trace import Trace

MOST_SERIES = 6
"""Most series that are drawn. If there are more, the last one is `REST`, the sum of the others."""
REST = "the rest"
UNKNOWN = "not known"


def count_query(axis: Axis, rows: str) -> str:
    """Returns SQL for the sums of `counted`."""
    return (
        f"SELECT {axis.bin('ts')} AS bin, coalesce(series, '{UNKNOWN}') AS series,"
        f" sum(amount)::DOUBLE AS amount FROM ({rows}) WHERE {axis.within('ts')} GROUP BY ALL"
    )


def counted(trace: Trace, axis: Axis, rows: str, a_second: float | None = None) -> pd.DataFrame:
    """Sums amounts by bin and series.

    `rows`: a query for ts (ns), series (null: not known) and amount (1 to count the rows). With
    `a_second`, the sums are multiplied by it and divided by the width of a bin in s.

    Columns: from_s, to_s, and one per series, the greatest first. One row per bin; 0 in empty bins.
    """
    found = _largest(trace, count_query(axis, rows))
    scale = 1.0 if a_second is None else a_second / axis.width_s
    return _wide(axis, {name: _dense(axis, own, "amount") * scale for name, own in found})


def cover_query(axis: Axis, intervals: str) -> str:
    """Returns SQL for the intervals that begin and end in each bin; see `covered`."""
    width = axis.width_ns
    # The start of the next bin minus the time: the part of its own bin after the time.
    rest = f"({{bin}} + 1)::DOUBLE * {width} - ({{at}} - {axis.start_ns})"
    edge = (
        "SELECT {bin} AS bin, series, {sign} * count(*) AS n, {sign} * sum({rest}) AS ns,"
        " {sign} * sum(until - start) AS whole_ns FROM spans GROUP BY ALL"
    )
    edges = " UNION ALL ".join(
        edge.format(bin=axis.bin(at), sign=sign, rest=rest.format(bin=axis.bin(at), at=at))
        for at, sign in (("start", "1"), ("until", "-1"))
    )
    return (
        f"WITH spans AS NOT MATERIALIZED (SELECT coalesce(series, '{UNKNOWN}') AS series,"
        f" greatest(start, {axis.start_ns}) AS start, {axis.ended('start', 'ns')} AS until"
        f" FROM ({intervals}) WHERE {axis.overlaps('start', 'ns')})"
        " SELECT bin, series, sum(n)::DOUBLE AS opened, sum(ns)::DOUBLE AS ns,"
        " coalesce(sum(whole_ns) FILTER (n > 0), 0)::DOUBLE AS amount"
        f" FROM ({edges}) GROUP BY ALL"
    )


def covered(trace: Trace, axis: Axis, intervals: str) -> pd.DataFrame:
    """Returns the mean number of open intervals of each series in each bin.

    `intervals`: a query for series, start and ns (null: not known; such rows do not count).
    Intervals are cut at both ends of the axis. An interval counts in each of its bins with the
    fraction of the bin that it covers. The sum over all bins times the width of a bin is the sum of
    all lengths on the axis.

    Columns: from_s, to_s, and one per series, the series with the most time first.
    """
    series = {}
    for name, own in _largest(trace, cover_query(axis, intervals)):
        opened = _dense(axis, own, "opened")
        before = np.concatenate([[0.0], np.cumsum(opened)[:-1]])
        open_ns = before * axis.width_ns + _dense(axis, own, "ns")
        series[name] = np.maximum(open_ns, 0) / axis.width_ns
    return _wide(axis, series)


def _largest(trace: Trace, grouped: str) -> list[tuple[str, pd.DataFrame]]:
    """Returns (name, frame) of the series with the greatest amounts, and of all others together."""
    found = trace.sql(
        f"""
        WITH grouped AS MATERIALIZED ({grouped}), ranked AS (
            SELECT series, row_number() OVER (ORDER BY sum(amount) DESC, series) AS place,
                count(*) OVER () AS of
            FROM grouped GROUP BY series
        )
        SELECT least(place, {MOST_SERIES}) AS place, grouped.* EXCLUDE (series),
            CASE WHEN place < {MOST_SERIES} OR of <= {MOST_SERIES} THEN series ELSE '{REST}' END
                AS series
        FROM grouped JOIN ranked USING (series)
        """
    )
    return [(str(own["series"].iloc[0]), own) for _, own in found.groupby("place", sort=True)]


def _dense(axis: Axis, own: pd.DataFrame, column: str) -> NDArray[np.float64]:
    sums = np.zeros(axis.bins)
    np.add.at(sums, own["bin"].to_numpy(np.int64), own[column].to_numpy(np.float64))
    return sums


def _wide(axis: Axis, series: dict[str, NDArray[np.float64]]) -> pd.DataFrame:
    begins = np.arange(axis.bins) * axis.width_s
    columns = {"from_s": begins, "to_s": begins + axis.width_s}
    # The names of series come from the trace. One may equal the name of another column.
    named = {f"{name} " if name in columns else name: values for name, values in series.items()}
    return pd.DataFrame({**columns, **named})
