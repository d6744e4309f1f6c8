"""The columns of a table or view, as `tracer query --columns` prints them."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Sequence
from difflib import get_close_matches

from tracer.probes.errors import UsageError
from tracer.probes.schema import Column

_WIDTH = 78
_INDENT = 4
_OF_PHASES = ("phase", "stage", "epoch", "pass", "step")
"""Columns that TABLE_in_phase adds to those of a table."""


def described(name: str) -> str:
    """Returns the description of a table or view, of its columns with units, and an example.

    Raises UsageError if there is none of this name.
    """
    from tracer.analysis.views.catalogue import VIEWS
    from tracer.analysis.views.in_phase import IN_PHASE, SUFFIX
    from tracer.store.trace import ALL_TABLES

    if (table := name.removesuffix(SUFFIX)) != name and table in IN_PHASE:
        added = "The added columns are phase, stage, epoch, pass and step of the row's thread."
        return f"{name}\n{added}\n\n{described(table)}"
    if name in VIEWS:
        view = VIEWS[name]
        needs = f"It is made from the tables {', '.join(view.needs)}, and others if there are any."
        return _page(name, f"{view.about} {needs}", view.columns, view.example)
    if name in ALL_TABLES:
        found = ALL_TABLES[name]
        about = f"{found.doc} Recorded with {found.option}." if found.option else found.doc
        return _page(name, about, found.columns, found.example)
    raise unknown_table(name, list(ALL_TABLES))


def column_rows(name: str) -> list[dict[str, str | None]]:
    """Returns a row for each column of a table or view: name, type, unit (None: none), and doc.

    Raises UsageError if there is none of this name.
    """
    return [
        {"name": one.name, "type": one.type.value, "unit": one.unit or None, "doc": one.doc}
        for one in _columns(name)
    ]


def _columns(name: str) -> tuple[Column, ...]:
    from tracer.analysis.views.catalogue import VIEWS
    from tracer.analysis.views.context import COLUMNS, PASS
    from tracer.analysis.views.in_phase import IN_PHASE, SUFFIX
    from tracer.store.trace import ALL_TABLES

    if (table := name.removesuffix(SUFFIX)) != name and table in IN_PHASE:
        kept = (one for one in _columns(table) if one.name != "phase")
        added = {one.name: one for one in (*COLUMNS, PASS)}
        return (*kept, *(added[one] for one in _OF_PHASES))
    if name in VIEWS:
        return VIEWS[name].columns
    if name in ALL_TABLES:
        return ALL_TABLES[name].columns
    raise unknown_table(name, list(ALL_TABLES))


def unknown_table(name: str, tables: Iterable[str]) -> UsageError:
    """Returns the error for a name of no table and no view, with the most similar name."""
    from tracer.analysis.views.catalogue import VIEWS
    from tracer.analysis.views.in_phase import SUFFIX

    known = [*tables, *VIEWS]
    like = get_close_matches(name.removesuffix(SUFFIX), known, 1)
    return UsageError(
        f"there is no table or view {name!r}",
        f"did you mean {like[0]}?" if like else f"choose from {', '.join(known)}",
    )


def _page(name: str, about: str, columns: Sequence[Column], example: str) -> str:
    lines = [name, *textwrap.wrap(about, _WIDTH), ""]
    for column in columns:
        unit = f", {column.unit}" if column.unit else ""
        lines.append(f"{column.name} ({column.type.value}{unit})")
        indent = " " * _INDENT
        lines += textwrap.wrap(column.doc, _WIDTH, initial_indent=indent, subsequent_indent=indent)
    return "\n".join([*lines, "", example] if example else lines)
