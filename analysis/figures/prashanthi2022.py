"""Figures of Prashanthi et al. 2022: epochs by workers, batch, cache, media, power mode."""

from __future__ import annotations

from collections.abc import Iterator

import pandas as pd
import plotly.graph_objects as go
from plotly.subplots import make_subplots

from tracer.analysis.figures.dots import Axis, dots
from tracer.analysis.figures.style import NEUTRAL, colour, joined, look, numbered, symbol, text

_PARTS = {"stall_s": "fetch stall", "compute_s": "compute", "overhead_s": "overhead"}
_HATCHES = ("", "/", ".")
_LEAST_PX, _BAR_PX, _GAP_PX = 32, 24, 64
"""Heights in pixels: of a panel without its bars, of a bar, and between two panels."""


def epoch_bars(frame: pd.DataFrame, by: str, title: str) -> go.Figure:
    """Draws an epoch's time along a factor, as bars of fetch stall, compute and overhead.

    Each model has a panel of its own, because their epochs differ in length by powers of ten.

    Columns: model, settings, `by` (`title` names its values), stall_s, compute_s, overhead_s,
    epoch_s (_low, _high).
    """
    panels = list(numbered(frame["model"]))
    heights = [_LEAST_PX + _BAR_PX * int((frame["model"] == one).sum()) for one in panels]
    heights = heights or [_LEAST_PX]
    whole = sum(heights) + _GAP_PX * (len(heights) - 1)
    figure = make_subplots(
        rows=len(heights), cols=1, row_heights=heights,
        vertical_spacing=_GAP_PX / whole if len(heights) > 1 else 0,
        subplot_titles=[text(one) for one in panels],
    )  # fmt: skip
    for row, one in enumerate(panels, 1):
        own = frame[frame["model"] == one]
        values = [f"{value} {title}".rstrip() for value in own[by]]
        names = joined([values, own["settings"]])
        for trace in _bars_of(own, names, shown=row == 1):
            figure.add_trace(trace, row=row, col=1)
        figure.update_yaxes(autorange="reversed", type="category", row=row, col=1)
    figure.update_layout(barmode="stack")
    figure.update_xaxes(rangemode="nonnegative")
    figure.update_xaxes(title_text="an epoch after the first, s", row=len(heights), col=1)
    return look(figure, whole)


def _bars_of(own: pd.DataFrame, names: list[str], shown: bool) -> Iterator[go.Bar | go.Scatter]:
    """Yields the traces of one model's epochs. `shown`: they are in the legend."""
    for number, (column, name) in enumerate(_PARTS.items()):
        pattern = {"shape": _HATCHES[number], "fgcolor": NEUTRAL, "fillmode": "overlay"}
        yield go.Bar(
            x=own[column], y=names, name=name, hovertemplate="%{x:,.3~r} s", orientation="h",
            marker={"color": colour(number), "pattern": pattern}, showlegend=shown,
            legendgroup=name,
        )  # fmt: skip
    error = {
        "type": "data", "symmetric": False, "color": NEUTRAL,
        "array": (own["epoch_s_high"] - own["epoch_s"]).tolist(),
        "arrayminus": (own["epoch_s"] - own["epoch_s_low"]).tolist(),
    }  # fmt: skip
    yield go.Scatter(
        x=own["epoch_s"], y=names, mode="markers", name="whole epoch", error_x=error,
        marker={"color": NEUTRAL, "symbol": "diamond", "size": 8}, hovertemplate="%{x:,.3~r} s",
        showlegend=shown, legendgroup="whole epoch",
    )  # fmt: skip


def step_lines(frame: pd.DataFrame, by: str, title: str) -> go.Figure:
    """Draws a minibatch's stall and compute time along a factor.

    Columns: model, settings, `by` (numbers), stall_ms and compute_ms (each with _low, _high).
    """
    figure = go.Figure()
    own = frame.assign(run=joined([frame["model"], frame["settings"]]))
    for run, number in numbered(own["run"]).items():
        for value, dash in (("stall_ms", "solid"), ("compute_ms", "dash")):
            part = own[own["run"] == run].sort_values(by)
            error = {
                "type": "data", "symmetric": False,
                "array": (part[f"{value}_high"] - part[value]).tolist(),
                "arrayminus": (part[value] - part[f"{value}_low"]).tolist(),
            }  # fmt: skip
            figure.add_trace(
                go.Scatter(
                    x=part[by], y=part[value], mode="lines+markers", error_y=error,
                    name=f"{run}: {'fetch stall' if value == 'stall_ms' else 'compute'}",
                    line={"color": colour(number), "dash": dash},
                    marker={"symbol": symbol(number), "size": 8},
                )
            )  # fmt: skip
    figure.update_yaxes(title_text="ms a minibatch", type="log")
    figure.update_xaxes(
        title_text=title, type="log", tickvals=sorted(set(own[by])),
        ticktext=[str(value) for value in sorted(set(own[by]))],
    )  # fmt: skip
    return look(figure)


