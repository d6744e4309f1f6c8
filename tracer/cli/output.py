"""Data for people: tables of at most 80 columns, whatever a trace's names hold."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table
from rich.text import Text

WIDTH = 80
_LEAST_TEXT = 10


def console() -> Console:
    """stdout, at most 80 columns wide; colours only on a terminal and without NO_COLOR."""
    found = Console(highlight=False)
    return (
        found
        if found.is_terminal and found.width < WIDTH
        else Console(highlight=False, width=WIDTH)
    )


def safe(value: object) -> Text:
    """A value as text that neither markup nor control characters can abuse."""
    text = str(value)
    return Text("".join(c if c.isprintable() else f"\\x{ord(c):02x}" for c in text))


def show(value: Any, digits: int = 3) -> Text:
    """A cell: numbers short, what is not there as a dash."""
    if value is None or value != value:
        return Text("-")
    if isinstance(value, bool):
        return Text("yes" if value else "no")
    if isinstance(value, float):
        return Text(f"{value:,.{digits}f}" if abs(value) < 1e6 else f"{value:,.0f}")
    if isinstance(value, int):
        return Text(f"{value:,}")
    return safe(value)


def table(
    title: str,
    columns: Sequence[str],
    rows: Iterable[Sequence[Any]],
    left: Sequence[str] = (),
    note: str = "",
) -> Table:
    """A table; columns in `left` are text, the rest numbers."""
    made = Table(
        title=title, title_justify="left", title_style="bold", box=SIMPLE_HEAD, caption=note or None
    )
    made.caption_justify = "left"
    cells = [[show(value) for value in row] for row in rows]
    for number, column in enumerate(columns):
        longest = max((len(line[number]) for line in cells), default=0)
        made.add_column(
            column,
            justify="left" if column in left else "right",
            no_wrap=column not in left,
            overflow="fold",
            min_width=min(longest, _LEAST_TEXT) if column in left else None,
        )
    for line in cells:
        made.add_row(*line)
    return made
