"""Cgroups of a test's own."""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Iterator
from pathlib import Path

from tests.support.waiting import wait_for
from tracer.probes.cgroups import UNIFIED
from tracer.targets.cgroups import Hierarchy, hierarchies


def mounted() -> list[Hierarchy]:
    """Returns this machine's unified hierarchy and one of version 1."""
    found = hierarchies()
    old = [h for h in found if h.number != UNIFIED and "cpuset" not in h.controllers]
    return [h for h in found if h.number == UNIFIED] + old[:1]


@contextlib.contextmanager
def own_cgroup(hierarchy: Hierarchy) -> Iterator[Path]:
    """Makes a cgroup with another below it, `inner`; its end kills the processes in them."""
    folder = hierarchy.mount / f"tracer-test-{os.getpid()}"
    (folder / "inner").mkdir(parents=True)
    try:
        yield folder
    finally:
        for path in (folder / "inner", folder):
            with contextlib.suppress(FileNotFoundError):
                for pid in (path / "cgroup.procs").read_text().split():
                    os.kill(int(pid), signal.SIGKILL)
                wait_for(lambda p=path: not (p / "cgroup.procs").read_text(), f"{path} to empty")
                path.rmdir()
