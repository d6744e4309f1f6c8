"""Figures of a simulated flush layer: improvement by capacity, latencies, sweeps."""

from __future__ import annotations

from collections.abc import Sequence

import pandas as pd
import plotly.graph_objects as go

from tracer.analysis.figures.style import HEAT, NEUTRAL, colour, joined, look, numbered, text

_MIB = 1 << 20
_WAYS = {"improvement": ("without the final drain", "solid"),
         "improvement_with_drain": ("with the final drain", "dash")}  # fmt: skip
_AXES = (
    *("trace", "identity", "buffer", "policy", "medium", "disk", "destage", "replay"),
    *("dirty_ratio", "dirty_background_ratio", "dirty_bytes", "dirty_background_bytes"),
    *("dirty_expire_centisecs", "dirty_writeback_centisecs", "bound"),
)
_THIN_PX, _MORE_PX = 2, 4
_PERCENTILES = {"p50_ns": "p50", "p95_ns": "p95", "p99_ns": "p99", "p99_9_ns": "p99.9"}


def by_capacity(frame: pd.DataFrame, marks: tuple[float, ...] = ()) -> go.Figure:
    """Draws improvement over the layer's size, one line per series, with and without final drain.

    Columns: series (names), capacity_bytes, improvement, improvement_with_drain (shares). Each
    improvement in `marks`, such as the paper's, gets a horizontal line. A line shows on both sides
    of a later one that covers it.
    """
    figure = go.Figure()
    series = numbered(frame["series"])
    for name, number in series.items():
        rows = frame[frame["series"] == name].sort_values("capacity_bytes")
        for column, (said, dash) in _WAYS.items():
            figure.add_scatter(
                x=rows["capacity_bytes"] / _MIB,
                y=rows[column],
                mode="lines",
                name=f"{text(name)}, {said}",
                line={
                    "color": colour(number),
                    "dash": dash,
                    "shape": "hv",
                    "width": _THIN_PX + _MORE_PX * (1 - (number + 1) / len(series)),
                },
            )
    for mark in marks:
        figure.add_hline(
            y=mark,
            line={"color": NEUTRAL, "dash": "dot"},
            annotation_text=f"{mark:.0%}",
            annotation_position="bottom right" if mark == min(marks) else "top right",
        )
    figure.update_xaxes(title="size of the layer, MiB", rangemode="tozero")
    figure.update_yaxes(title="time of writes saved", tickformat=".0%")
    return look(figure)


def by_improvement(frame: pd.DataFrame) -> go.Figure:
    """Draws the size that each improvement needs as bars; none for an improvement out of reach.

    Columns: series, improvement, capacity_bytes (null: out of reach).
    """
    figure = go.Figure()
    known = frame[frame["capacity_bytes"].notna()]
    for name, number in numbered(frame["series"]).items():
        rows = known[known["series"] == name]
        figure.add_bar(
            x=[f"{value:.0%}" for value in rows["improvement"]],
            y=rows["capacity_bytes"].astype(float) / _MIB,
            name=text(name),
            marker_color=colour(number),
        )
    figure.update_xaxes(title="time of writes saved", type="category")
    figure.update_yaxes(title="size of the layer, MiB", rangemode="tozero")
    figure.update_layout(barmode="group")
    return look(figure)


def latencies(frame: pd.DataFrame) -> go.Figure:
    """Draws percentiles of response times, one line per series, on a logarithmic axis.

    Columns: series, p50_ns, p95_ns, p99_ns, p99_9_ns. Times of 0 are not drawn.
    """
    figure = go.Figure()
    for number, row in enumerate(frame.to_dict("records")):
        times = [row[column] / 1e6 or None for column in _PERCENTILES]
        figure.add_scatter(
            x=list(_PERCENTILES.values()),
            y=times,
            mode="lines+markers",
            name=text(row["series"]),
            line={"color": colour(number // 2), "dash": "dash" if number % 2 else "solid"},
        )
    figure.update_xaxes(title="percentile of the requests", type="category")
    figure.update_yaxes(title="response time, ms", type="log")
    return look(figure)


def sweep_heat(frame: pd.DataFrame, value: str, title: str) -> go.Figure:
    """Draws a sweep as a heat map: sizes of the layer across, all other axes down.

    Columns: capacity_bytes, the axes of the sweep, and `value`. Axes with one value get no label.
    """
    axes = [column for column in _AXES if column in frame and frame[column].nunique() > 1]
    names = joined([frame[column] for column in axes]) if axes else ["all"] * len(frame)
    grid = frame.assign(row=names).pivot_table(
        index="row", columns="capacity_bytes", values=value, sort=False, dropna=False
    )
    sizes = sorted(frame["capacity_bytes"].unique())
    grid = grid.reindex(columns=sizes)
    figure = go.Figure(
        go.Heatmap(
            z=grid.to_numpy(),
            x=_sizes(sizes),
            y=list(grid.index),
            colorscale=HEAT,
            colorbar={"title": title, "tickformat": ".3~%"},
            hovertemplate="%{y}<br>%{x} MiB: %{z:.1%}<extra></extra>",
        )
    )
    figure.update_xaxes(title="size of the layer, MiB", type="category")
    figure.update_yaxes(autorange="reversed", type="category")
    return look(figure, max(120, 24 * len(grid)))


def _sizes(sizes: Sequence[int]) -> list[str]:
    """Returns labels of distinct sizes (bytes) in MiB: three digits, or more to tell all apart."""
    found: list[str] = []
    for digits in range(3, 18):
        # Whole MiB are never rounded: 1025 is not 1.02e+03.
        found = [f"{size / _MIB:.{max(digits, len(str(int(size) // _MIB)))}g}" for size in sizes]
        if len(set(found)) == len(found):
            break
    return found
