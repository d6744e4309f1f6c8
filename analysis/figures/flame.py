"""A flame graph: boxes as wide as their time, each function above its caller."""

from __future__ import annotations

import pandas as pd
import plotly.graph_objects as go

from tracer.analysis.figures.critical_path import kind_colour
from tracer.analysis.figures.style import look, text

_ROW_PX = 22
_BOX = "#C8D3DC"
_LABELLED = 0.03
"""Smallest width, as a share of the graph's, of a box with its name inside."""


def flame(frame: pd.DataFrame) -> go.Figure:
    """Draws boxes. Columns: depth (0: at the bottom), from_ms, ms, name, said."""
    total = float(frame.loc[frame["depth"] == 0, "ms"].sum()) or 1.0
    figure = go.Figure()
    figure.add_bar(
        base=frame["from_ms"],
        x=frame["ms"],
        y=frame["depth"],
        orientation="h",
        width=0.94,
        marker={
            "color": [_colour(name) for name in frame["name"]],
            "line": {"width": 0},
        },
        text=[
            text(name) if ms >= _LABELLED * total else ""
            for name, ms in zip(frame["name"], frame["ms"], strict=True)
        ],
        textposition="inside",
        insidetextanchor="start",
        textangle=0,
        constraintext="none",
        cliponaxis=True,
        customdata=[
            [text(said), 100 * ms / total]
            for said, ms in zip(frame["said"], frame["ms"], strict=True)
        ],
        hovertemplate="%{customdata[0]}<br>%{x:.4g} ms, %{customdata[1]:.2g} %<extra></extra>",
        showlegend=False,
    )
    figure.update_layout(barmode="overlay", bargap=0)
    figure.update_xaxes(title="ms of waiting, of all steps", rangemode="tozero")
    deepest = int(frame["depth"].max()) if len(frame) else 0
    figure.update_yaxes(showticklabels=False, showgrid=False, range=[-0.5, deepest + 0.5])
    return look(figure, plot_px=_ROW_PX * (deepest + 1) + 20)


def _colour(name: str) -> str:
    """Returns the colour of a box: that of its kind for a wait, one for threads and functions."""
    return kind_colour(name[1:].partition(":")[0].rstrip("]")) if name.startswith("[") else _BOX
