"""Figures of served models: latencies, and containers against the host."""

from __future__ import annotations

import pandas as pd
import plotly.graph_objects as go

from tracer.analysis.figures.dots import Axis, dots

_PANELS = {"median": "latency_p50_ms", "99th percentile": "latency_p99_ms"}


def latencies(frame: pd.DataFrame) -> go.Figure:
    """Draws the median and the 99th percentile of latencies by model and place.

    Columns: model, where, latency_p50_ms and latency_p99_ms (each with _low, _high).
    """
    parts = []
    for panel, value in _PANELS.items():
        names = {f"{value}{end}": f"ms{end}" for end in ("", "_low", "_high")}
        parts.append(frame[["model", "where", *names]].rename(columns=names).assign(panel=panel))
    axis = Axis("latency of a request, ms", log=True)
    return dots(pd.concat(parts), "ms", axis, category="model", series="where", panel="panel")


def against_host(frame: pd.DataFrame) -> go.Figure:
    """Draws the ratios of containers to the host, one panel per measure.

    Columns: measure, model, where, to_host (_low, _high).
    """
    axis = Axis("in containers / on the host")
    return dots(frame, "to_host", axis, category="model", series="where", panel="measure")
