"""Trace, query and expected table side by side, each as a small table of text.

Columns are parted by |; - is null. What a row leaves out of a trace's table is null, or 0.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tests.support.traces import make_trace
from tracer.analysis.views.catalogue import make_named
from tracer.probes.schema import Table, Type
from tracer.store.trace import ALL_TABLES


def check(folder: Path, trace: dict[str, str], query: str, expected: str, **manifest: Any) -> None:
    """Makes the trace, runs the query, and compares the answer with the expected rows."""
    content = {name: _rows(ALL_TABLES[name], text) for name, text in trace.items()}
    with make_trace(folder / "t", content, **manifest) as opened:
        make_named(opened, query)
        found = opened.connection.execute(query)
        header = [column[0] for column in found.description]
        answer = [header, *([_shown(value) for value in row] for row in found.fetchall())]
    assert _text(answer) == _text(_cells(expected))


def _cells(text: str) -> list[list[str]]:
    return [[cell.strip() for cell in line.split("|")] for line in text.strip().splitlines()]


def _rows(table: Table, text: str) -> list[dict[str, Any]]:
    if not text.strip():
        return []
    header, *lines = _cells(text)
    return [
        {
            name: _value(table.column(name).type, cell)
            for name, cell in zip(header, line, strict=True)
        }
        for line in lines
    ]


def _value(kind: Type, cell: str) -> Any:
    if cell == "-":
        return None
    if kind is Type.TEXT:
        return cell
    if kind is Type.BOOL:
        return {"true": True, "false": False}[cell]
    return float(cell) if kind is Type.FLOAT64 else int(cell)


def _shown(value: Any) -> str:
    if value is None:
        return "-"
    return str(value).lower() if isinstance(value, bool) else str(value)


def _text(rows: list[list[str]]) -> str:
    """Rows under each other, so that a difference is seen."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return "\n".join(
        " | ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in rows
    )
