"""The range of what the kernel's model reads: nobody knows the clock of the kernel's statistics.

Each clock (`clocks` of two_lists.py) gives a number of pages. Sums and means of rows are made for
each clock first, since all rows have the same one; their range is then narrower than the rows'.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from tracer.analysis.memory.prediction import KERNEL

BY_CLOCK = f"{KERNEL}_pages_by_clock"
"""Column of lists: pages read by the kernel's model, in the order of clocks."""
LOW, HIGH = f"{KERNEL}_pages_low", f"{KERNEL}_pages_high"
"""Columns of the least and the most of these pages."""


def ranged(by_clock: NDArray[np.int64]) -> dict[str, Any]:
    """Returns the columns LOW, HIGH and BY_CLOCK of pages by clock and row (int64[clock, row])."""
    return {
        LOW: by_clock.min(axis=0),
        HIGH: by_clock.max(axis=0),
        BY_CLOCK: pd.Series(by_clock.T.tolist(), dtype=object),
    }


def summed(rows: pd.DataFrame) -> NDArray[np.int64]:
    """Returns the pages of these rows together, by clock (int64[clock])."""
    found: NDArray[np.int64] = np.array(rows[BY_CLOCK].tolist(), np.int64).sum(axis=0)
    return found
