"""Figures of Park & Bahn 2023: events, write-backs by reason, time and page, flush layer."""

from __future__ import annotations

import numpy as np
import pandas as pd
import plotly.graph_objects as go
from numpy.typing import NDArray
from plotly.subplots import make_subplots

from tracer.analysis.figures.dots import Axis, dots
from tracer.analysis.figures.style import (
    HEAT,
    PLOT_PX,
    colour,
    hues,
    log_axis,
    look,
    numbered,
    text,
)

_MOST_PANELS = 12


def event_ratios(frame: pd.DataFrame) -> go.Figure:
    """Draws the ratio of events in a container to events on the host.

    Columns: event, container_to_host (_low, _high), paper_container_to_host.
    """
    return dots(
        frame.assign(series="container / host"), "container_to_host",
        Axis("events in a container / on the host", log=True),
        category="event", series="series", paper="paper_container_to_host",
    )  # fmt: skip


def call_chains(frame: pd.DataFrame) -> go.Figure:
    """Draws the call chains to block_rq_insert.

    Columns: where, chain, share (_low, _high), paper_share.
    """
    axis = Axis("share of block_rq_insert", percent=True)
    return dots(frame, "share", axis, category="chain", series="where", paper="paper_share")


def fault_causes(frame: pd.DataFrame) -> go.Figure:
    """Draws causes of page faults by rank. Columns: rank, percent (_low, _high), paper_percent."""
    axis = Axis("% of page faults")
    named = frame.assign(series="cause", of_rank=[f"rank {rank}" for rank in frame["rank"]])
    return dots(named, "percent", axis, category="of_rank", series="series", paper="paper_percent")


def writeback_reasons(frame: pd.DataFrame) -> go.Figure:
    """Draws reasons of write-backs by model, one panel per place.

    Columns: where, model, reason, share (_low, _high), paper_share.
    """
    axis = Axis("share of write-backs", percent=True)
    return dots(
        frame, "share", axis, category="model", series="reason", panel="where", paper="paper_share"
    )


def writeback_intervals(frame: pd.DataFrame) -> go.Figure:
    """Draws mean and standard deviation of the times between write-backs by model.

    Columns: model, where, between (wakes or passes), mean_s and std_s (each with _low, _high).
    """
    parts = []
    for between in ("wakes", "passes"):
        own = frame[frame["between"] == between]
        for said, value in (("mean", "mean_s"), ("standard deviation", "std_s")):
            names = {f"{value}{end}": f"seconds{end}" for end in ("", "_low", "_high")}
            part = own[["model", "where", *names]].rename(columns=names)
            parts.append(part.assign(panel=f"{said}, {between}"))
    axis = Axis("time between write-backs, s")
    both = pd.concat(parts)
    return dots(both, "seconds", axis, category="model", series="where", panel="panel")


def interval_spread(frame: pd.DataFrame) -> go.Figure:
    """Draws the cumulative distribution of times between write-backs, one panel per model.

    Columns: model, where, between, share (0 to 1), interval_s. Lines: between wakes; dots: between
    passes.
    """
    models = list(numbered(frame["model"]))[:_MOST_PANELS]
    places = hues(frame["where"])
    figure = make_subplots(
        rows=max(1, len(models)), cols=1, subplot_titles=[text(model) for model in models],
        vertical_spacing=0.3 / max(1, len(models)), shared_xaxes="all",
    )  # fmt: skip
    for row, model in enumerate(models, 1):
        of_model = frame[(frame["model"] == model) & (frame["interval_s"] > 0)]
        for place, number in places.items():
            for between, own in of_model[of_model["where"] == place].groupby("between"):
                dash = "dot" if between == "passes" else "solid"
                line = {"color": colour(number), "dash": dash, "width": 2}
                name = f"{text(place)}, {text(between)}"
                trace = go.Scatter(
                    x=own["interval_s"], y=own["share"], mode="lines", line=line, name=name,
                    legendgroup=name, showlegend=row == 1, hovertemplate="%{y:.0%} up to %{x} s",
                )  # fmt: skip
                figure.add_trace(trace, row=row, col=1)
    figure.update_xaxes(**log_axis(frame["interval_s"].dropna()))
    figure.update_xaxes(title_text="time between write-backs, s", row=max(1, len(models)), col=1)
    figure.update_yaxes(title_text="share up to it", tickformat=".0%", range=[0, 1.02])
    return look(figure, (PLOT_PX - 80) * max(1, len(models)))


