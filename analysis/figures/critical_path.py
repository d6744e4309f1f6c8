"""Figures of critical paths: the time of all steps by cause, and the threads of one step."""

from __future__ import annotations

import pandas as pd
import plotly.graph_objects as go

from tracer.analysis.figures.style import NEUTRAL, colour, look, text

CAUSES = {
    "runs": ("run",),
    "waits for a CPU": ("cpu", "throttled"),
    "waits for storage or memory": ("disk", "fault", "sync", "dirty", "reclaim"),
    "waits for threads and processes": ("lock", "ipc", "child", "frozen"),
    "sleeps for a given time": ("timer",),
    "waits for the GPU": ("gpu",),
    "waits, cause unknown": ("other",),
}
"""Causes that have a colour, and their kinds of segments."""

_COLOURS = {
    cause: NEUTRAL if cause.endswith("unknown") else colour(number)
    for number, cause in enumerate(CAUSES)
}
_ROW_PX = 34


def kind_colour(kind: str) -> str:
    """Returns the colour of a kind of segments."""
    return next((_COLOURS[cause] for cause, kinds in CAUSES.items() if kind in kinds), NEUTRAL)


def step_times(frame: pd.DataFrame) -> go.Figure:
    """Draws the mean time of steps by cause, over the run.

    Columns: first (number of the first step of a group of steps), called (the group's name), and ms
    of each cause in `CAUSES`.
    """
    figure = go.Figure()
    for cause in CAUSES:
        if not frame[cause].any():
            continue
        figure.add_bar(
            x=frame["first"],
            y=frame[cause],
            name=cause,
            marker={"color": _COLOURS[cause], "line": {"width": 0}},
            customdata=[text(called) for called in frame["called"]],
            hovertemplate=f"%{{customdata}}: %{{y:,.3~r}} ms<extra>{cause}</extra>",
        )
    figure.update_layout(barmode="stack", bargap=0)
    figure.update_xaxes(title="steps, in order of time")
    figure.update_yaxes(title="time of a step, ms", rangemode="tozero")
    return look(figure)


def threads_of_step(frame: pd.DataFrame, length_ms: float) -> go.Figure:
    """Draws the critical path of one step through its threads. The axis is as long as the step.

    Columns: from_ms (since the step's start), ms, thread, kind, said.
    """
    threads = list(dict.fromkeys(frame["thread"]))
    figure = go.Figure()
    for cause, kinds in CAUSES.items():
        rows = frame[frame["kind"].isin(kinds)]
        if not len(rows):
            continue
        figure.add_bar(
            base=rows["from_ms"],
            x=rows["ms"],
            y=[text(thread) for thread in rows["thread"]],
            orientation="h",
            name=cause,
            marker={"color": _COLOURS[cause], "line": {"width": 0}},
            # Plotly's x of a bar is the bar's end.
            customdata=[
                [text(said), ms] for said, ms in zip(rows["said"], rows["ms"], strict=True)
            ],
            hovertemplate="%{base:.3f} ms: %{customdata[1]:,.3~r} ms<br>%{customdata[0]}"
            "<extra></extra>",
        )
    figure.update_layout(barmode="overlay")
    figure.update_xaxes(title="ms since the start of the step", range=[0, length_ms])
    figure.update_yaxes(
        categoryorder="array", categoryarray=[text(thread) for thread in reversed(threads)]
    )
    return look(figure, plot_px=max(90, _ROW_PX * len(threads)))
