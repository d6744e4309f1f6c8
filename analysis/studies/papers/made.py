"""A table or figure of a paper, made from a frame: the table, its figures, or why it is missing."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import pandas as pd

from tracer.analysis.report.lost import lost_in_words
from tracer.analysis.report.tables import records
from tracer.analysis.studies.papers.parts import Part

if TYPE_CHECKING:
    import plotly.graph_objects as go

_MOST_LISTED = 10
_NO_VALUES = ("rank", "runs", "pairs")


@dataclass(frozen=True)
class Made:
    """A table with its figures. `why`: the reason why there is no table, or ""."""

    table: pd.DataFrame
    figures: list[go.Figure]
    why: str


def made(
    part: Part,
    frame: pd.DataFrame,
    where: str = "",
    ours_alone: bool = False,
    drawn: bool = True,
) -> Made:
    """Returns the table of a part, and its figures.

    `where`: the place of the runs, if the part is of one place. `ours_alone`: leave out rows that
    have only the paper's numbers. `drawn`: draw the figures, which takes most of the time.
    """
    nothing = pd.DataFrame()
    try:
        table = part.table(frame, where=where) if where and part.one_place else part.table(frame)
    except KeyError as missing:
        return Made(nothing, [], f"no run has {missing.args[0]}")
    ours = [name for name in table.columns if not str(name).startswith("paper_")]
    numbers = [n for n in table[ours].select_dtypes("number").columns if n not in _NO_VALUES]
    known = table[numbers].notna().any(axis=1)
    if not known.any():
        why = part.why(frame) if part.why is not None else ""
        return Made(nothing, [], why or "this study has no runs for it")
    if ours_alone:
        table = table[known].reset_index(drop=True)
    draws = part.figures if drawn else ()
    return Made(table, [figure for draw in draws if (figure := draw(table)).data], "")


def said_lost(facts: pd.DataFrame, ids: set[str] | None) -> str:
    """Returns, in words, the losses of the traces of these runs (None: of all); "" if none."""
    told = []
    for fact in records(facts):
        if ids is not None and fact["id"] not in ids:
            continue
        said = lost_in_words(
            fact["lost_events"], fact["loss_windows"], fact["loss_unknown"], fact["complete"]
        )
        if said:
            told.append(f"{fact['id']} ({said})")
    if not told:
        return ""
    more = f" and {len(told) - _MOST_LISTED} more" if len(told) > _MOST_LISTED else ""
    return f"events are missing in {', '.join(told[:_MOST_LISTED])}{more}"
