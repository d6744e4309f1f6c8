"""Tables of a page, made from frames: columns with units, and cells with a number to sort by."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import pandas as pd

from tracer.analysis.page.cells import NOTHING, cell, intervals, label
from tracer.analysis.report.tables import DECLARED

MOST_ROWS = 200
MOST_CHARACTERS = 200

_MIB = 1 << 20
_UNITS = {
    "s": "s",
    "ms": "ms",
    "us": "µs",
    "ns": "ns",
    "j": "J",
    "w": "W",
    "mib": "MiB",
    "percent": "%",
    "hz": "Hz",
}
"""Units by the last word of a column's name."""
_SCALED = {
    "bytes": ("data", "MiB", 1 / _MIB),
    "ratio": ("ratio", "%", 100),
    "share": ("share", "%", 100),
    "baseload_share": ("baseload share", "%", 100),
}
"""Columns that are shown in another unit: label, unit, factor."""
_SAMPLE_UNITS = {"bytes": ("MiB", 1 / _MIB), "bytes/s": ("MiB/s", 1 / _MIB), "Hz": ("MHz", 1e-6)}
_IDENTIFIERS = ("pid", "tid", "ppid", "dev", "cpu", "epoch", "pass", "step", "ino")
"""Columns of identifiers, which are shown without thousands separators."""


@dataclass(frozen=True)
class Column:
    """A column's label and unit; `number`: its cells are numbers, aligned right."""

    label: str
    unit: str
    number: bool


@dataclass(frozen=True)
class Cell:
    """A cell's text, and the number to sort it by; None: it is sorted by its text."""

    text: str
    value: float | None


@dataclass(frozen=True)
class PageTable:
    """A table. `more`: the number of rows left out. `meaning`: its columns in words, or ""."""

    id: str
    title: str
    note: str
    columns: list[Column]
    rows: list[list[Cell]]
    more: int
    meaning: str


def page_tables(frames: dict[str, pd.DataFrame]) -> list[PageTable]:
    """Returns the tables of a report. An empty frame gives a table without rows."""
    return [
        page_table(name, frame, table.title, table.note, table.meaning)
        for name, frame in frames.items()
        if (table := DECLARED[name])
    ]


def page_table(
    id: str, frame: pd.DataFrame, title: str, note: str = "", meaning: str = ""
) -> PageTable:
    """Returns a frame as a table of at most `MOST_ROWS` rows; texts are cut at `MOST_CHARACTERS`.

    The columns NAME_low and NAME_high are the interval of NAME, and are shown in its cells.
    """
    shown = frame.head(MOST_ROWS)
    if {"unit", "name", "target", "last"} <= set(shown.columns):
        shown = _readable_samples(shown)
    spans = intervals([str(name) for name in shown.columns])
    ends = {end for span in spans.values() for end in span}
    columns, cells = [], []
    for name in shown.columns:
        if name in ends:
            continue
        said, unit, factor = _SCALED.get(str(name), (*_unit(str(name)), 1.0))
        number = pd.api.types.is_numeric_dtype(shown[name]) and not pd.api.types.is_bool_dtype(
            shown[name]
        )
        identifier = str(name) in _IDENTIFIERS
        columns.append(Column(said, unit, number))
        made = [_cell(value, factor, identifier) for value in _plain(shown[name])]
        if name in spans:
            low, high = (
                [_cell(value, factor, identifier) for value in _plain(shown[end])]
                for end in spans[name]
            )
            made = [_spanned(*three) for three in zip(made, low, high, strict=True)]
        cells.append(made)
    rows = [list(row) for row in zip(*cells, strict=True)] if cells else []
    return PageTable(id, title, note, columns, rows, len(frame) - len(shown), meaning)


def _plain(values: pd.Series[Any]) -> list[Any]:
    return [
        None if not isinstance(value, list | dict) and pd.isna(value) else _python(value)
        for value in values
    ]


def _python(value: Any) -> Any:
    return value.item() if hasattr(value, "item") else value


def _cell(value: Any, factor: float, identifier: bool) -> Cell:
    if isinstance(value, bool) or not isinstance(value, int | float):
        text = cell(value)
        cut = f"{text[:MOST_CHARACTERS]}…" if len(text) > MOST_CHARACTERS else text
        return Cell(cut, None)
    if identifier:
        return Cell(str(value), float(value))
    scaled = value * factor if factor != 1 else value
    finite = math.isfinite(scaled)
    return Cell(cell(scaled) if finite else NOTHING, float(scaled) if finite else None)


def _spanned(middle: Cell, low: Cell, high: Cell) -> Cell:
    """Returns a value with its interval in brackets; a dash is an end that is not known."""
    if middle.value is None or (low.value is None and high.value is None):
        return middle
    return Cell(f"{middle.text} [{low.text}, {high.text}]", middle.value)


def _unit(name: str) -> tuple[str, str]:
    """Returns a column's label and unit: "total" and "s" for total_s."""
    words, _, last = name.rpartition("_")
    return (label(words), _UNITS[last]) if words and last in _UNITS else (label(name), "")


def _readable_samples(frame: pd.DataFrame) -> pd.DataFrame:
    """Converts samples from bytes and Hz to MiB and MHz."""
    factors = frame["unit"].map(lambda unit: _SAMPLE_UNITS.get(unit, (unit, 1.0))[1])
    units = frame["unit"].map(lambda unit: _SAMPLE_UNITS.get(unit, (unit, 1.0))[0])
    values = {
        name: pd.to_numeric(frame[name]) * factors
        for name in ("min", "mean", "max", "last", "growth")
        if name in frame
    }
    return frame.assign(unit=units, **values)
