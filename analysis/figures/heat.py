"""Heat maps of write-backs, on the same axis of time as the lanes of a timeline."""

from __future__ import annotations

import numpy as np
import pandas as pd
import plotly.graph_objects as go
from numpy.typing import NDArray

from tracer.analysis.figures.style import HEAT, NEUTRAL, look, text
from tracer.analysis.figures.timeline import LEFT_PX, RIGHT_PX, shade

_PLACES_PX, _ROW_PX = 320, 16
_LABELS = 7
_MOST_CHARACTERS = 80
_GIB = 1 << 30
_PAGE_BYTES = 4096


def places(frame: pd.DataFrame, unit: str, end_s: float, lost: pd.DataFrame) -> go.Figure:
    """Draws the pages written back by place and time, on a logarithmic scale.

    Columns: from_s, to_s (cells of equal width), row, dev, first_page, last_page, pages. A cell
    without pages has no colour. A row's label is the offset on its device at which it begins.
    """
    rows = frame.drop_duplicates("row").sort_values("row")
    where = list(
        zip(
            (text(str(dev)[:_MOST_CHARACTERS]) for dev in rows["dev"]),
            rows["first_page"],
            strict=True,
        )
    )
    names = [f"{dev} from page {page:,} ({_offset(page)})" for dev, page in where]
    figure = _map(frame, unit, names)
    picked = sorted({round(n) for n in np.linspace(0, len(rows) - 1, min(len(rows), _LABELS))})
    figure.update_yaxes(
        tickvals=picked, ticktext=[f"{where[n][0]}<br>{_offset(where[n][1])}" for n in picked],
        range=[-0.5, len(rows) - 0.5],
    )  # fmt: skip
    for n in np.flatnonzero(rows["dev"].to_numpy()[1:] != rows["dev"].to_numpy()[:-1])[:64]:
        figure.add_hline(y=float(n) + 0.5, line={"color": NEUTRAL, "width": 1})
    return _on_axis(figure, _PLACES_PX, end_s, lost)


def files(frame: pd.DataFrame, unit: str, end_s: float, lost: pd.DataFrame) -> go.Figure:
    """Draws the pages written back by file and time, the file with most pages on top.

    Columns: from_s, to_s (cells of equal width), row, file, pages.
    """
    rows = frame.drop_duplicates("row").sort_values("row")
    names = [
        f"{n}. {text(str(name)[-_MOST_CHARACTERS:])}" for n, name in enumerate(rows["file"], 1)
    ]
    figure = _map(frame, unit, names)
    figure.update_yaxes(
        tickvals=list(range(len(rows))), ticktext=[str(n + 1) for n in rows["row"]],
        title={"text": "file", "font": {"size": 11}}, range=[len(rows) - 0.5, -0.5],
    )  # fmt: skip
    return _on_axis(figure, max(3, len(rows)) * _ROW_PX, end_s, lost)


def _map(frame: pd.DataFrame, unit: str, names: list[str]) -> go.Figure:
    width = float(frame["to_s"].iloc[0] - frame["from_s"].iloc[0])
    counts = _grid(frame, width)
    shown = np.log10(counts, out=np.full_like(counts, np.nan), where=counts > 0)
    most = float(np.nanmax(shown)) if np.isfinite(shown).any() else 0.0
    powers = list(range(0, int(most) + 1, 1 + int(most) // 5))
    whole = np.int32 if np.nanmax(counts) < 1 << 31 else np.float64
    heat = go.Heatmap(
        x0=width / 2, dx=width, y=names, z=shown.astype(np.float32),
        customdata=counts.astype(whole),
        zmin=0, zmax=max(most, 1.0), colorscale=HEAT, hoverongaps=False, name="",
        hovertemplate="%{y}<br>%{x}: %{customdata:,} " + unit + "<extra></extra>",
        colorbar={
            "orientation": "h", "y": 1, "yanchor": "bottom", "x": 1, "xanchor": "right",
            "len": 220, "lenmode": "pixels", "thickness": 10, "tickvals": powers,
            "ticktext": [_power(power) for power in powers], "tickfont": {"size": 11},
            "tickangle": 0,
            "ypad": 2, "xpad": 0, "outlinewidth": 0,
        },
    )  # fmt: skip
    return go.Figure(heat)


def _grid(cells: pd.DataFrame, width: float) -> NDArray[np.float64]:
    """Returns counts by row and time, evenly spaced from 0 on; 0 where there is no cell."""
    times = (cells["from_s"] / width).round().astype(int).to_numpy()
    rows = cells["row"].to_numpy(int)
    found = np.zeros((int(rows.max()) + 1, int(times.max()) + 1))
    found[rows, times] = cells["pages"].to_numpy(float)
    return found


def _offset(page: int) -> str:
    size = int(page) * _PAGE_BYTES / _GIB
    return f"{size:,.2f} GiB" if size < 10_000 else f"{size:.2e} GiB"


def _power(power: int) -> str:
    """Returns a power of ten with its SI letter: 100, 1k, 10M."""
    letters = ("", "k", "M", "G", "T", "P", "E")
    return f"{10 ** (power % 3)}{letters[power // 3]}"


def _on_axis(figure: go.Figure, plot_px: int, end_s: float, lost: pd.DataFrame) -> go.Figure:
    look(figure, plot_px)
    figure.update_layout(
        height=plot_px + 62, margin={"l": LEFT_PX, "r": RIGHT_PX, "t": 32, "b": 30},
        dragmode="zoom", showlegend=False,
    )  # fmt: skip
    figure.update_xaxes(
        range=[0, end_s], minallowed=0, maxallowed=end_s, ticksuffix=" s", automargin=False,
        nticks=8, hoverformat=",.4~f", tickfont={"size": 11},
    )  # fmt: skip
    figure.update_yaxes(fixedrange=True, automargin=False, tickfont={"size": 10}, showgrid=False)
    shade(figure, lost)
    return figure
