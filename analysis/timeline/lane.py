"""What a lane of the timeline is."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

import pandas as pd


class Kind(Enum):
    """How a lane's frame is laid out, and so how it can be drawn."""

    AREAS = "areas"
    """Columns from_s, to_s, and one a series that add up; a row a bin, all of them."""
    LINES = "lines"
    """Columns series, at_s, value; a row a bin that has a value."""
    LATENCIES = "latencies"
    """Columns series, from_s, to_s, requests, p50_ms, p99_ms, max_ms; a row a bin with requests."""
    SPANS = "spans"
    """Columns thread, depth, name, epoch, step, from_s, to_s, spans, ended."""
    PLACES = "places"
    """Columns from_s, to_s, row, dev, first_page, last_page, pages."""
    FILES = "files"
    """Columns from_s, to_s, row, file, pages."""


@dataclass(frozen=True)
class Lane:
    """Something over time. Times in s since the recording began, `unit` that of the values.

    `note`: what has to be known of it, what was left out, too; else "". `query`: the SQL that gives
    the numbers, for `tracer query`; "" where no single one does.
    """

    group: str
    title: str
    unit: str
    kind: Kind
    frame: pd.DataFrame
    note: str = ""
    query: str = ""
