"""The report as GitHub markdown: machine, claims, tables, and links to files with the figures."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping, Sequence
from urllib.parse import quote

from tracer.analysis.page.cells import cell, rows
from tracer.analysis.studies.report.claim_rows import COLUMNS, claim_rows
from tracer.analysis.studies.report.contents import Contents

_SPECIAL = re.compile(r"([\\`*_{}\[\]|~#!@$])")


def markdown(
    found: Contents,
    pictures: Mapping[str, Sequence[str]] | None = None,
    folder: str = "",
    undrawn: str = "",
) -> str:
    """Returns the report's text.

    `pictures`: the names of picture files by the title of their section; they are in `folder`,
    beside the report. `undrawn`: the reason why there are none, or "".
    """
    pictures = pictures or {}
    lines = [f"# {_text(found.name)}", ""]
    lines += [f"{_text(found.about)}. {found.said}.", ""]
    if found.lost:
        lines += [f"**Losses:** {_text(found.lost)}.", ""]
    if undrawn:
        lines += [f"**Without figures:** {_text(undrawn)}.", ""]
    lines += ["## Machine", "", *_table(["what", "value"], found.machine), ""]
    lines += ["## Claims", "", _INTERVALS, ""]
    lines += [*_table(*rows(claim_rows(found.verdicts), COLUMNS)), ""]
    lines += [f"- {_text(one.id)}: {_text(one.why)}" for one in found.verdicts if one.why]
    for section in found.sections:
        lines += ["", f"## {_text(section.title)}", ""]
        if section.about:
            lines += [_text(section.about), ""]
        if section.lost:
            lines += [f"**Losses:** {_text(section.lost)}.", ""]
        files = pictures.get(section.title, ())
        for number, file in enumerate(files, 1):
            lines += [_picture(section.title, number, len(files), f"{folder}/{file}"), ""]
        if section.why:
            lines += [f"Not measured: {_text(section.why)}."]
        elif section.columns:
            lines += _table(section.columns, section.rows)
        elif not files:
            lines += ["Drawn only in the HTML page: `tracer study report FOLDER -o report.html`."]
    if found.left_out:
        head = ["run", "state", "reason"]
        lines += ["", "## Runs that are left out", "", *_table(head, found.left_out)]
    return "\n".join(lines) + "\n"


_INTERVALS = "In brackets: the 95 % interval. A dash: not measured, or not given by the paper."


def _picture(title: str, number: int, of: int, path: str) -> str:
    """Returns the link to a picture. No character of the path can end the link."""
    said = title if of == 1 else f"{title} ({number} of {of})"
    return f"![{_text(said)}]({quote(os.fsencode(path))})"


def _table(columns: Iterable[str], lines: Iterable[Iterable[str]]) -> list[str]:
    heads = [_text(column) for column in columns]
    made = [f"| {' | '.join(heads)} |", f"|{' --- |' * len(heads)}"]
    return made + [f"| {' | '.join(_text(value) for value in line)} |" for line in lines]


def _text(value: str) -> str:
    """Returns a name as plain text, with markdown and HTML escaped."""
    said = cell(value).replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    return _SPECIAL.sub(r"\\\1", said).replace("://", "&#58;//")
