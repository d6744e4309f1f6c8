"""Groups of traces side by side: ratios with their intervals."""

from __future__ import annotations

from collections.abc import Collection

import pandas as pd
import plotly.graph_objects as go

from tracer.analysis.figures.dots import Axis, dots
from tracer.analysis.figures.style import NEUTRAL, numbered, symbol, text
from tracer.digits import show_digits

_MOST = 40


def ratios(frame: pd.DataFrame, hollow: Collection[str] = ()) -> go.Figure:
    """Draws a forest plot: one dot with its interval per measure and group.

    The axis is logarithmic, with a line at 1. Columns: topic, measure, group, verdict, lossy,
    ratio, ratio_low, ratio_high, in drawing order. Only the first forty measures with a ratio
    above 0 are drawn. An interval without an end is left out. Dots whose verdict is in `hollow`
    are hollow. The legend marks a group "events lost" if any of its rows is lossy.
    """
    known = frame[pd.to_numeric(frame["ratio"]) > 0]
    names = [
        f"{topic}: {name}" for topic, name in zip(known["topic"], known["measure"], strict=True)
    ]
    known = known.assign(name=names)
    known = known[known["name"].isin(list(dict.fromkeys(names))[:_MOST])]
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
    figure.add_vline(x=1, line={"color": NEUTRAL, "dash": "dot"})
    return figure
