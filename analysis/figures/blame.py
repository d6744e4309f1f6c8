"""The heat map of blame: for whom the threads of each target waited."""

from __future__ import annotations

import numpy as np
import pandas as pd
import plotly.graph_objects as go

from tracer.analysis.figures.style import HEAT, look, text

MOST_TARGETS, MOST_BLAMED = 24, 12
OTHERS = "others"
"""The column of everything that is blamed for less than what has a column of its own."""
_CHARACTERS = 32
_ROW_PX = 40
_SLANT_PX, _TITLE_PX = 5.5, 50
"""Height of a slanted name, per character, and of the ticks and the title beside the names."""


def blame(frame: pd.DataFrame) -> go.Figure | None:
    """Draws the share of each target's waits that is charged to whom; None if none waited.

    Columns: target, whose, blamed, total_s, path_s, as in the report's table of waits. The waits on
    the critical paths of steps count, since threads that have nothing to do wait, too; all waits
    count if no step waited. The cells of a row add up to 1.
    """
    on_path = frame["path_s"].fillna(0).sum() > 0
    frame = frame.assign(s=frame["path_s"].fillna(0) if on_path else frame["total_s"])
    shares = blame_shares(frame)
    if shares.empty:
        return None
    totals = frame.assign(target=frame["target"].fillna("")).groupby("target")["s"].sum()
    values = shares.to_numpy()
    seconds = values * totals[shares.index].to_numpy()[:, None]
    names = [text(_cut(name)) if name else "all" for name in shares.index]
    figure = go.Figure(
        go.Heatmap(
            # Names that are cut may be equal; numbers are not.
            x=list(range(len(shares.columns))),
            y=list(range(len(names))),
            z=np.where(values > 0, values, np.nan),
            text=[[_percent(value) for value in row] for row in values],
            texttemplate="%{text}",
            hoverongaps=False,
            customdata=[
                [[text(str(name)), value] for name, value in zip(shares.columns, row, strict=True)]
                for row in seconds
            ],
            zmin=0,
            zmax=1,
            colorscale=HEAT,
            showscale=False,
            showlegend=False,
            xgap=2,
            ygap=2,
            name="",
            hovertemplate="waits for %{customdata[0]}: %{customdata[1]:,.4~g} s<extra></extra>",
        )
    )
    look(figure, plot_px=max(2, len(names)) * _ROW_PX)
    columns = [_cut(name) for name in shares.columns]
    below = _TITLE_PX + round(_SLANT_PX * max(map(len, columns)))
    figure.layout.height += below - figure.layout.margin.b
    figure.layout.margin.b = below
    which = "steps" if on_path else "threads"
    figure.update_xaxes(
        tickvals=list(range(len(columns))), ticktext=[text(name) for name in columns],
        tickangle=-45, ticklabeloverflow="allow", showgrid=False,
        title={"text": f"for whom or what: share of its {which}' waits", "standoff": 8},
    )  # fmt: skip
    figure.update_yaxes(
        tickvals=list(range(len(names))), ticktext=names, title="who waits",
        range=[len(names) - 0.5, -0.5], showgrid=False,
    )  # fmt: skip
    return figure


def blame_shares(frame: pd.DataFrame) -> pd.DataFrame:
    """Returns the share of each target's waiting time `s` by whom it is charged to.

    Rows: the targets that waited longest ("": threads of no target). Columns: who is blamed, the
    one blamed for most first, and `OTHERS` for the rest. One to whom no time is charged has none.
    """
    named = frame.assign(
        target=frame["target"].fillna(""),
        by=[
            whose if pd.isna(blamed) else f"{whose} {blamed}"
            for whose, blamed in zip(frame["whose"], frame["blamed"], strict=True)
        ],
    )
    waited = named.groupby("target")["s"].sum().sort_values(ascending=False, kind="stable")
    targets = waited[waited > 0].index[:MOST_TARGETS]
    named = named[named["target"].isin(targets) & (named["s"] > 0)]
    blamed = named.groupby("by")["s"].sum().sort_values(ascending=False, kind="stable")
    own = set(blamed.index[:MOST_BLAMED])
    named["by"] = [by if by in own else OTHERS for by in named["by"]]
    table = named.pivot_table(
        index="target", columns="by", values="s", aggfunc="sum", fill_value=0.0
    )
    order = [*blamed.index[:MOST_BLAMED], *([OTHERS] if OTHERS in table.columns else [])]
    table = table.reindex(index=targets, columns=order)
    return table.div(table.sum(axis=1), axis=0)


def _percent(share: float) -> str:
    return "" if share == 0 else "<1 %" if share < 0.005 else f"{100 * share:.0f} %"


def _cut(name: object) -> str:
    said = str(name)
    return said if len(said) <= _CHARACTERS else f"{said[: _CHARACTERS - 1]}…"
