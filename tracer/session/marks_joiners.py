"""Processes that join targets during a recording, and the folders of marks that they name."""

from __future__ import annotations

import heapq
import itertools
import os
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from tracer.phases import MARKS_ENV
from tracer.probes.kernel import process_start_ns
from tracer.probes.proc import read_stat
from tracer.session.marks_folder import MarksFolder, users_of
from tracer.targets import Target, members_of

MAX_ENVIRONMENT = 4 << 20
"""Most bytes of an environment that are read."""
_PAUSES_S = (0.5, 2.0, 5.0)
"""Times in s between the looks at a process: it may join first, and then execute the program that
marks, with another environment."""
_MOST_WAITING = 1024
_FORGETS_S = 1.0
"""Time in s until those that have ended are forgotten again, if too many wait."""
_MOST_FOLDERS = 64
_CHILDREN_S = 1.0
"""Least time in s between two looks at the children of processes."""
_REST = 100
"""The recorder rests for this multiple of such a look's CPU time."""
_MOST_REFUSED = 1024
"""Folders beyond that number that are counted once, however often they are named."""
_AGAIN_S = 0.25
"""Time in s after which a folder that was missing, or is another one now, is opened again."""
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


@dataclass
class _Place:
    """A folder as processes name it, when it was opened last."""

    opened_s: float
    folder: MarksFolder | None
    """None if it was never there, may not be read, or is that of the command."""
    missing: bool

    def has_changed(self, now: float) -> bool:
        """Returns whether there is another folder by that name, or may be one at last."""
        moved = self.missing or (self.folder is not None and self.folder.moved)
        return moved and now >= self.opened_s + _AGAIN_S


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
        self._places: dict[tuple[object, ...], _Place] = {}
        self._folders = 0
        """The number of folders that were named by processes which joined."""
        self._refused: set[tuple[object, ...]] = set()
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

    def due(self, now: float) -> Iterator[tuple[Target, int, str]]:
        """Yields processes with the folder that each names, unless it is open already.

        A folder comes once for each target, namespace, root and user, and again if it was
        missing, moved or removed. It also comes for each process that is older than the recording:
        it may have marked before. Call `opened` or `missed` before you take the next one.
        """
        for _ in range(_AT_ONCE):
            if not self._waiting or self._waiting[0][0] > now:
                break
            joiner = heapq.heappop(self._waiting)[2]
            yield from self._asked(joiner, now)
            if joiner.looks < len(_PAUSES_S):
                later = now + _PAUSES_S[joiner.looks]
                self._wait(later, joiner._replace(looks=joiner.looks + 1))

    def last(self, now: float) -> Iterator[tuple[Target, int, str]]:
        """Yields the same of all that still wait, at the end of the recording."""
        waiting, self._waiting = self._waiting, []
        for _, _, joiner in waiting:
            # No folder has to wait, and none is opened twice from now on.
            yield from self._asked(joiner, now + _AGAIN_S)

    def _asked(self, joiner: _Joiner, now: float) -> Iterator[tuple[Target, int, str]]:
        inside = folder_named_by(joiner.pid) if joiner.runs else None
        if inside is not None and self._is_new(joiner, inside, now):
            yield joiner.target, joiner.pid, inside

    def opened(self, target: Target, pid: int, inside: str, folder: MarksFolder | None) -> None:
        """Notes the folder that a process names; None: it cannot be opened, or is not wanted."""
        self._note(target, pid, inside, folder, missing=False)

    def missed(self, target: Target, pid: int, inside: str) -> None:
        """Notes that the folder that a process names is not there yet."""
        self._note(target, pid, inside, None, missing=True)

    def _note(
        self, target: Target, pid: int, inside: str, folder: MarksFolder | None, missing: bool
    ) -> None:
        if (place := _place(target, pid, inside)) is None:
            self._folders += folder is not None  # the process has ended meanwhile
            return
        before = self._places.get(place)
        if before is not None and before.folder is not None:
            self._folders += folder is not None and folder is not before.folder
            folder = folder or before.folder
        self._places[place] = _Place(time.monotonic(), folder, missing)

    def _is_new(self, joiner: _Joiner, inside: str, now: float) -> bool:
        place = _place(joiner.target, joiner.pid, inside)
        if place is None:
            return False
        before = self._places.get(place)
        if before is not None and not before.has_changed(now):
            return not joiner.looks and (process_start_ns(joiner.pid) or 0) < self._begun_ns
        if before is not None and before.folder is None:
            return True
        if self._folders < _MOST_FOLDERS:
            self._folders += before is None
            return True
        if place not in self._refused:
            self.crowded += 1
            if len(self._refused) < _MOST_REFUSED:
                self._refused.add(place)
        return False


class Children:
    """The processes that targets of kind `pid` make. The kernel follows them by itself."""

    def __init__(self) -> None:
        self._seen: set[int] = set()
        self._looks_again = 0.0

    def look(self, targets: Iterable[Target], now: float) -> list[tuple[Target, int]]:
        """Returns those that were not there at the last look; none while it rests."""
        if now < self._looks_again:
            return []
        begun = time.thread_time()
        roots = [target for target in targets if target.kind == "pid"]
        there = [
            (t, pid) for t, found in zip(roots, members_of(roots), strict=True) for pid in found
        ]
        new = [(target, pid) for target, pid in there if pid not in self._seen]
        self._seen = {pid for _, pid in there}
        rest_s = _REST * (time.thread_time() - begun)
        self._looks_again = time.monotonic() + max(_CHILDREN_S, rest_s)
        return new


def _place(target: Target, pid: int, inside: str) -> tuple[object, ...] | None:
    """Returns a folder as a process names it, with what decides which one that is, and whose."""
    decisive = ["ns/mnt", "ns/pid", "root", *([] if inside.startswith("/") else ["cwd"])]
    try:
        spaces = [str(Path(f"/proc/{pid}", one).readlink()) for one in decisive]
    except OSError:  # the process has ended
        return None
    return (id(target), inside, *spaces, *sorted(users_of(pid)))
