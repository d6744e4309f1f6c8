"""The times in which events may have been lost."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from tracer.analysis.views.calls_around import EARLIEST, LATEST
from tracer.analysis.views.stretches import Ints
from tracer.probes.loss import OF_EVENTS
from tracer.store.trace import Trace


class Gaps:
    """The times in which events may have been lost."""

    def __init__(self, trace: Trace, which: str) -> None:
        """`which`: SQL condition of the rows of `loss`."""
        rows = trace.arrow(
            f'SELECT coalesce("from", -{LATEST}) AS begin, coalesce("to", {LATEST}) AS "end"'
            f" FROM loss WHERE {OF_EVENTS} AND {which} ORDER BY 1"
        )
        self._begin = rows["begin"].to_numpy()
        ends = np.maximum.accumulate(rows["end"].to_numpy())
        self._latest = np.concatenate([[EARLIEST], ends])
        """The latest end of the first so many gaps."""

    def between(self, since: Ints, ts: Ints) -> NDArray[np.bool_]:
        """Returns where events may have been lost between two times (ns)."""
        return self._latest[np.searchsorted(self._begin, ts)] > since
