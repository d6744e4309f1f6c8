"""The look of figures: colours that all eyes can distinguish, on light and dark pages.

Text, axes and grid have no colour here: who shows a figure gives them that of the page.
"""

from __future__ import annotations

import html
from collections.abc import Iterable, Sequence

import plotly.graph_objects as go

COLOURS = ("#0072B2", "#E69F00", "#009E73", "#CC79A7", "#56B4E9", "#D55E00")
"""The colours of Okabe and Ito (2008), without black and yellow, each of which is invisible on one
of the two backgrounds."""

SYMBOLS = ("circle", "square", "diamond", "triangle-up", "cross", "x")
"""Symbols that distinguish series without colours."""

NEUTRAL = "#808080"
HEAT = "Cividis"
PLOT_PX = 300
_TOP_PX, _BOTTOM_PX = 64, 60
_HEAD_PX = 28
_LEGEND = {"orientation": "h", "yref": "container", "y": 1, "yanchor": "top", "x": 0}
_AXIS = {"automargin": True, "zeroline": False, "exponentformat": "none"}


def text(value: object) -> str:
    """A name as text: plotly takes some tags for its own, and names are others'.

    What cannot be printed is escaped, too.
    """
    said = "".join(c if c.isprintable() else f"\\x{ord(c):02x}" for c in str(value))
    return html.escape(said, quote=False)


def look(figure: go.Figure, plot_px: int = PLOT_PX) -> go.Figure:
    """Gives a figure the common look; `plot_px` is the height of the area within the axes.

    Titles of panels, which stand where plotly puts them, move to the left.
    """
    # One dictionary, checked once: plotly's update methods take ten times as long.
    layout = figure.layout.to_plotly_json()
    notes = layout.get("annotations", ())
    top = _TOP_PX + (_HEAD_PX if notes else 0)
    layout |= {
        "template": "none",
        "height": plot_px + top + _BOTTOM_PX,
        "margin": {"l": 64, "r": 16, "t": top, "b": _BOTTOM_PX},
        "paper_bgcolor": "rgba(0,0,0,0)",
        "plot_bgcolor": "rgba(0,0,0,0)",
        "font": layout.get("font", {}) | {"family": "system-ui, sans-serif", "size": 13},
        "legend": layout.get("legend", {}) | _LEGEND,
        "hovermode": "closest",
    }
    for note in notes:
        font = note.get("font", {}) | {"size": 14, "weight": "bold"}
        note |= {"x": 0, "xanchor": "left", "font": font}
    for name in {"xaxis", "yaxis", *layout}:
        if name.startswith(("xaxis", "yaxis")):
            layout[name] = layout.get(name, {}) | _AXIS
    figure.layout = layout
    return figure


def numbered(values: Iterable[object]) -> dict[object, int]:
    """Distinct values with the number of each, in the order in which they come."""
    return {value: number for number, value in enumerate(dict.fromkeys(values))}


def colour(number: int) -> str:
    """The colour of the n-th series."""
    return COLOURS[number % len(COLOURS)]


def symbol(number: int) -> str:
    """The marker of the n-th series."""
    return SYMBOLS[number % len(SYMBOLS)]


def joined(frame_columns: Sequence[Iterable[object]]) -> list[str]:
    """Names of several columns as one, empty ones left out."""
    return [
        text(
            ", ".join(str(part) for part in row if part is not None and part == part and part != "")
        )
        for row in zip(*frame_columns, strict=True)
    ]
