"""Lanes of a timeline: figures that share an axis of time, so that they can be zoomed together.

Each function takes a frame of `tracer.analysis.timeline`, `end_s` (the length of the axis in s) and
`lost`, the intervals in which events were lost (from_s, to_s, gaps, events), which it shades.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
import pandas as pd
import plotly.graph_objects as go

from tracer.analysis.figures.style import COLOURS, NEUTRAL, colour, log_axis, look, text

LANE_PX = 110
_LATENCY_PX = 150
LOST_COLOUR = "rgba(213, 94, 0, 0.20)"
"""Vermilion of Okabe and Ito (2008), transparent enough to show the data below."""
LOST_EDGE = "rgba(213, 94, 0, 0.7)"
"""Outline of a gap; it shows gaps narrower than a pixel."""

LEFT_PX, RIGHT_PX = 76, 22
"""Margins, equal in all lanes, so that a moment has the same position in each."""
_DASHES = ("solid", "dash", "dot", "dashdot", "longdash", "longdashdot")
_REST = ("the rest", "other", "not known")
_KNOWN = {
    "periodic": 0, "background": 1, "sync": 2, "fsync": 3, "journal": 4, "direct": 5,
    "minor": 4, "major": 5, "write": 1, "read": 0, "target": 0, "child": 3, "flusher": 1,
    "daemon": 2,
}  # fmt: skip
"""Series that have the same colour in all lanes, with its number."""

_PHASES = (
    *("train", "fetch", "backward", "forward", "step", "optimizer"),
    *("inference", "data_load", "model_load", "checkpoint", "eval", "epoch"),
)
# The first phases, one per colour, are plain; the next ones reuse the colours with a hatch.
_HATCHES = ("", "/", ".")
MOST_NAMES = len(COLOURS) * len(_HATCHES)
"""Most names of phases that look apart."""
_ROW_PX, _HEAD_PX = 18, 17
_MOST_CHARACTERS = 60
_LONG_SPAN = 0.02
"""Share of the axis from which a span is long enough to show its name."""
_GAP = 5
"""A line is broken where two values are more than this many median distances apart."""


def areas(frame: pd.DataFrame, unit: str, end_s: float, lost: pd.DataFrame) -> go.Figure:
    """Draws stacked areas of series that add up.

    One row per bin, all of equal width. Columns: from_s, to_s, and one per series.
    """
    series = [name for name in frame.columns if name not in ("from_s", "to_s")]
    width = float(frame["to_s"].iloc[0] - frame["from_s"].iloc[0]) if len(frame) else 1.0
    figure = go.Figure()
    colours = _colours(series)
    # The areas are opaque and drawn from the top of the stack down, so a series that is 0 has no
    # visible outline. The last value is repeated, so that it extends to the end of its bin.
    piled = frame[series].cumsum(axis=1)
    for name in reversed(series):
        tops, own = (
            np.append(values, values.iloc[-1:]).astype(np.float32)
            for values in (piled[name], frame[name])
        )
        figure.add_trace(
            go.Scatter(
                x0=0, dx=width, y=tops, customdata=own, name=_name(name), mode="lines",
                fill="tozeroy", fillcolor=colours[name],
                line={"shape": "hv", "width": 1, "color": colours[name]},
                hovertemplate="%{customdata:,.4~g} " + unit,
            )
        )  # fmt: skip
    figure.update_layout(legend_traceorder="reversed", meta={"piled": True})
    figure.update_yaxes(rangemode="tozero")
    return _lane(figure, unit, end_s, lost)


def lines(frame: pd.DataFrame, unit: str, end_s: float, lost: pd.DataFrame) -> go.Figure:
    """Draws values over time, one line per series. Columns: series, at_s, value.

    A line is broken where values are missing, that is, where the next one is much later than usual.
    """
    figure = go.Figure()
    for number, (name, own) in enumerate(frame.groupby("series", sort=False)):
        at, value = _broken(own["at_s"].to_numpy(float), own["value"].to_numpy(float))
        its = NEUTRAL if name in _REST else colour(number)
        figure.add_trace(
            go.Scatter(
                x=at, y=value, name=_name(name), mode="lines" if len(own) > 1 else "markers",
                line={"color": its, "width": 1.5, "dash": _DASHES[number % len(_DASHES)]},
                marker={"color": its}, connectgaps=False,
                hovertemplate="%{y:,.4~g} " + unit,
            )
        )  # fmt: skip
    figure.update_yaxes(rangemode="tozero")
    return _lane(figure, unit, end_s, lost)


def latencies(frame: pd.DataFrame, unit: str, end_s: float, lost: pd.DataFrame) -> go.Figure:
    """Draws median and 99th percentile of request times by bin, on a logarithmic scale.

    Columns: series (a part of a request's time), from_s, to_s, requests, p50_ms, p99_ms.
    """
    figure = go.Figure()
    for number, (name, own) in enumerate(frame.groupby("series", sort=False)):
        middle = ((own["from_s"] + own["to_s"]) / 2).to_numpy(np.float32)
        for column, shown, marker in (("p50_ms", "median", "circle"), ("p99_ms", "p99", "line-ew")):
            figure.add_trace(
                go.Scatter(
                    x=middle, y=own[column].where(own[column] > 0).to_numpy(np.float32),
                    name=f"{_name(name)}, {shown}", mode="markers",
                    marker={
                        "color": colour(2 * number), "symbol": marker,
                        "size": 4 if shown == "median" else 6,
                        "line": {"width": 0 if shown == "median" else 1.5,
                                 "color": colour(2 * number + 1)},
                    },
                    customdata=own["requests"].to_numpy(np.int32),
                    hovertemplate="%{y:,.4~g} " + unit + " (%{customdata:,} requests)",
                )
            )  # fmt: skip
    made = _lane(figure, unit, end_s, lost, _LATENCY_PX)
    drawn = frame[["p50_ms", "p99_ms"]].to_numpy(float).ravel()
    return made.update_yaxes(log_axis(drawn.tolist(), room=0.5))


def spans(frame: pd.DataFrame, unit: str, end_s: float, lost: pd.DataFrame) -> go.Figure:
    """Draws nested phases, one band of rows per thread. `unit` is not used: a span has none.

    Columns: place, thread, depth, name, epoch, step, from_s, to_s, spans (the number of spans that
    the row merges), ended. All names but those of `names_apart` share a colour.
    """
    figure = go.Figure()
    tops: dict[object, float] = {}
    below = 0.0
    for place, band in frame.groupby("place", sort=False):
        tops[place] = below + _HEAD_PX
        below += _HEAD_PX + (int(band["depth"].max()) + 1) * _ROW_PX + 4
        figure.add_annotation(
            x=0, xref="paper", xanchor="left", y=tops[place] - _HEAD_PX / 2 + 1, yanchor="middle",
            text=_name(band["thread"].iloc[0]), showarrow=False, font={"size": 11},
        )  # fmt: skip
    middles = frame["place"].map(tops) + (frame["depth"] + 0.5) * _ROW_PX
    series = frame["name"].where(frame["name"].isin(names_apart(frame)), _REST[0])
    groups = dict(list(frame.assign(middle=middles).groupby(series, sort=False)))
    numbers = _numbers_of_phases(name for name in groups if name != _REST[0])
    for name in sorted(groups, key=lambda name: (name == _REST[0], _place(name))):
        own, number, rest = groups[name], numbers.get(name, 0), name not in numbers
        figure.add_trace(
            go.Bar(
                orientation="h", base=own["from_s"].to_numpy(float),
                x=(own["to_s"] - own["from_s"]).to_numpy(float), y=own["middle"].to_numpy(float),
                width=_ROW_PX - 2, name=_name(name), customdata=_said(own),
                text=_labels(own, _LONG_SPAN * end_s),
                textposition="inside", insidetextanchor="start", textangle=0, cliponaxis=True,
                insidetextfont={
                    "color": "#000000" if rest or _light(number) else "#ffffff", "size": 11,
                },
                marker={
                    "color": NEUTRAL if rest else colour(number), "line": {"width": 0},
                    "pattern": {"shape": "" if rest else _HATCHES[number // len(COLOURS)],
                                "fillmode": "overlay", "fgcolor": "rgba(0, 0, 0, 0.45)", "size": 5,
                                "solidity": 0.25},
                },
                hovertemplate="%{customdata}<extra></extra>",
            )
        )  # fmt: skip
    figure.update_layout(barmode="overlay", uniformtext={"minsize": 9, "mode": "hide"})
    made = _lane(figure, "", end_s, lost, max(_HEAD_PX + _ROW_PX, int(below)))
    made.update_yaxes(range=[below, 0], showticklabels=False, showgrid=False, title_text=None)
    made.update_layout(hovermode="closest")
    return made


def names_apart(frame: pd.DataFrame) -> list[object]:
    """Returns the names of phases with a colour of their own: those with the most time."""
    lengths = (frame["to_s"] - frame["from_s"]).groupby(frame["name"], sort=False).sum()
    return list(lengths.sort_values(ascending=False, kind="stable").index[:MOST_NAMES])


def _name(value: object) -> str:
    return text(str(value)[:_MOST_CHARACTERS])


def _place(name: object) -> int:
    return _PHASES.index(str(name)) if name in _PHASES else len(_PHASES)


def _numbers_of_phases(names: Iterable[object]) -> dict[object, int]:
    """Returns a number per name, for its colour and hatch; PyTorch's phases always have theirs."""
    numbers = {name: _place(name) for name in names}
    own = len(_PHASES)
    free = [*range(own, MOST_NAMES), *sorted(set(range(own)) - set(numbers.values()))]
    others = (name for name, place in numbers.items() if place == own)
    return numbers | dict(zip(others, free, strict=False))


def _light(number: int) -> bool:
    return colour(number) not in ("#0072B2", "#D55E00", "#009E73")


def _records(frame: pd.DataFrame) -> list[Any]:
    return list(frame.itertuples(index=False))


def _labels(frame: pd.DataFrame, least_s: float) -> list[str]:
    """Returns the label of each span; "" for a span shorter than `least_s`."""
    return [_label(row) if row.to_s - row.from_s >= least_s else "" for row in _records(frame)]


def _label(row: Any) -> str:
    """Returns a span's label, such as "step 17" or "train"."""
    if row.spans > 1:
        return f"{_name(row.name)} x {row.spans:,}"
    if row.name == "step" and not pd.isna(row.step):
        return f"step {int(row.step)}"
    if row.name == "epoch" and not pd.isna(row.epoch):
        return f"epoch {int(row.epoch)}"
    return _name(row.name)


def _said(frame: pd.DataFrame) -> list[str]:
    """Returns the hover text of each span."""
    said = []
    for row in _records(frame):
        words = [f"{_name(row.name)} x {row.spans:,}" if row.spans > 1 else _name(row.name)]
        words += [f"epoch {int(row.epoch)}"] if not pd.isna(row.epoch) else []
        words += [f"step {int(row.step)}"] if not pd.isna(row.step) else []
        length = row.to_s - row.from_s
        words.append(f"{length:,.3f} s" if length >= 1 else f"{1000 * length:,.3f} ms")
        words += [] if row.ended else ["did not end"]
        said.append(f"{', '.join(words)}<br>{row.from_s:,.4f} to {row.to_s:,.4f} s")
    return said


def _broken(
    at: np.ndarray[Any, np.dtype[np.float64]], value: np.ndarray[Any, np.dtype[np.float64]]
) -> tuple[Any, Any]:
    """Returns times and values with a NaN value inserted at each hole."""
    if len(at) < 3:  # no two distances to compare
        return at.astype(np.float32), value.astype(np.float32)
    apart = np.diff(at)
    holes = np.flatnonzero(apart > _GAP * np.median(apart)) + 1
    return (
        np.insert(at, holes, at[holes - 1]).astype(np.float32),
        np.insert(value, holes, np.nan).astype(np.float32),
    )


def _colours(series: list[str]) -> dict[str, str]:
    """Returns a colour per series: its own if it is known, grey for the rest, else a free one."""
    taken = {_KNOWN[name] for name in series if name in _KNOWN}
    free = [number for number in range(6) if number not in taken] or [0]
    found: dict[str, str] = {}
    turn = 0
    for name in series:
        if name in _REST:
            found[name] = NEUTRAL
        elif name in _KNOWN:
            found[name] = colour(_KNOWN[name])
        else:
            found[name] = colour(free[turn % len(free)])
            turn += 1
    return found


def _lane(
    figure: go.Figure, unit: str, end_s: float, lost: pd.DataFrame, plot_px: int = LANE_PX
) -> go.Figure:
    """Gives a figure the common style and axis of time of all lanes."""
    layout = figure.layout.to_plotly_json()
    look(figure, plot_px, layout)
    layout |= {
        "height": plot_px + 56, "margin": {"l": LEFT_PX, "r": RIGHT_PX, "t": 26, "b": 30},
        "hovermode": "x unified", "bargap": 0, "dragmode": "zoom", "showlegend": True,
        "hoverlabel": {"font": {"size": 12}, "namelength": 40},
        "shapes": [*layout.get("shapes", ()), *_shaded(lost)],
    }  # fmt: skip
    layout["xaxis"] |= {
        "range": [0, end_s], "minallowed": 0, "maxallowed": end_s, "ticksuffix": " s",
        "automargin": False, "showgrid": True, "nticks": 8, "hoverformat": ",.4~f",
        "tickfont": {"size": 11},
    }  # fmt: skip
    layout["yaxis"] |= {
        "title": {"text": unit, "font": {"size": 11}, "standoff": 4}, "automargin": False,
        "fixedrange": True, "nticks": 4, "tickfont": {"size": 11}, "exponentformat": "SI",
    }  # fmt: skip
    figure.layout = layout
    return figure


def shade(figure: go.Figure, lost: pd.DataFrame) -> None:
    """Shades the intervals in which events were lost. Columns: from_s, to_s."""
    figure.update_layout(shapes=[*figure.layout.shapes, *_shaded(lost)])


def _shaded(lost: pd.DataFrame) -> list[dict[str, Any]]:
    return [
        {
            "type": "rect", "xref": "x", "yref": "paper", "x0": row.from_s, "x1": row.to_s,
            "y0": 0, "y1": 1, "fillcolor": LOST_COLOUR, "name": "lost",
            "line": {"width": 1, "color": LOST_EDGE},
        }
        for row in lost.itertuples(index=False)
    ]  # fmt: skip
