"""Figure of reads with other memory: one line per model."""

from __future__ import annotations

import pandas as pd
import plotly.graph_objects as go

from tracer.analysis.figures.style import colour, look, text

_MIB = 1 << 20


def by_memory(frame: pd.DataFrame, models: dict[str, str], of_an_epoch: bool) -> go.Figure:
    """Draws the data read over the memory: in an epoch, or as a whole.

    Columns: memory_bytes, and for each key of `models` (its name in words) MODEL_bytes. A model
    that also has MODEL_bytes_low and MODEL_bytes_high has a bar from one to the other at each
    memory, unless they are the same everywhere.
    """
    figure = go.Figure()
    rows = frame.sort_values("memory_bytes")
    for number, (model, words) in enumerate(models.items()):
        figure.add_scatter(
            x=rows["memory_bytes"] / _MIB,
            y=rows[f"{model}_bytes"] / _MIB,
            error_y=_bars(rows, f"{model}_bytes"),
            mode="lines+markers",
            name=text(words),
            line={"color": colour(number)},
        )
    figure.update_xaxes(title="memory, MiB", rangemode="tozero")
    title = "read per epoch, MiB" if of_an_epoch else "read, MiB"
    figure.update_yaxes(title=title, rangemode="tozero")
    return look(figure)


def _bars(rows: pd.DataFrame, value: str) -> dict[str, object] | None:
    low, high = f"{value}_low", f"{value}_high"
    if low not in rows or rows[low].equals(rows[high]):
        return None
    return {
        "type": "data",
        "symmetric": False,
        "array": (rows[high] - rows[value]) / _MIB,
        "arrayminus": (rows[value] - rows[low]) / _MIB,
    }
