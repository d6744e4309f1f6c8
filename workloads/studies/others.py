"""The CPU time that others use while a run of a study goes on: processes, or other machines.

A study compares runs, so nothing else should run. This tells how far that was so.
"""

from __future__ import annotations

import os
import time
from collections.abc import Container, Iterator
from contextlib import contextmanager, suppress
from typing import Any, NamedTuple

import psutil

from tracer.probes.proc import name_of

_INIT = 1
_KTHREADD = "kthreadd"
_ENGINES = ("dockerd", "containerd", "podman", "conmon")
"""Programs of Docker and podman. Names begin so."""
_KEEPERS = ("containerd-shim", "conmon")
"""Those of them that run once per container, as its ancestor."""

_Key = tuple[int, float]
"""The number of a process and its start time."""


@contextmanager
def others_cpu() -> Iterator[dict[str, float]]:
    """Yields a dict that gets three numbers at the block's end.

    `others_cpu_s`: the CPU seconds of others in the block. `others_over_s`: the block's duration.
    `steal_s`: the CPU seconds that the host of a virtual machine took from it in the block; 0 if
    the host does not tell.

    Others are all processes but this one, the engines', the descendants of both, and the kernel's
    threads. A container that was there before the block, and all in it, are others, too; one that
    begins in the block is taken for the run's own. A process that ends counts if its nearest
    ancestor that goes on is another one and was told the time by wait(2). Init's waits are not
    counted, so the number may be too low.
    """
    before = _others()
    taken = psutil.cpu_times().steal
    began = time.monotonic()
    found: dict[str, float] = {}
    yield found
    found["others_over_s"] = round(time.monotonic() - began, 2)
    found["steal_s"] = round(psutil.cpu_times().steal - taken, 2)
    after = _others(before)
    used = sum(one.seconds for one in after.values())
    earlier = {pid: (pid, start) for pid, start in before}
    for key, one in before.items():
        # The time of an ended process is now part of an ancestor's.
        if key in after or _heir(one.parent, before, after, earlier) not in (None, _INIT):
            used -= one.seconds
    found["others_cpu_s"] = round(max(0.0, used), 2)


class _Other(NamedTuple):
    """A process: the CPU seconds of it and of its ended children, and its parent."""

    seconds: float
    parent: int


def _heir(
    pid: int, before: dict[_Key, _Other], after: dict[_Key, _Other], earlier: dict[int, _Key]
) -> int | None:
    """Returns the first of a process and its ancestors that has not ended; None: it is no other."""
    for _ in before:  # the look is not atomic, so the parents may go round in a circle
        if pid not in earlier or earlier[pid] in after:
            break
        pid = before[earlier[pid]].parent
    return pid if pid in earlier else None


def _others(before: Container[_Key] | None = None) -> dict[_Key, _Other]:
    """Returns the other processes. `before`: those of an earlier look; None: this is the first."""
    found: dict[int, dict[str, Any]] = {}
    for process in psutil.process_iter(["ppid", "cpu_times", "create_time"]):
        if process.info["cpu_times"] is not None:  # of another user, where /proc hides them
            found[process.pid] = process.info
    ours, foreign = {os.getpid()}, set()
    for pid, info in found.items():
        name = _name(pid)
        if name.startswith(_KEEPERS) and (before is None or (pid, info["create_time"]) in before):
            foreign.add(pid)
        elif name.startswith((_KTHREADD, *_ENGINES)):
            ours.add(pid)
    sought = ours
    while sought:
        children = {pid for pid, info in found.items() if info["ppid"] in sought}
        sought = children - ours - foreign
        ours |= sought
    others = {}
    for pid in found.keys() - ours:
        times = found[pid]["cpu_times"]
        seconds = times.user + times.system
        if pid != _INIT:  # it also waits for what an engine left, with the CPU time of containers
            seconds += times.children_user + times.children_system
        others[pid, found[pid]["create_time"]] = _Other(seconds, found[pid]["ppid"])
    return others


def _name(pid: int) -> str:
    """Returns a process's name. psutil would read its command line, which may have any length."""
    with suppress(OSError):
        return name_of(pid)
    return ""
