"""The end of a bio, and of the wait of whoever waits for it: compiled."""

from __future__ import annotations

from typing import Any

from analysis.flushlayer.timed.queueing import push
from analysis.flushlayer.timed.state import (
    ARRIVE,
    BLOCKERS,
    CLOSED,
    DONE,
    FINISHED,
    GAP,
    LAST_END,
    NOW,
    RELEASES,
)
from probes.compiled import compiled_lean


@compiled_lean
def finish(w: Any, m: int) -> None:
    """A bio is done; in closed replay others may have waited for it."""
    bio, clock = w.bio, w.clock
    bio[m, FINISHED] = clock[NOW]
    clock[DONE] += 1
    clock[LAST_END] = clock[NOW]
    if clock[CLOSED] and bio[m, RELEASES] >= 0:
        unblock(w, bio[m, RELEASES])


@compiled_lean
def unblock(w: Any, m: int) -> None:
    """What bio m waits for has become less; it comes its think time after the last."""
    bio = w.bio
    bio[m, BLOCKERS] -= 1
    if bio[m, BLOCKERS] == 0:
        push(w, w.clock[NOW] + bio[m, GAP], ARRIVE, m)
