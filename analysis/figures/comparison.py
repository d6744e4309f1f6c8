"""Groups of traces side by side: ratios with their intervals."""

from __future__ import annotations

import pandas as pd
import plotly.graph_objects as go

from analysis.figures.dots import Axis, dots
from analysis.figures.style import NEUTRAL

_MOST = 40


def ratios(frame: pd.DataFrame) -> go.Figure:
    """A forest plot: a dot a measure and group, its interval, on a logarithmic axis with 1 marked.

    Columns: topic, measure, group, verdict, ratio, ratio_low, ratio_high, in the order in which
    they are drawn; the first forty measures that have a ratio above 0. An interval without an end
    is left out.
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
    known = known.assign(**numbers)
    figure = dots(
        known, "ratio", Axis("ratio to the base", log=True), category="name", series="group"
    )
    figure.add_vline(x=1, line={"color": NEUTRAL, "dash": "dot"})
    return figure
