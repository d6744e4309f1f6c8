"""A flame graph: boxes as wide as their time, each function above its caller."""

from __future__ import annotations

import pandas as pd
import plotly.graph_objects as go

from tracer.analysis.figures.critical_path import kind_colour
from tracer.analysis.figures.style import look, text

_ROW_PX = 22
_BOX = "#C8D3DC"
_CHARACTERS = 125
"""Characters that fit into a box as wide as the graph."""
_FEWEST = 4
"""Fewest characters of a label."""
_LABEL_PX = 12
"""Size of labels. On a narrow screen, those that do not fit are left out."""


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
            "line": {"width": 0.5, "color": "rgba(0,0,0,0.3)"},
        },
        text=[
            text(_cut(name, ms / total))
            for name, ms in zip(frame["name"], frame["ms"], strict=True)
        ],
        textposition="inside",
        insidetextanchor="start",
        textangle=0,
        constraintext="inside",
        cliponaxis=True,
        customdata=[
            [text(said), 100 * ms / total, ms]
            for said, ms in zip(frame["said"], frame["ms"], strict=True)
        ],
        # Plotly's x of a bar is the bar's end.
        hovertemplate="%{customdata[0]}<br>%{customdata[2]:,.4~r} ms, %{customdata[1]:.2~r} %"
        "<extra></extra>",
        showlegend=False,
    )
    fitting = {"minsize": _LABEL_PX, "mode": "hide"}
    figure.update_layout(barmode="overlay", bargap=0, uniformtext=fitting)
    figure.update_xaxes(title="ms of waiting, of all steps", rangemode="tozero")
    deepest = int(frame["depth"].max()) if len(frame) else 0
    figure.update_yaxes(showticklabels=False, showgrid=False, range=[-0.5, deepest + 0.5])
    return look(figure, plot_px=_ROW_PX * (deepest + 1) + 20)


def _cut(name: str, width: float) -> str:
    """Returns as much of a name as fits into a box, whose width is a share of the graph's."""
    room = int(_CHARACTERS * width)
    if len(name) <= room:
        return name
    return f"{name[: room - 1]}\u2026" if room >= _FEWEST else ""


def _colour(name: str) -> str:
    """Returns the colour of a box: that of its kind for a wait, one for threads and functions."""
    return kind_colour(name[1:].partition(":")[0].rstrip("]")) if name.startswith("[") else _BOX
