"""Processes that join targets during a recording, and the folders of marks that they name."""

from __future__ import annotations

import heapq
import itertools
import os
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

from tracer.phases import MARKS_ENV
from tracer.probes.kernel import process_start_ns
from tracer.probes.proc import read_stat
from tracer.session.marks_folder import users_of
from tracer.targets import Target

MAX_ENVIRONMENT = 4 << 20
"""Most bytes of an environment that are read."""
_PAUSES_S = (0.5, 2.0, 5.0)
"""Times in s between the looks at a process: it may join first, and then execute the program that
marks, with another environment."""
_MOST_WAITING = 1024
_FORGETS_S = 1.0
"""Time in s until those that have ended are forgotten again, if too many wait."""
_MOST_FOLDERS = 64
_AT_ONCE = 16
"""Processes looked at, at most, before the recorder does something else."""


class _Joiner(NamedTuple):
    target: Target
    pid: int
    start_time: int
    looks: int
    """The number of looks at it so far."""

    @property
    def runs(self) -> bool:
        """True until the process ends."""
        stat = read_stat(self.pid)
        return stat is not None and stat.start_time == self.start_time


def folder_named_by(pid: int) -> str | None:
    """Returns the folder that a process's environment names first; None if it names none."""
    try:
        with Path(f"/proc/{pid}/environ").open("rb", buffering=0) as file:
            environment = (file.read(MAX_ENVIRONMENT) or b"").split(b"\0")
    except OSError:  # the process has ended or belongs to another user
        return None
    prefix = f"{MARKS_ENV}=".encode()
    inside = next((entry for entry in environment if entry.startswith(prefix)), prefix)
    return os.fsdecode(inside[len(prefix) :]) or None


class Joiners:
    """Processes whose environments are still to be read."""

    def __init__(self, begun_ns: int) -> None:
        self._begun_ns = begun_ns
        self._waiting: list[tuple[float, int, _Joiner]] = []
        """Times (in s) of the next looks, numbers that keep the order, and processes."""
        self._numbers = itertools.count()
        self._forgets_again = 0.0
        self._places: set[tuple[object, ...]] = set()
        self.crowded = 0
        """Processes, and folders, that were not looked at, since there were too many."""

    def add(self, joined: Iterable[tuple[Target, int]], now: float) -> None:
        """Adds processes with their targets; `now` is in s of CLOCK_MONOTONIC."""
        for target, pid in joined:
            if len(self._waiting) >= _MOST_WAITING and now >= self._forgets_again:
                self._forgets_again = now + _FORGETS_S
                self._waiting = [one for one in self._waiting if one[2].runs]
                heapq.heapify(self._waiting)
            if len(self._waiting) >= _MOST_WAITING:
                self.crowded += 1
            elif (stat := read_stat(pid)) is not None:
                self._wait(now, _Joiner(target, pid, stat.start_time, 0))

    def _wait(self, due: float, joiner: _Joiner) -> None:
        heapq.heappush(self._waiting, (due, next(self._numbers), joiner))

    def due(self, now: float) -> list[tuple[Target, int, str]]:
        """Returns processes with the folder that each names, unless it came before.

        A folder comes once for each target, mount namespace, root and user, and for each process
        that is older than the recording: it may have marked before.
        """
        found = []
        for _ in range(_AT_ONCE):
            if not self._waiting or self._waiting[0][0] > now:
                break
            joiner = heapq.heappop(self._waiting)[2]
            found += self._asked(joiner)
            if joiner.looks < len(_PAUSES_S):
                later = now + _PAUSES_S[joiner.looks]
                self._wait(later, joiner._replace(looks=joiner.looks + 1))
        return found

    def last(self) -> list[tuple[Target, int, str]]:
        """Returns the same of all that still wait, at the end of the recording."""
        waiting, self._waiting = self._waiting, []
        return [one for _, _, joiner in waiting for one in self._asked(joiner)]

    def _asked(self, joiner: _Joiner) -> list[tuple[Target, int, str]]:
        inside = folder_named_by(joiner.pid) if joiner.runs else None
        if inside is None or not self._is_new(joiner, inside):
            return []
        return [(joiner.target, joiner.pid, inside)]

    def knows(self, target: Target, pid: int, inside: str) -> None:
        """Notes a folder that a process names and that is open already."""
        if (place := _place(target, pid, inside)) is not None:
            self._places.add(place)

    def _is_new(self, joiner: _Joiner, inside: str) -> bool:
        place = _place(joiner.target, joiner.pid, inside)
        if place is None:
            return False
        if place not in self._places:
            if len(self._places) >= _MOST_FOLDERS:
                self.crowded += 1
                return False
            self._places.add(place)
            return True
        return not joiner.looks and (process_start_ns(joiner.pid) or 0) < self._begun_ns


def _place(target: Target, pid: int, inside: str) -> tuple[object, ...] | None:
    """Returns a folder as a process names it, with what decides which one that is, and whose."""
    try:
        spaces = [str(Path(f"/proc/{pid}", one).readlink()) for one in ("ns/mnt", "root")]
    except OSError:  # the process has ended
        return None
    return (id(target), inside, *spaces, *sorted(users_of(pid)))