def stall_by_epoch(frame: pd.DataFrame) -> go.Figure:
    """Draws the fetch stall of first and later epochs.

    Columns: model, settings, workers, epoch (first or later), stall_s (_low, _high).
    """
    workers = [f"{value:g} workers" for value in frame["workers"].astype(float)]
    named = frame.assign(run=joined([frame["model"], workers, frame["settings"]]))
    axis = Axis("fetch stall of an epoch, s", log=True)
    return dots(named[named["stall_s"] > 0], "stall_s", axis, category="run", series="epoch")


def stall_by_medium(frame: pd.DataFrame) -> go.Figure:
    """Draws an epoch's time by storage medium.

    Columns: model, settings, medium, epoch (first or later), epoch_s (_low, _high).
    """
    names = [f"{epoch} epoch" for epoch in frame["epoch"]]
    named = frame.assign(run=joined([frame["model"], frame["settings"], names]))
    return dots(named, "epoch_s", Axis("an epoch, s", log=True), category="run", series="medium")


def predicted_times(frame: pd.DataFrame) -> go.Figure:
    """Draws predicted over measured epoch times, with the line on which both are equal.

    Columns: job, power_mode, epoch_s, predicted_s, profiled. Only the axes are drawn if there is
    no prediction.
    """
    figure = go.Figure()
    known = frame[frame["predicted_s"].notna()] if "predicted_s" in frame else frame.iloc[:0]
    for job, number in numbered(known["job"]).items():
        own = known[known["job"] == job]
        learned = own["profiled"].astype(bool)
        markers = [f"{symbol(number)}-open" if one else symbol(number) for one in learned]
        figure.add_trace(
            go.Scatter(
                x=own["epoch_s"], y=own["predicted_s"], mode="markers", name=text(job),
                text=[text(mode) for mode in own["power_mode"]],
                marker={"color": colour(number), "symbol": markers, "size": 10},
                hovertemplate="%{text}: %{x:,.3~r} s, predicted %{y:,.3~r} s",
            )
        )  # fmt: skip
    if len(known):
        ends = [known["epoch_s"].min(), known["epoch_s"].max()]
        figure.add_trace(
            go.Scatter(
                x=ends, y=ends, mode="lines", name="equal", hoverinfo="skip",
                line={"color": NEUTRAL, "dash": "dot"},
            )
        )  # fmt: skip
    figure.update_xaxes(title_text="measured epoch time, s (hollow: used for training)")
    figure.update_yaxes(title_text="predicted epoch time, s")
    return look(figure)


def time_and_energy(frame: pd.DataFrame) -> go.Figure:
    """Draws power modes by time and energy of an epoch, with a line along the Pareto front.

    Columns: job, power_mode, epoch_s, energy_j, on_front. Without energy there are only the axes.
    """
    figure = go.Figure()
    known = frame[frame["energy_j"].notna()] if "energy_j" in frame else frame.iloc[:0]
    for job, number in numbered(known["job"]).items():
        own = known[known["job"] == job].sort_values("epoch_s")
        front = own[own["on_front"].astype(bool)]
        for part, mode, shown in ((front, "lines", False), (own, "markers", True)):
            figure.add_trace(
                go.Scatter(
                    x=part["epoch_s"], y=part["energy_j"], mode=mode, name=text(job),
                    legendgroup=text(job), showlegend=shown, line={"color": colour(number)},
                    text=[text(name) for name in part["power_mode"]],
                    marker={"color": colour(number), "symbol": symbol(number), "size": 9},
                    hovertemplate="%{text}: %{x:,.3~r} s, %{y:,.3~r} J",
                )
            )  # fmt: skip
    figure.update_xaxes(title_text="an epoch, s")
    figure.update_yaxes(title_text="energy of an epoch, J", rangemode="tozero")
    return look(figure)


def epoch_violins(frame: pd.DataFrame) -> go.Figure:
    """Draws epoch times as % of their run's mean. Columns: model, settings, of_mean_percent."""
    figure = go.Figure()
    own = frame.assign(run=joined([frame["model"], frame["settings"]])).sort_values("run")
    names = numbered(own["run"])
    for run, number in names.items():
        figure.add_trace(
            go.Violin(
                x=own[own["run"] == run]["of_mean_percent"], name=str(run), points="all",
                orientation="h", line_color=colour(number), spanmode="hard", showlegend=False,
            )
        )  # fmt: skip
    figure.update_xaxes(title_text="an epoch's time, % of its run's mean")
    figure.update_yaxes(autorange="reversed", type="category")
    return look(figure, _LEAST_PX + _BAR_PX * len(names))
