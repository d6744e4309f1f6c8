"""Tables for people: at most 80 columns wide, safe against hostile names in a trace."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Sequence
from typing import Any

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table
from rich.text import Text

from tracer.probes.text import printable
from tracer.sizes import show_number

WIDTH = 80
_LEAST_TEXT = 10
_APART = 2  # columns are padded by one space, and one lies between them
_WIDEST = 10_000
_LABEL = 11
"""Columns of the label of a fact."""


def wide_console() -> Console:
    """Returns stdout as wide as the terminal, or as wide as needed if stdout is no terminal."""
    found = Console(highlight=False)
    return found if found.is_terminal else Console(highlight=False, width=_WIDEST)


def console() -> Console:
    """Returns stdout, at most 80 columns wide; colours only on a terminal and without NO_COLOR."""
    found = Console(highlight=False)
    return (
        found
        if found.is_terminal and found.width < WIDTH
        else Console(highlight=False, width=WIDTH)
    )


def safe(value: object) -> Text:
    """Returns a value as text without markup and control characters."""
    return Text(printable(str(value)))


def print_fact(out: Console, label: str, value: object, style: str | None = None) -> None:
    """Prints a label and a text; the text is wrapped between words and stands in one column."""
    text = printable(f"  {label:<{_LABEL}} {value}")
    indent = " " * (_LABEL + 3 if out.width >= WIDTH // 2 else 2)
    lines = textwrap.wrap(text, out.width, subsequent_indent=indent, break_on_hyphens=False)
    out.print(Text("\n".join(lines)), style=style)


def show(value: Any) -> Text:
    """Returns a table cell: numbers with two to four significant digits, missing values as "-"."""
    if value is None or value != value:
        return Text("-")
    if isinstance(value, bool):
        return Text("yes" if value else "no")
    if isinstance(value, float):
        size = abs(value)
        if 0 < value < 0.0005:
            return Text(f"{value:.2g}")  # it is not 0
        digits = 0 if size >= 1000 else 1 if size >= 100 else 2 if size >= 10 else 3
        return Text(show_number(value, digits))
    if isinstance(value, int):
        return Text(f"{value:,}")
    return safe(value)


def _exact(value: Any) -> Text:
    return Text("-") if value is None or value != value else safe(value)


def print_table(
    out: Console,
    title: str,
    columns: Sequence[str],
    rows: Iterable[Sequence[Any]],
    left: Sequence[str] = (),
    note: str = "",
    exact: bool = False,
) -> None:
    """Prints a title, a table and a note. Columns in `left` are text, the others numbers.

    Text is wrapped to fit `out`; a number is never cut, so a table of many numbers may be wider.
    `exact` prints every digit, for the results of queries.
    """
    made = Table(box=SIMPLE_HEAD, padding=(0, 1, 0, 0), pad_edge=False)
    cell = _exact if exact else show
    cells = [[cell(value) for value in row] for row in rows]
    needed = 1
    for number, column in enumerate(columns):
        longest = max((len(line[number]) for line in cells), default=0)
        text = column in left
        least = min(longest, _LEAST_TEXT) if text else max(longest, len(safe(column)))
        needed += least + _APART
        made.add_column(
            safe(column),
            justify="left" if text else "right",
            no_wrap=not text,
            overflow="fold",
            min_width=least,
        )
    for line in cells:
        made.add_row(*line)
    if title:
        out.print(safe(title), style="bold")
    width = out.width
    out.width = max(width, needed)
    out.print(made)
    out.width = width
    if note:
        out.print(safe(note), style="italic")
    out.print()