def page_heat(frame: pd.DataFrame) -> go.Figure:
    """Draws write-backs by page and time as a heat map, one panel per model.

    One row per box. Columns: model, from_s, to_s, first_page, last_page (boxes of equal size;
    pages by rank), writebacks. A box without write-backs has no colour. All panels share one
    logarithmic scale.
    """
    models = list(numbered(frame["model"]))[:_MOST_PANELS]
    figure = make_subplots(
        rows=max(1, len(models)), cols=1, subplot_titles=[text(model) for model in models],
        vertical_spacing=0.3 / max(1, len(models)),
    )  # fmt: skip
    for row, model in enumerate(models, 1):
        own = frame[frame["model"] == model]
        width = float((own["to_s"] - own["from_s"]).max())
        height = int((own["last_page"] - own["first_page"]).max()) + 1
        counts = _grid(own, width, height)
        trace = go.Heatmap(
            x=(np.arange(counts.shape[1]) + 0.5) * width, z=np.log10(counts),
            y=(np.arange(counts.shape[0]) + 0.5) * height, customdata=counts,
            coloraxis="coloraxis", hoverongaps=False,
            hovertemplate="%{customdata} at %{x:.1f} s, page %{y:.0f}<extra></extra>",
        )  # fmt: skip
        figure.add_trace(trace, row=row, col=1)
    most = float(frame["writebacks"].max()) if len(frame) else 1.0
    powers = list(range(int(np.log10(max(1.0, most))) + 1))
    figure.update_layout(
        coloraxis={
            "colorscale": HEAT, "cmin": 0, "cmax": float(np.log10(max(most, 10.0))),
            "colorbar": {
                "title": {"text": "page<br>write-backs"}, "tickvals": powers,
                "ticktext": [f"{10**power:,}" for power in powers],
            },
        }
    )  # fmt: skip
    figure.update_xaxes(
        title_text="time since the recording began, s", row=max(1, len(models)), col=1
    )
    figure.update_yaxes(title_text="page, by its place on the disk")
    return look(figure, PLOT_PX * max(1, len(models)))


def _grid(boxes: pd.DataFrame, width: float, height: int) -> NDArray[np.float64]:
    """Returns counts by page and time, evenly spaced from 0 on; NaN where there is no box."""
    times = (boxes["from_s"] / width).round().astype(int).to_numpy()
    pages = (boxes["first_page"] // height).astype(int).to_numpy()
    found = np.full((int(pages.max()) + 1, int(times.max()) + 1), np.nan)
    found[pages, times] = boxes["writebacks"]
    return found


def layer_improvement(frame: pd.DataFrame) -> go.Figure:
    """Draws the largest improvement by a flush layer, one panel per page identity.

    Columns: where, model, identity, writes (rows other than `all` are not drawn), improvement
    (_low, _high), paper_improvement.
    """
    own = frame[frame["identity"].notna() & (frame["writes"] == "all")]
    named = own.assign(panel="pages by " + own["identity"].astype(str))
    axis = Axis("I/O latency saved", percent=True)
    return dots(
        named, "improvement", axis, category="model", series="where", panel="panel",
        paper="paper_improvement",
    )  # fmt: skip


def layer_habits(frame: pd.DataFrame) -> go.Figure:
    """Draws the largest improvement by checkpoint habit, one panel per place and model.

    Columns: where, model, habit, identity, improvement (_low, _high), paper_improvement.
    """
    named = frame.assign(panel=frame["where"].astype(str) + ", " + frame["model"].astype(str))
    return dots(
        named, "improvement", Axis("I/O latency saved", percent=True), category="habit",
        series="identity", panel="panel", paper="paper_improvement",
    )  # fmt: skip


def layer_curves(frame: pd.DataFrame) -> go.Figure:
    """Draws improvement over the size of a flush layer, one panel per place and page identity.

    Columns: where, model, identity, capacity_share, improvement (drawn solid),
    improvement_with_drain (dashed), paper_improvement (a hollow marker on the first row of
    a model that reaches it).
    """
    panels = list(frame.groupby(["where", "identity"], sort=False))[:_MOST_PANELS]
    models = numbered(frame["model"])
    figure = make_subplots(
        rows=max(1, len(panels)), cols=1, vertical_spacing=0.3 / max(1, len(panels)),
        subplot_titles=[text(f"{where}, pages by {identity}") for (where, identity), _ in panels],
    )  # fmt: skip
    for row, (_, panel) in enumerate(panels, 1):
        for model, number in models.items():
            own = panel[panel["model"] == model]
            group = {"name": text(model), "legendgroup": text(model)}
            for column, dash in (("improvement", "solid"), ("improvement_with_drain", "dash")):
                line = {"color": colour(number), "dash": dash, "width": 2, "shape": "hv"}
                shown = row == 1 and dash == "solid"
                figure.add_scatter(
                    x=own["capacity_share"], y=own[column], mode="lines", line=line, **group,
                    showlegend=shown, hovertemplate="%{y:.0%} with room for %{x:.0%}",
                    row=row, col=1,
                )  # fmt: skip
            reached = own[own["improvement"] >= own["paper_improvement"]].head(1)
            marker = {"color": colour(number), "symbol": "circle-open", "size": 11}
            figure.add_scatter(
                x=reached["capacity_share"], y=reached["improvement"], mode="markers",
                marker=marker, **group, showlegend=False, row=row, col=1,
            )  # fmt: skip
    figure.update_xaxes(tickformat=".0%", range=[0, 1.02])
    room = "room in the layer, as a share of the distinct pages"
    figure.update_xaxes(title_text=room, row=max(1, len(panels)), col=1)
    figure.update_yaxes(title_text="I/O latency saved", tickformat=".0%", range=[-0.02, 1.02])
    return look(figure, (PLOT_PX - 80) * max(1, len(panels)))
