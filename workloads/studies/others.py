"""The CPU time that processes beside a study use while one of its runs goes on.

A study compares runs, so nothing else should run. This tells how far that was so.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager

import psutil

_INIT = 1
_KTHREADD = "kthreadd"
_DOCKER = ("dockerd", "containerd", "containerd-shim")
"""Docker's programs, whose descendants are the containers. Names begin so."""


@contextmanager
def others_cpu() -> Iterator[dict[str, float]]:
    """Yields a dict that gets, at the block's end, `others_cpu_s`, the CPU seconds of others.

    Others are all processes but this one, Docker's, the descendants of both, and the kernel's
    threads. A process that ends counts if its parent is another one and waits for it.
    """
    before = _seconds()
    found: dict[str, float] = {}
    yield found
    found["others_cpu_s"] = round(max(0.0, _seconds() - before), 2)


def _seconds() -> float:
    """Returns the CPU seconds of the other processes and of their ended children."""
    found = {}
    for process in psutil.process_iter(["ppid", "name", "cpu_times"]):
        if process.info["cpu_times"] is not None:  # of another user, where /proc hides them
            found[process.pid] = process.info
    own = (_KTHREADD, *_DOCKER)
    ours = {pid for pid, info in found.items() if (info["name"] or "").startswith(own)}
    ours.add(os.getpid())
    sought = ours
    while sought:
        sought = {pid for pid, info in found.items() if info["ppid"] in sought} - ours
        ours |= sought
    total = 0.0
    for pid in found.keys() - ours:
        times = found[pid]["cpu_times"]
        total += times.user + times.system
        if pid != _INIT:  # it also waits for what Docker left, with the CPU time of containers
            total += times.children_user + times.children_system
    return total
