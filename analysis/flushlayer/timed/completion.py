"""The end of a bio, and the release of the bios that wait for it: compiled."""

from __future__ import annotations

from typing import Any

from tracer.analysis.flushlayer.timed.queueing import push
from tracer.analysis.flushlayer.timed.state import (
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
from tracer.probes.compiled import compiled_lean


@compiled_lean
def finish(w: Any, m: int) -> None:
    """Completes bio m; in closed replay, releases the bio that waits for it."""
    bio, clock = w.bio, w.clock
    bio[m, FINISHED] = clock[NOW]
    clock[DONE] += 1
    clock[LAST_END] = clock[NOW]
    if clock[CLOSED] and bio[m, RELEASES] >= 0:
        unblock(w, bio[m, RELEASES])


@compiled_lean
def unblock(w: Any, m: int) -> None:
    """Removes one blocker of bio m. After the last one, bio m arrives when its think time ends."""
    bio = w.bio
    bio[m, BLOCKERS] -= 1
    if bio[m, BLOCKERS] == 0:
        push(w, w.clock[NOW] + bio[m, GAP], ARRIVE, m)
