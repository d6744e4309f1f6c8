"""The end of a bio, and the release of the bios that wait for it: compiled."""

from __future__ import annotations

from typing import Any

from tracer.analysis.flushlayer.timed.queueing import push
from tracer.analysis.flushlayer.timed.state import ARRIVE
from tracer.probes.compiled import compiled_lean


@compiled_lean
def finish(w: Any, m: int) -> None:
    """Completes bio m; in closed replay, releases the bio that waits for it."""
    bio, clock = w.bio, w.clock[0]
    bio[m].finished = clock.now
    clock.done += 1
    clock.last_end = clock.now
    if clock.closed and bio[m].releases >= 0:
        unblock(w, bio[m].releases)


@compiled_lean
def unblock(w: Any, m: int) -> None:
    """Removes one blocker of bio m. After the last one, bio m arrives when its think time ends."""
    bio = w.bio
    bio[m].blockers -= 1
    if bio[m].blockers == 0:
        push(w, w.clock[0].now + bio[m].gap, ARRIVE, m)
