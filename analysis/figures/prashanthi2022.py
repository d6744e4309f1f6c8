"""Figures of Prashanthi et al. 2022: epochs by workers, batch, cache, media, power mode."""

from __future__ import annotations

import pandas as pd
import plotly.graph_objects as go

from tracer.analysis.figures.dots import Axis, dots
from tracer.analysis.figures.style import NEUTRAL, colour, joined, look, numbered, symbol, text

_PARTS = {"stall_s": "fetch stall", "compute_s": "compute", "overhead_s": "overhead"}
_HATCHES = ("", "/", ".")


def epoch_bars(frame: pd.DataFrame, by: str, title: str) -> go.Figure:
    """Draws an epoch's time along a factor, as bars of fetch stall, compute and overhead.

    Columns: model, settings, `by` (numbers, drawn as categories), stall_s, compute_s, overhead_s,
    epoch_s (_low, _high).
    """
    names = [joined([frame["model"], frame["settings"]]), [str(value) for value in frame[by]]]
    figure = go.Figure()
    for number, (column, name) in enumerate(_PARTS.items()):
        pattern = {"shape": _HATCHES[number], "fgcolor": NEUTRAL, "fillmode": "overlay"}
        figure.add_trace(
            go.Bar(
                x=names, y=frame[column], name=name, hovertemplate="%{y:.3g} s",
                marker={"color": colour(number), "pattern": pattern},
            )
        )  # fmt: skip
    error = {
        "type": "data", "symmetric": False, "color": NEUTRAL,
        "array": (frame["epoch_s_high"] - frame["epoch_s"]).tolist(),
        "arrayminus": (frame["epoch_s"] - frame["epoch_s_low"]).tolist(),
    }  # fmt: skip
    figure.add_trace(
        go.Scatter(
            x=names, y=frame["epoch_s"], mode="markers", name="whole epoch", error_y=error,
            marker={"color": NEUTRAL, "symbol": "diamond", "size": 8}, hovertemplate="%{y:.3g} s",
        )
    )  # fmt: skip
    figure.update_layout(barmode="stack")
    figure.update_yaxes(title_text="an epoch after the first, s", rangemode="nonnegative")
    figure.update_xaxes(title_text=title)
    return look(figure)


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
                hovertemplate="%{text}: %{x:.3g} s, predicted %{y:.3g} s",
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
                    hovertemplate="%{text}: %{x:.3g} s, %{y:.3g} J",
                )
            )  # fmt: skip
    figure.update_xaxes(title_text="an epoch, s")
    figure.update_yaxes(title_text="energy of an epoch, J", rangemode="tozero")
    return look(figure)


def epoch_violins(frame: pd.DataFrame) -> go.Figure:
    """Draws epoch times as % of their run's mean. Columns: model, settings, of_mean_percent."""
    figure = go.Figure()
    own = frame.assign(run=joined([frame["model"], frame["settings"]]))
    for run, number in numbered(own["run"]).items():
        figure.add_trace(
            go.Violin(
                y=own[own["run"] == run]["of_mean_percent"], name=str(run), points="all",
                line_color=colour(number), spanmode="hard", showlegend=False,
            )
        )  # fmt: skip
    figure.update_yaxes(title_text="an epoch's time, % of its run's mean")
    return look(figure)
