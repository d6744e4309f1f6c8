"""Values with their intervals as dots in panels, with a paper's values as hollow markers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
import plotly.graph_objects as go
from numpy.typing import NDArray
from plotly.subplots import make_subplots

from tracer.analysis.figures.style import colour, hues, log_axis, look, numbered, symbol, text

_WIDTH = 0.6
"""Share of a category's height over which its series are spread."""
_STEP_PX = 20
_LEAST_PX = 24
_GAP_PX = 64


@dataclass(frozen=True)
class Axis:
    """The axis of values: its title with the unit, and its scale.

    `percent`: the values are shares; all panels have the same axis, and it ends at 0 and 100 %
    unless a value lies beyond.
    """

    title: str
    log: bool = False
    percent: bool = False


def dots(
    frame: pd.DataFrame,
    value: str,
    axis: Axis,
    *,
    category: str,
    series: str,
    panel: str | None = None,
    paper: str | None = None,
) -> go.Figure:
    """Draws each row as a dot: its category down the side, its series as colour and marker.

    `frame` has columns with these names, and VALUE_low and VALUE_high if there are intervals.
    Each value of the column `panel` gets a panel. `paper` is the column of the paper's values.
    Nulls are not drawn, and a category without any value gets no row. An interval much wider than
    the range of the values is cut off at the panel's edge, unless the axis is logarithmic.
    """
    drawn = [name for name in (value, paper) if name is not None]
    frame = frame[frame[drawn].notna().any(axis=1)]
    panels = list(numbered(frame[panel])) if panel else [None]
    all_series = numbered(frame[series])
    hue = hues(frame[series])
    heights = [
        _LEAST_PX + _STEP_PX * len(all_series) * part[category].nunique()
        for part in (frame[frame[panel] == one] if panel else frame for one in panels)
    ] or [_LEAST_PX]
    whole = sum(heights) + _GAP_PX * (len(heights) - 1)
    # All at once: each of plotly's methods looks for its subplots and checks again.
    layout = make_subplots(
        rows=len(heights), cols=1, row_heights=heights,
        vertical_spacing=_GAP_PX / whole if len(heights) > 1 else 0,
        subplot_titles=[text(one) for one in panels] if panel else None,
    ).layout.to_plotly_json()  # fmt: skip
    traces: list[dict[str, Any]] = []
    shown: set[str] = set()
    shared = _extent(frame, value, drawn, shares=True) if axis.percent and len(frame) else None
    for row, one in enumerate(panels, 1):
        which = row if row > 1 else ""
        axes = {"xaxis": f"x{which}", "yaxis": f"y{which}"}
        part = frame[frame[panel] == one] if panel else frame
        categories = numbered(part[category])
        for name, number in all_series.items():
            own = part[part[series] == name]
            if not len(own):
                continue
            places = np.asarray(own[category].map(categories), np.float64) + _aside(
                number, len(all_series)
            )
            traces.append(_ours(own, value, places, name, hue[name], shown) | axes)
            if paper is not None and own[paper].notna().any():
                traces.append(_paper(own[paper], places, hue[name], name, shown) | axes)
        scale = (
            _scale(part, value, drawn)
            if axis.log
            else {"range": shared or _extent(part, value, drawn)}
        )
        layout[f"yaxis{which}"] |= {
            "tickvals": list(categories.values()), "ticktext": [text(name) for name in categories],
            "range": [len(categories) - 0.5, -0.5],
        }  # fmt: skip
        layout[f"xaxis{which}"] |= scale | {
            "tickformat": ".0%" if axis.percent else None,
            "title": {"text": axis.title if row == len(heights) else None},
        }
    return look(go.Figure(traces), whole, layout)


def _scale(part: pd.DataFrame, value: str, drawn: list[str]) -> dict[str, Any]:
    ends = [end for end in (f"{value}_low", f"{value}_high") if end in part]
    every = part[[*drawn, *ends]].apply(pd.to_numeric).to_numpy(np.float64)
    return log_axis(every[~np.isnan(every)].tolist())


def _extent(
    part: pd.DataFrame, value: str, drawn: list[str], shares: bool = False
) -> list[float] | None:
    """Returns the range of a panel's axis; None leaves it to plotly.

    It holds all values, and intervals up to one range of the values beyond them. Of `shares`, the
    intervals are cut off at 0 and 1, too.
    """
    values = part[drawn].apply(pd.to_numeric).to_numpy(np.float64)
    least, most = float(np.nanmin(values)), float(np.nanmax(values))
    ends = [f"{value}_low", f"{value}_high"]
    if most == least or ends[0] not in part or not part[ends].notna().any(axis=None):
        if not shares or most == least:
            return None
        room = 0.05 * (most - least)
        return [least - room, most + room]
    low, high = (pd.to_numeric(part[end]) for end in ends)
    apart = most - least
    left = max(least - apart, min(least, float(np.nanmin([*low, least]))))
    right = min(most + apart, max(most, float(np.nanmax([*high, most]))))
    if shares:
        left, right = max(left, min(0.0, least)), min(right, max(1.0, most))
    room = 0.05 * (right - left)
    return [left - room, right + room]


def _aside(number: int, of: int) -> float:
    return 0.0 if of < 2 else _WIDTH * (number / (of - 1) - 0.5)


def _ours(
    own: pd.DataFrame,
    value: str,
    places: NDArray[np.float64],
    name: object,
    number: int,
    shown: set[str],
) -> dict[str, Any]:
    middle = pd.to_numeric(own[value])
    error = None
    if f"{value}_low" in own:
        low, high = (pd.to_numeric(own[f"{value}_{end}"]) for end in ("low", "high"))
        error = {
            "type": "data", "symmetric": False, "array": (high - middle).tolist(),
            "arrayminus": (middle - low).tolist(), "thickness": 1.5, "width": 4,
        }  # fmt: skip
    return {
        "type": "scatter", "x": middle, "y": places, "mode": "markers",
        "name": text(name), "legendgroup": text(name),
        "showlegend": _first(f"ours {name}", shown), "error_x": error,
        "marker": {"color": colour(number), "symbol": symbol(number), "size": 9},
        "hovertemplate": "%{x}",
    }  # fmt: skip


def _paper(
    values: pd.Series[float],
    places: NDArray[np.float64],
    number: int,
    name: object,
    shown: set[str],
) -> dict[str, Any]:
    return {
        "type": "scatter", "x": pd.to_numeric(values), "y": places, "mode": "markers",
        "name": f"{text(name)}, the paper's", "legendgroup": f"{text(name)}, the paper's",
        "showlegend": _first(f"paper {name}", shown),
        "marker": {
            "color": colour(number), "symbol": f"{symbol(number)}-open", "size": 13,
            "line": {"width": 2},
        },
        "hovertemplate": "the paper: %{x}",
    }  # fmt: skip


def _first(name: str, shown: set[str]) -> bool:
    new = name not in shown
    shown.add(name)
    return new
