"""Intervals made of two events, in doubt if events between the two may be lost."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tracer.probes.loss import Gap

_FOREVER = np.iinfo(np.int64).max


def overlaps_gaps(starts: NDArray[Any], ends: NDArray[Any], gaps: Sequence[Gap]) -> NDArray[Any]:
    """Returns which intervals (ns, both ends included) overlap a gap."""
    if not gaps:
        return np.zeros(len(starts), np.bool_)
    gaps = sorted(gaps, key=lambda gap: gap.start or 0)
    begins = np.array([gap.start or 0 for gap in gaps])
    # The latest end of the gaps up to each: one of them overlaps if that is late enough.
    latest = np.maximum.accumulate(np.array([_FOREVER if g.end is None else g.end for g in gaps]))
    begun = np.searchsorted(begins, ends, side="right")
    overlaps: NDArray[Any] = (begun > 0) & (latest[np.maximum(begun, 1) - 1] >= starts)
    return overlaps
