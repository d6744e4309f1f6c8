"""The page of a comparison: the groups, the changes by importance, and the noise."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pandas as pd
import plotly.graph_objects as go

from tracer.analysis.compare.comparison import Comparison, Run
from tracer.analysis.compare.groups import Group
from tracer.analysis.compare.readable import readable
from tracer.analysis.compare.verdicts import CHANGED, MISSING, NOISE, UNTOLD
from tracer.analysis.figures.comparison import MOST_MEASURES, ratios
from tracer.analysis.page.base import TEMPLATES, render
from tracer.analysis.page.summary import Tile
from tracer.analysis.page.tables import PageTable, page_table
from tracer.analysis.report.tables import records
from tracer.probes.text import shortened

_TEMPLATE = "comparison.html.j2"
_RANK = (CHANGED, UNTOLD, NOISE, MISSING)
_MOST_NOTES = 40
_MOST_CHARACTERS = 600
_MOST_NAMED = 3
_TITLES = {
    CHANGED: ("Changed", "Most important first: ranked by the share of the job's time and by the"
              " distance of the interval from 1."),
    UNTOLD: ("Too few runs to test", "Chance alone may give these differences. Ranked by the share"
             " of the job's time and by the distance of the ratio from 1. Record each group again,"
             " five times or more if possible."),
    NOISE: ("Inside the noise", "Chance alone gives differences as clear as these. They show no"
            " change; a wide interval does not show equality either."),
    MISSING: ("Without a ratio", "Not recorded on one side, or 0 there."),
}  # fmt: skip
"""Title of each part, and a note on it."""
_LOST = "events lost"


@dataclass(frozen=True)
class Part:
    """Measures of one verdict: their table, and a figure of their ratios if there are any."""

    id: str
    title: str
    about: str
    figure: go.Figure | None
    table: PageTable


def comparison_page(found: Comparison) -> str:
    """Returns the self-contained HTML of a comparison's page.

    Each measure is in the part of its clearest verdict, with all its groups.
    """
    rows = readable(found.rows)
    base, *others = found.grouping.groups
    parts = _parts(rows, [group.name for group in others])
    return render(
        _TEMPLATE,
        TEMPLATES,
        figures=any(part.figure is not None for part in parts.values()),
        name=f"{_named(others)} against {base.name}",
        tiles=_tiles(found),
        warnings=_warnings(found),
        notes=[shortened(note, _MOST_CHARACTERS) for note in found.notes[:_MOST_NOTES]],
        more_notes=max(0, len(found.notes) - _MOST_NOTES),
        changed=[parts[name] for name in (CHANGED, UNTOLD) if name in parts],
        noise=parts.get(NOISE),
        missing=parts.get(MISSING),
        groups=_groups(found),
        runs=page_table("runs", _runs(found), "Traces"),
        how=found.grouping.how,
        tests=found.tests,
    )


def _parts(rows: pd.DataFrame, groups: list[str]) -> dict[str, Part]:
    """Returns the parts by verdict. `groups` are all groups except the base."""
    if not len(rows):
        return {}
    measures = rows.groupby(["topic", "measure", "unit"], sort=False, dropna=False)
    rank = rows["verdict"].map(_RANK.index)
    best = rank.groupby(measures.ngroup()).transform("min")
    place = {name: number for number, name in enumerate(groups)}
    # In order of the measures' first rows, with all groups of a measure together.
    order = np.lexsort([rows["group"].map(place), measures.ngroup()])
    made = {}
    for number, verdict in enumerate(_RANK):
        own = rows.iloc[order][(best == number).iloc[order]]
        if not len(own):
            continue
        drawn = ratios(own, hollow=(NOISE,)) if verdict != MISSING else None
        title, about = _TITLES[verdict]
        id = verdict.replace(" ", "-")
        table = page_table(id, _shown(own, len(groups) > 1, verdict), title)
        has_dots = drawn is not None and bool(drawn.data)
        about += _not_drawn(own) if drawn is not None else ""
        made[verdict] = Part(id, title, about, drawn if has_dots else None, table)
    return made


def _not_drawn(rows: pd.DataFrame) -> str:
    """Returns a sentence on the measures that the figure leaves out."""
    known = rows[pd.to_numeric(rows["ratio"]) > 0]
    measures = len(known[["topic", "measure"]].drop_duplicates())
    if measures <= MOST_MEASURES:
        return ""
    return (
        f" The figure has the first {MOST_MEASURES} of {measures:,} measures with a ratio above 0."
    )


def _shown(rows: pd.DataFrame, several: bool, verdict: str) -> pd.DataFrame:
    """Returns the columns that the page shows, with their names on the page."""
    frame = pd.DataFrame({"topic": rows["topic"], "measure": rows["measure"]})
    if several or verdict == MISSING:
        frame["group"] = rows["group"]
    frame["unit"] = rows["unit"]
    for name, of in (("base", "base_mean"), ("here", "mean")):
        frame[name] = pd.to_numeric(rows[of])
    if verdict != MISSING:
        for end in ("", "_low", "_high"):
            frame[f"times_the_base{end}"] = pd.to_numeric(rows[f"ratio{end}"])
        frame["verdict"] = rows["verdict"]
    if rows["lossy"].isna().any() or rows["lossy"].any():
        frame["losses"] = [{True: _LOST, False: ""}.get(lossy) for lossy in rows["lossy"]]
    if verdict != MISSING:
        frame["p, corrected"] = pd.to_numeric(rows["p_corrected"])
        frame["share"] = pd.to_numeric(rows["weight"])
    frame["runs"] = [_counted(row) for row in records(rows)]
    if verdict != MISSING:
        frame["interval by"] = rows["method"]
    if rows["why"].notna().any():
        frame["why"] = rows["why"].fillna("")
    return frame


def _counted(row: dict[str, object]) -> str:
    if row["pairs"] is not None:
        return f"{row['pairs']:.0f} pairs" if row["pairs"] != 1 else "1 pair"
    return f"{row['base_runs']} and {row['runs']}"


def _tiles(found: Comparison) -> list[Tile]:
    verdicts = found.rows["verdict"].value_counts()
    lossy = sum(1 for run in found.runs if run.lost)
    return [
        Tile("Traces", f"{len(found.runs):,}", f"in {len(found.grouping.groups):,} groups"),
        Tile("Changed", f"{verdicts.get(CHANGED, 0):,}", f"of {found.tests:,} ratios tested"),
        Tile("Inside the noise", f"{verdicts.get(NOISE, 0):,}", "ratios"),
        Tile("Too few runs", f"{verdicts.get(UNTOLD, 0):,}", "ratios without a test"),
        Tile("With losses", f"{lossy:,}", f"of {len(found.runs):,} traces", bad=lossy > 0),
    ]


def _warnings(found: Comparison) -> list[str]:
    warnings = []
    if any(run.lost for run in found.runs):
        warnings.append(
            "Events were lost: counts of the marked groups are too low, so their changes may be"
            " wrong"
        )
    if not found.tests:
        warnings.append(
            "Nothing could be tested: there are too few runs to tell a change from noise"
        )
    return warnings


def _groups(found: Comparison) -> list[tuple[str, str]]:
    """Returns the name and the number of traces of each group, the base first."""
    return [
        (
            group.name,
            ("1 trace" if len(group.traces) == 1 else f"{len(group.traces):,} traces")
            + (", the base" if number == 0 else ""),
        )
        for number, group in enumerate(found.grouping.groups)
    ]


def _runs(found: Comparison) -> pd.DataFrame:
    return pd.DataFrame(
        [
            _run(group, found.runs[number])
            for group in found.grouping.groups
            for number in group.traces
        ]
    )


def _run(group: Group, run: Run) -> dict[str, object]:
    factors = run.identity.factors
    told = {name: factors.get(name) for name in ("model", "where", "mode", "repeat")}
    known = {name: None if value is None else str(value) for name, value in told.items()}
    return {"group": group.name, "trace": str(run.path), **known, "losses": run.lost}


def _named(groups: list[Group]) -> str:
    names = ", ".join(group.name for group in groups[:_MOST_NAMED])
    more = len(groups) - _MOST_NAMED
    return f"{names} and {more} more" if more > 0 else names
