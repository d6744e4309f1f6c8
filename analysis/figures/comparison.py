"""Groups of traces side by side: ratios with their intervals."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import numpy as np
import pandas as pd
import plotly.graph_objects as go

from tracer.analysis.figures.dots import Axis, dots
from tracer.analysis.figures.style import NEUTRAL, log_axis, numbered, symbol, text
from tracer.digits import show_digits

MOST_MEASURES = 40
_ROOM = 0.05
"""Share of the axis that is free at each end."""


def ratios(frame: pd.DataFrame, hollow: Collection[str] = ()) -> go.Figure:
    """Draws a forest plot: one dot with its interval per measure and group.

    The axis is logarithmic and has 1, with a line there. Columns: topic, measure, group, verdict,
    lossy, ratio, ratio_low, ratio_high, in drawing order. Only the first forty measures with a
    ratio above 0 are drawn. An interval without an end is left out. Dots whose verdict is in
    `hollow` are hollow. The legend marks a group "events lost" if any of its rows is lossy.
    """
    known = frame[pd.to_numeric(frame["ratio"]) > 0]
    names = [
        f"{topic}: {name}" for topic, name in zip(known["topic"], known["measure"], strict=True)
    ]
    known = known.assign(name=names)
    known = known[known["name"].isin(list(dict.fromkeys(names))[:MOST_MEASURES])]
    numbers = {
        column: pd.to_numeric(known[column]).astype(float)
        for column in ("ratio", "ratio_low", "ratio_high")
    }
    lossy = set(known.loc[known["lossy"].astype(bool), "group"])
    series = [f"{one} (events lost)" if one in lossy else str(one) for one in known["group"]]
    known = known.assign(**numbers, series=series)
    figure = dots(
        known, "ratio", Axis("times the base", log=True), category="name", series="series"
    )
    for number, (drawn, series_name) in enumerate(
        zip(figure.data, numbered(known["series"]), strict=True)
    ):
        own = known[known["series"] == series_name]
        drawn.marker.symbol = [
            f"{symbol(number)}-open" if verdict in hollow else symbol(number)
            for verdict in own["verdict"]
        ]
        drawn.hovertext = [
            f"{text(name)}<br>{text(series_name)}: {show_digits(ratio, 4)}, {text(verdict)}"
            for name, ratio, verdict in zip(own["name"], own["ratio"], own["verdict"], strict=True)
        ]
        drawn.hovertemplate = "%{hovertext}<extra></extra>"
    figure.update_xaxes(**_axis(known))
    figure.add_vline(x=1, line={"color": NEUTRAL, "dash": "dot"})
    return figure


def _axis(known: pd.DataFrame) -> dict[str, Any]:
    """Returns the settings of an axis that has all values and the ends of intervals, and 1."""
    ends = known[["ratio", "ratio_low", "ratio_high"]].to_numpy(np.float64)
    values = [1.0, *ends[np.isfinite(ends) & (ends > 0)].tolist()]
    low, high = np.log10(min(values)), np.log10(max(values))
    room = _ROOM * (high - low)
    return {"range": [low - room, high + room]} | log_axis(values)
