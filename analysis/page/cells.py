"""Values as text, the same in every format."""

from __future__ import annotations

from typing import Any

from tracer.cli.main import plain

NOTHING = "-"
"""The text for a value that was not measured, or that the paper does not give; never 0."""

_DIGITS = 4
_WHOLE = 1_000
_LARGE = 1e15


def cell(value: Any) -> str:
    """A number with some four digits that matter, a name without control characters."""
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
    return plain(str(value))


def label(column: str) -> str:
    """A column's name for people: `increase_percent_low` is "increase percent low"."""
    return column.replace("_", " ")


def intervals(columns: list[str]) -> dict[str, tuple[str, str]]:
    """Columns that have an interval, with the two that it is in."""
    return {
        name: (f"{name}_low", f"{name}_high")
        for name in columns
        if f"{name}_low" in columns and f"{name}_high" in columns
    }


def rows(records: list[dict[str, Any]], columns: list[str]) -> tuple[list[str], list[list[str]]]:
    """Labels and cells; an interval stands behind its value, in brackets."""
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
