"""The end of a bio, and the release of the bios that wait for it: compiled."""

from __future__ import annotations

from typing import Any

from tracer.analysis.flushlayer.timed.queueing import push
from tracer.analysis.flushlayer.timed.state import AGE, ALL_LAYERS, ARRIVE
from tracer.probes.compiled import compiled_lean


@compiled_lean
def finish(w: Any, m: int) -> None:
    """Completes bio m; in closed replay, releases the bio that waits for it."""
    bio, clock = w.bio, w.clock[0]
    bio[m].finished = clock.now
    clock.done += 1
    clock.last_end = clock.now
    if bio[m].around != 0:
        _pause(w, bio[m].around)
    if clock.closed and bio[m].releases >= 0:
        unblock(w, bio[m].releases)


@compiled_lean
def _pause(w: Any, around: int) -> None:
    """Ends a bio that went around one layer or all; their pause begins after the last such bio."""
    layers, now = w.layer, w.clock[0].now
    for layer in range(layers.shape[0]):
        if around != ALL_LAYERS and around != layer + 1:
            continue
        layers[layer].passing -= 1
        if layers[layer].passing > 0:
            continue
        layers[layer].paused = now + w.rule[0].pause_ns
        if layers[layer].active and not layers[layer].age_armed:
            layers[layer].age_armed = 1
            push(w, layers[layer].paused, AGE, layer)


@compiled_lean
def pass_around(w: Any, m: int, around: int) -> None:
    """Notes that bio m goes around one layer (1 + its row) or all; they pause until its end."""
    w.bio[m].around = around
    for layer in range(w.layer.shape[0]):
        if around == ALL_LAYERS or around == layer + 1:
            w.layer[layer].passing += 1


@compiled_lean
def unblock(w: Any, m: int) -> None:
    """Removes one blocker of bio m. After the last one, bio m arrives when its think time ends."""
    bio = w.bio
    bio[m].blockers -= 1
    if bio[m].blockers == 0:
        push(w, w.clock[0].now + bio[m].gap, ARRIVE, m)
