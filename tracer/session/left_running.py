"""The processes of ended targets that run on: nothing records them any longer."""

from __future__ import annotations

import contextlib
from collections.abc import Collection, Iterable

import psutil

from tracer.probes.proc import name_of, read_stat
from tracer.session.capture import Capture
from tracer.store.manifest_parts import MOST_NAMED, LeftProcess, LeftRunning
from tracer.store.names import escaped
from tracer.targets import Target, threads

_PROCESSES = ("pid", "command")
"""The kinds of targets beside which the kernel follows no processes of others."""


def left_running(capture: Capture, targets: Collection[Target]) -> LeftRunning | None:
    """Returns the processes that the targets had started and that run now.

    None if that is not known: only the kernel's list of followed threads tells which orphans are
    theirs. It does not tell the orphans of a target that has ended from those of one that has not.
    """
    if not capture.follows or not all(target.kind in _PROCESSES for target in targets):
        return None
    if any(target.alive for target in targets):
        return None
    of_process = {pid: threads(pid) for pid in sorted(psutil.pids())}
    followed = capture.followed(tid for tids in of_process.values() for tid in tids)
    count, named = 0, list[LeftProcess]()
    for pid, tids in of_process.items():
        with contextlib.suppress(OSError):  # it ends just now
            stat = read_stat(pid)
            if stat is not None and _runs(followed.intersection(tids)):
                name = escaped(name_of(pid))
                count += 1
                if len(named) < MOST_NAMED:
                    named.append({"pid": pid, "start_time": stat.start_time, "name": name})
    return {"count": count, "processes": named}


def _runs(tids: Iterable[int]) -> bool:
    """Returns whether one of these threads runs and has not begun to exit. Raises OSError."""
    return any(stat is not None and not stat.exiting for stat in map(read_stat, tids))
