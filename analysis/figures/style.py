"""The common style of figures: colours that colour-blind readers tell apart, on light and dark.

Text, axes and grid have no colour here: the page that shows a figure sets it.
"""

from __future__ import annotations

import html
import math
from collections.abc import Iterable, Sequence
from typing import Any

import plotly.graph_objects as go

COLOURS = ("#0072B2", "#E69F00", "#009E73", "#CC79A7", "#56B4E9", "#D55E00")
"""The palette of Okabe and Ito (2008), without black and yellow.

Black is invisible on a dark page, yellow on a light one.
"""

SYMBOLS = ("circle", "square", "diamond", "triangle-up", "cross", "x")
"""Markers, which tell series apart without colours."""

NEUTRAL = "#808080"
_PLACES = ("host", "one container")
_MORE = " containers"
"""Names of the places of runs, and the end of all further ones."""
HEAT = "Cividis"
PLOT_PX = 300
_TOP_PX, _BARE_TOP_PX, _BOTTOM_PX = 64, 12, 60
_HEAD_PX = 28
_LEAST_POWERS, _FEW_POWERS, _MANY_POWERS = 0.2, 0.7, 3.5
"""Powers of ten on a logarithmic axis: half of its least range, and the ranges up to which it has
labels for each digit, and for 1, 2 and 5."""
_LEGEND = {"orientation": "h", "yref": "container", "y": 1, "yanchor": "top", "x": 0}
_AXIS = {"automargin": True, "zeroline": False, "exponentformat": "none"}


def text(value: object) -> str:
    """Returns a name with HTML escaped: plotly interprets some tags, and names are untrusted.

    Characters that cannot be printed are escaped, too.
    """
    said = "".join(c if c.isprintable() else f"\\x{ord(c):02x}" for c in str(value))
    return html.escape(said, quote=False)


def look(
    figure: go.Figure, plot_px: int = PLOT_PX, layout: dict[str, Any] | None = None
) -> go.Figure:
    """Gives a figure the common style; `plot_px` is the height of the area within the axes.

    `layout` takes the place of the figure's layout, and is changed. Titles of panels, which plotly
    centres, move to the left.
    """
    # One dictionary, checked once: plotly's update methods take ten times as long.
    layout = figure.layout.to_plotly_json() if layout is None else layout
    notes = layout.get("annotations", ())
    top = _TOP_PX if any(map(_is_in_legend, figure.data)) else _BARE_TOP_PX
    top += _HEAD_PX if notes else 0
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


def _is_in_legend(trace: Any) -> bool:
    return trace.name is not None and trace.showlegend is not False


def log_axis(values: Iterable[float], room: float = 1) -> dict[str, Any]:
    """Returns the settings of a logarithmic axis whose labels are whole numbers, such as 0.2.

    Plotly itself labels steps within a power of ten by their first digit. `room`: how many labels
    fit, as a share of those of a figure of its own.
    """
    known = [value for value in values if 0 < value < math.inf]
    if not known:
        return {"type": "log"}
    low, high = math.log10(min(known)), math.log10(max(known))
    apart = high - low
    few, many = room * _FEW_POWERS, room * _MANY_POWERS
    factors = (1,) if apart > many else (1, 2, 5) if apart > few else range(1, 10)
    ticks = [n * 10.0**power for power in range(math.floor(low) - 1, math.ceil(high) + 2)
             for n in factors]  # fmt: skip
    axis = {"type": "log", "tickvals": ticks, "ticktext": [f"{tick:,.15g}" for tick in ticks]}
    if apart < _LEAST_POWERS:  # plotly would widen it to two powers of ten
        middle = (low + high) / 2
        axis["range"] = [middle - _LEAST_POWERS, middle + _LEAST_POWERS]
    return axis


def numbered(values: Iterable[object]) -> dict[object, int]:
    """Numbers the distinct values in order of first appearance."""
    return {value: number for number, value in enumerate(dict.fromkeys(values))}


def hues(values: Iterable[object]) -> dict[object, int]:
    """Numbers the distinct values for `colour`. A place has the same number in all figures."""
    found = numbered(values)
    others = sorted({str(name) for name in found} - set(_PLACES), key=lambda s: (len(s), s))
    if not all(name.endswith(_MORE) for name in others):
        return found
    order = [*_PLACES, *others]
    return {name: order.index(str(name)) for name in found}


def colour(number: int) -> str:
    """Returns the colour of the n-th series."""
    return COLOURS[number % len(COLOURS)]


def symbol(number: int) -> str:
    """Returns the marker of the n-th series."""
    return SYMBOLS[number % len(SYMBOLS)]


def joined(frame_columns: Sequence[Iterable[object]]) -> list[str]:
    """Joins the values of several columns row by row, without empty ones."""
    return [
        text(
            ", ".join(str(part) for part in row if part is not None and part == part and part != "")
        )
        for row in zip(*frame_columns, strict=True)
    ]
