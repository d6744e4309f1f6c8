"""Closed replay: the waits between bios, inferred from a recording.

A recorded time carries the feedback of the recorded device: an issuer that waits for a slow disk
sends its next request late. In closed replay the bios of one issuer form a chain. The recording
gives the think time of each bio: the time since the last event in its chain before it, which is
the issue of the previous bio or the completion of an earlier one. In the replay, a bio arrives
its think time after the last of these events, and never before all of those completions. So a
burst that was issued without waiting stays a burst, and a think time stays a think time.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from tracer.analysis.flushlayer.timed.state import Rows
from tracer.probes.compiled import compiled


def chain_up(bio: Rows, chain: NDArray[np.int64], done: NDArray[np.int64]) -> int:
    """Fills in the columns of closed replay and returns the number of chains.

    `chain[m]` is the issuer of bio m. `done[m]` is its recorded completion in ns; -1: not
    recorded, so the replay assumes that nobody waited for it. Bios are in time order.
    """
    bio["next"] = bio["releases"] = -1
    if len(bio) == 0:
        return 0
    _, codes = np.unique(chain, return_inverse=True)
    order = np.argsort(codes, kind="stable")
    ends = np.cumsum(np.bincount(codes))
    starts = np.concatenate(([0], ends[:-1]))
    _link(bio, order, starts, ends, done)
    return len(ends)


@compiled
def _link(bio: Any, order: Any, starts: Any, ends: Any, done: Any) -> None:
    for c in range(len(starts)):
        members = order[starts[c] : ends[c]]
        times = bio["ts"][members]
        latest = np.full(len(members), -1, np.int64)
        for i in range(len(members)):
            m = members[i]
            if i + 1 < len(members):
                bio[m].next = members[i + 1]
                bio[members[i + 1]].blockers += 1
            if done[m] < 0:
                continue
            after = max(i + 1, np.searchsorted(times, done[m]))
            if after < len(members):
                bio[m].releases = members[after]
                bio[members[after]].blockers += 1
                latest[after] = max(latest[after], done[m])
        last = -1
        for i in range(len(members)):
            last = max(last, latest[i])
            if i > 0:
                last = max(last, times[i - 1])
                bio[members[i]].gap = max(0, times[i] - last)
