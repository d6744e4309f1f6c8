"""Formatting of values as text, the same in every format."""

from __future__ import annotations

from typing import Any

from tracer.probes.text import printable

NOTHING = "-"
"""Text for a value that was not measured or that the paper does not give; never for 0."""

_DIGITS = 4
_WHOLE = 1_000
_LARGE = 1e15


def cell(value: Any) -> str:
    """Formats a number with about four significant digits, or a name without control characters."""
    if value is None or value != value:
        return NOTHING
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        return f"{value:,}"
    if isinstance(value, float):
        if abs(value) >= _LARGE:
            return f"{value:.3e}"
        if abs(value) >= _WHOLE or value == int(value):
            return f"{value:,.0f}"
        return f"{value:.{_DIGITS}g}"
    return printable(str(value))


def label(column: str) -> str:
    """Returns a column's readable name: `increase_percent_low` is "increase percent low"."""
    return column.replace("_", " ")


def intervals(columns: list[str]) -> dict[str, tuple[str, str]]:
    """Returns the columns that have an interval, each with the columns of its ends."""
    return {
        name: (f"{name}_low", f"{name}_high")
        for name in columns
        if f"{name}_low" in columns and f"{name}_high" in columns
    }


def rows(records: list[dict[str, Any]], columns: list[str]) -> tuple[list[str], list[list[str]]]:
    """Returns labels and cells; an interval follows its value in brackets."""
    spans = intervals(columns)
    ends = {end for span in spans.values() for end in span}
    kept = [name for name in columns if name not in ends]
    made = []
    for record in records:
        line = []
        for name in kept:
            said = cell(record[name])
            if name in spans and said != NOTHING and record[spans[name][0]] is not None:
                low, high = (cell(record[end]) for end in spans[name])
                said = f"{said} [{low}, {high}]"
            line.append(said)
        made.append(line)
    return [label(name) for name in kept], made
