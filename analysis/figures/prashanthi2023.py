"""Figures of Prashanthi et al. 2023: minibatches on host and in container, usage, energy."""

from __future__ import annotations

import pandas as pd
import plotly.graph_objects as go
from plotly.subplots import make_subplots

from tracer.analysis.figures.dots import Axis, dots
from tracer.analysis.figures.style import (
    NEUTRAL,
    PLOT_PX,
    colour,
    hues,
    joined,
    look,
    numbered,
    text,
)

_PLACES = {"bare_metal": "host", "container": "container"}


def minibatch_times(frame: pd.DataFrame) -> go.Figure:
    """Draws the time of a minibatch, one panel per part.

    Columns: mode, model, settings, part, bare_metal_ms and container_ms (each with _low, _high),
    paper_bare_metal_ms, paper_container_ms.
    """
    parts = []
    for column, place in _PLACES.items():
        names = {f"{column}_ms{end}": f"ms{end}" for end in ("", "_low", "_high")}
        names[f"paper_{column}_ms"] = "paper_ms"
        parts.append(frame[["part", *names]].rename(columns=names).assign(where=place))
    both = pd.concat(parts, ignore_index=True)
    both["run"] = _runs(frame) * len(parts)
    axis = Axis("ms a minibatch", log=True)
    return dots(both, "ms", axis, category="run", series="where", panel="part", paper="paper_ms")


def increases(frame: pd.DataFrame, panel: str = "part") -> go.Figure:
    """Draws the increase from host to container in percent.

    Columns: mode, model, settings, `panel`, increase_percent (_low, _high), paper_increase_percent.
    """
    return dots(
        frame.assign(run=_runs(frame), series="container over host"), "increase_percent",
        Axis("% more in a container"), category="run", series="series", panel=panel,
        paper="paper_increase_percent",
    )  # fmt: skip


def _runs(frame: pd.DataFrame) -> list[str]:
    return joined([frame["model"], frame["mode"], frame["settings"]])


def usage_violins(frame: pd.DataFrame) -> go.Figure:
    """Draws the use of the machine: one violin per place, one panel per series.

    Columns: mode, model, settings, where, series, unit, value (quantiles at even shares).
    """
    names = list(numbered(joined([frame["series"], frame["unit"]])))
    own = frame.assign(panel=joined([frame["series"], frame["unit"]]), run=_runs(frame))
    places = hues(own["where"])
    figure = make_subplots(
        rows=max(1, len(names)), cols=1, vertical_spacing=0.24 / max(1, len(names))
    )
    for row, name in enumerate(names, 1):
        for place, number in places.items():
            part = own[(own["panel"] == name) & (own["where"] == place)]
            violin = go.Violin(
                x=part["run"], y=part["value"], name=text(place), legendgroup=text(place),
                scalegroup=name, side="negative" if number == 0 else "positive",
                line_color=colour(number), meanline_visible=True, points=False, spanmode="hard",
                showlegend=row == 1,
            )  # fmt: skip
            figure.add_trace(violin, row=row, col=1)
        figure.update_yaxes(title_text=name, row=row, col=1)
    figure.update_layout(violinmode="overlay", violingap=0.2)
    return look(figure, (PLOT_PX - 80) * max(1, len(names)))


def memory_overhead(frame: pd.DataFrame) -> go.Figure:
    """Draws the memory that a container adds.

    Columns: mode, model, settings, overhead_gb (_low, _high), paper_overhead_gb.
    """
    return dots(
        frame.assign(run=_runs(frame), series="container less host"), "overhead_gb",
        Axis("memory used, GB more in a container"), category="run", series="series",
        paper="paper_overhead_gb",
    )  # fmt: skip


def energy_split(frame: pd.DataFrame) -> go.Figure:
    """Draws the energy per minibatch or run as bars of the baseload and the increment beyond it.

    Columns: mode, model, settings, where, per (minibatch or run), energy_j (_low, _high),
    baseload_j, increment_j (if both are null, one bar shows energy_j).
    """
    rows = [
        [text(run) for run in _runs(frame)],
        [text(where) for where in frame["where"]],
    ]
    error = {
        "type": "data", "symmetric": False, "color": NEUTRAL,
        "array": (frame["energy_j_high"] - frame["energy_j"]).tolist(),
        "arrayminus": (frame["energy_j"] - frame["energy_j_low"]).tolist(),
    }  # fmt: skip
    is_split = frame["baseload_j"].notna()
    series = [
        ("baseload", frame["baseload_j"], colour(0), None),
        ("beyond the baseload", frame["increment_j"], colour(1), error),
    ]
    if not is_split.any():
        series = [("energy", frame["energy_j"], colour(2), error)]
    elif not is_split.all():
        whole = frame["energy_j"].where(~is_split)
        series.append(("energy, baseload not recorded", whole, colour(2), error))
    figure = go.Figure(
        [
            go.Bar(x=rows, y=values, name=name, marker_color=of, error_y=bars)
            for name, values, of, bars in series
        ]
    )
    figure.update_layout(barmode="relative")
    figure.update_yaxes(title_text=f"energy per {', '.join(frame['per'].unique())}, J")
    return look(figure)
