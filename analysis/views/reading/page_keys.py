"""Threads and processes of the page cache's events, told apart if they had the same number."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from tracer.analysis.views.lives import Lives
from tracer.analysis.views.reading.page_states import NOTHING


def with_keys(events: NDArray[np.void], lives: Lives) -> NDArray[np.void]:
    """Returns events (`EVENT`) with keys of threads and processes instead of their numbers."""
    ts = np.ascontiguousarray(events["ts"])
    for name in ("pid", "tid"):
        events[name] = lives.keys_of(events[name].astype(np.int64), ts)
    events["life"] = np.where(lives.alive(events["tid"]), events["tid"], NOTHING)
    return events


def with_numbers(uses: NDArray[np.void], lives: Lives) -> NDArray[np.void]:
    """Returns what events did (`USE`) with the numbers of threads and processes again.

    `used` is then a time (ns) at which the thread had its number: that of its use, if it was its.
    """
    used = np.where(uses["used"] == 0, uses["ts"], uses["used"])
    uses["used"] = lives.moments(uses["tid"].astype(np.int64), used)
    for name in ("pid", "tid", "by_pid", "by_tid"):
        uses[name] = lives.numbers(uses[name].astype(np.int64))
    return uses
