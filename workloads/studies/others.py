"""The CPU time that processes beside a study use while one of its runs goes on.

A study compares runs, so nothing else should run. This tells how far that was so.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any, NamedTuple

import psutil

from tracer.probes.proc import name_of

_INIT = 1
_KTHREADD = "kthreadd"
_ENGINES = ("dockerd", "containerd", "podman", "conmon")
"""Programs of Docker and podman, whose descendants are the containers. Names begin so."""


@contextmanager
def others_cpu() -> Iterator[dict[str, float]]:
    """Yields a dict that gets, at the block's end, `others_cpu_s`, the CPU seconds of others.

    Others are all processes but this one, the engines', the descendants of both, and the kernel's
    threads. A process that ends counts if its parent is another one and waits for it; what a
    process used that init waits for is not known, so the number may be too low.
    """
    before = _others()
    found: dict[str, float] = {}
    yield found
    after = _others()
    there = {pid for pid, _ in after}
    used = sum(one.seconds for one in after.values())
    for key, one in before.items():
        # The time of an ended process is now part of its parent's.
        if key in after or (one.parent in there and one.parent != _INIT):
            used -= one.seconds
    found["others_cpu_s"] = round(max(0.0, used), 2)


class _Other(NamedTuple):
    """A process: the CPU seconds of it and of its ended children, and its parent."""

    seconds: float
    parent: int


def _others() -> dict[tuple[int, float], _Other]:
    """Returns the other processes by their numbers and start times."""
    found: dict[int, dict[str, Any]] = {}
    for process in psutil.process_iter(["ppid", "cpu_times", "create_time"]):
        if process.info["cpu_times"] is not None:  # of another user, where /proc hides them
            found[process.pid] = process.info
    own = (_KTHREADD, *_ENGINES)
    ours = {pid for pid in found if _name(pid).startswith(own)}
    ours.add(os.getpid())
    sought = ours
    while sought:
        sought = {pid for pid, info in found.items() if info["ppid"] in sought} - ours
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
