"""Events, and time within intervals, in bins by a series.

A table is grouped in the database: what comes back has a row a bin and series, however many rows
the table has.
"""

from __future__ import annotations

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from analysis.timeline.axis import Axis
from tracer.store.trace import Trace

MOST_SERIES = 6
"""So many are drawn apart; the rest is `REST`."""
REST = "the rest"
UNKNOWN = "not known"


def count_query(axis: Axis, rows: str) -> str:
    """SQL: the sums of counts; see `counted`."""
    return (
        f"SELECT {axis.bin('ts')} AS bin, coalesce(series, '{UNKNOWN}') AS series,"
        f" sum(amount)::DOUBLE AS amount FROM ({rows}) WHERE {axis.within('ts')} GROUP BY ALL"
    )


def counted(trace: Trace, axis: Axis, rows: str, a_second: float | None = None) -> pd.DataFrame:
    """Sum amounts by bin and series.

    `rows`: a query of ts (ns), series (null: not known) and amount (1 for each: their number).
    `a_second`: the sums are multiplied by it and divided by the bins' width.

    Columns: from_s, to_s, and one a series, the greatest first; a row a bin, 0 where nothing was.
    """
    found = _largest(trace, count_query(axis, rows))
    scale = 1.0 if a_second is None else a_second / axis.width_s
    return _wide(axis, {name: _dense(axis, own, "amount") * scale for name, own in found})


def cover_query(axis: Axis, intervals: str) -> str:
    """SQL: what is opened and closed in each bin; see `covered`."""
    width = axis.width_ns
    # The next bin's begin less the time: what of its own bin lies behind it.
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
        f"WITH spans AS NOT MATERIALIZED (SELECT coalesce(series, '{UNKNOWN}') AS series, start,"
        f" start + least(ns, {axis.end_ns} - start) AS until"
        f" FROM ({intervals}) WHERE {axis.within('start')} AND ns >= 0)"
        " SELECT bin, series, sum(n)::DOUBLE AS opened, sum(ns)::DOUBLE AS ns,"
        " coalesce(sum(whole_ns) FILTER (n > 0), 0)::DOUBLE AS amount"
        f" FROM ({edges}) GROUP BY ALL"
    )


def covered(trace: Trace, axis: Axis, intervals: str) -> pd.DataFrame:
    """How many intervals of each series were open on average, bin by bin.

    `intervals`: a query of series, start and ns (null: not known, does not count). What reaches
    beyond the axis is cut at its end. An interval counts in each of its bins with the part of the
    bin that it covers; the sum over the bins times their width is the sum of all lengths.

    Columns: from_s, to_s, and one a series, the one with most time first.
    """
    series = {}
    for name, own in _largest(trace, cover_query(axis, intervals)):
        opened = _dense(axis, own, "opened")
        before = np.concatenate([[0.0], np.cumsum(opened)[:-1]])
        open_ns = before * axis.width_ns + _dense(axis, own, "ns")
        series[name] = np.maximum(open_ns, 0) / axis.width_ns
    return _wide(axis, series)


def _largest(trace: Trace, grouped: str) -> list[tuple[str, pd.DataFrame]]:
    """Frames of the series with the greatest amounts, and one of all others together."""
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
    # A series is named by the trace: it may have the name of a column of ours.
    named = {f"{name} " if name in columns else name: values for name, values in series.items()}
    return pd.DataFrame({**columns, **named})
