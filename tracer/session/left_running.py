"""The processes of ended targets that run on: nothing records them any longer."""

from __future__ import annotations

import contextlib
from collections.abc import Collection, Iterable, Mapping
from pathlib import Path

import psutil

from tracer.phases import MARKS_ENV
from tracer.probes.proc import name_of, read_stat
from tracer.session.capture import Capture
from tracer.session.marks_joiners import MAX_ENVIRONMENT
from tracer.store.manifest_parts import MOST_NAMED, LeftProcess, LeftRunning
from tracer.store.names import escaped
from tracer.targets import Target, threads

_PROCESSES = ("pid", "command")
"""The kinds of targets beside which the kernel follows no processes of others."""


def left_running(capture: Capture, targets: Collection[Target], marks: Path) -> LeftRunning | None:
    """Returns the processes that the targets had started and that run now.

    `marks` is the folder that the environment of a command names for its marks, and so that of each
    process that it has started, unless that one was given another environment.

    None if that is not known. The kernel's list of followed threads tells which orphans are
    theirs, but not of which target. Without that list, or beside targets of other kinds, only the
    environments tell, and only that there are some.
    """
    of_processes = [target for target in targets if target.kind in _PROCESSES]
    if any(target.alive for target in of_processes):
        return None
    if capture.follows and len(of_processes) == len(targets):
        of_process = {pid: threads(pid) for pid in sorted(psutil.pids())}
        followed = capture.followed(tid for tids in of_process.values() for tid in tids)
        return _running({pid: followed.intersection(tids) for pid, tids in of_process.items()})
    since = [target.start_time for target in of_processes if target.kind == "command"]
    if not since or since[0] is None:
        return None
    of_command = [pid for pid in sorted(psutil.pids()) if _names(pid, marks, since[0])]
    found = _running({pid: threads(pid) for pid in of_command})
    return found if found["count"] else None


def _running(of_process: Mapping[int, Collection[int]]) -> LeftRunning:
    """Returns the processes that run, by some of the threads of each."""
    count, named = 0, list[LeftProcess]()
    for pid, tids in of_process.items():
        with contextlib.suppress(OSError):  # it ends just now
            stat = read_stat(pid)
            if stat is not None and _runs(tids):
                name = escaped(name_of(pid))
                count += 1
                if len(named) < MOST_NAMED:
                    named.append({"pid": pid, "start_time": stat.start_time, "name": name})
    return {"count": count, "processes": named}


def _names(pid: int, marks: Path, since: int) -> bool:
    """Returns whether the environment of a process names the folder of marks.

    A process that began before `since` (in clock ticks since boot) is one of an earlier recording.
    """
    try:
        stat = read_stat(pid)
        if stat is None or stat.start_time < since:
            return False
        with Path(f"/proc/{pid}/environ").open("rb", buffering=0) as file:
            environment = file.read(MAX_ENVIRONMENT) or b""
    except OSError:  # the process has ended or belongs to another user
        return False
    return f"{MARKS_ENV}={marks}".encode(errors="surrogateescape") in environment.split(b"\0")


def _runs(tids: Iterable[int]) -> bool:
    """Returns whether one of these threads runs and has not begun to exit. Raises OSError."""
    return any(stat is not None and not stat.exiting for stat in map(read_stat, tids))
