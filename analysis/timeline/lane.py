"""The class of lanes of the timeline."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

import pandas as pd

MOST_LINES = 6
"""Most series that a lane of lines draws one by one: those that look apart."""


class Kind(Enum):
    """The layout of a lane's frame, which decides how it is drawn."""

    AREAS = "areas"
    """Columns from_s, to_s, and one per series; the series add up. One row per bin."""
    LINES = "lines"
    """Columns series, at_s, value. One row per series and bin with a value."""
    LATENCIES = "latencies"
    """Columns series, from_s, to_s, requests, p50_ms, p99_ms, max_ms. One row per series and bin
    with requests."""
    SPANS = "spans"
    """Columns thread, depth, name, epoch, step, from_s, to_s, spans, ended."""
    PLACES = "places"
    """Columns from_s, to_s, row, dev, first_page, last_page, pages."""
    FILES = "files"
    """Columns from_s, to_s, row, file, pages."""


@dataclass(frozen=True)
class Lane:
    """Values over time. Times are in s since the start of the recording; values are in `unit`.

    `note`: remarks for the reader, for example on values that are left out, or "". `query`: the SQL
    that gives the numbers, for `tracer query`; "" if no single query does.
    """

    group: str
    title: str
    unit: str
    kind: Kind
    frame: pd.DataFrame
    note: str = ""
    query: str = ""
