"""A paper's table on the page of a trace."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import pandas as pd

if TYPE_CHECKING:
    import plotly.graph_objects as go


@dataclass(frozen=True)
class PaperTable:
    """A table of a paper, made from traces.

    `about`: the description of its contents. `frame`: the columns of the table's function; columns
    of the paper's numbers begin with paper_; columns and rows without a value from the traces are
    left out. `figures`: drawn from the frame. `shown`: the table itself is shown to readers, not
    only its figures. `lost`: the losses of its traces.
    """

    title: str
    about: str
    frame: pd.DataFrame
    figures: list[go.Figure]
    shown: bool
    lost: str
