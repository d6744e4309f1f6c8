"""Collects the targets' marks: in a command's folder, and in folders named by environments."""

from __future__ import annotations

import contextlib
import heapq
import itertools
import os
import re
import time
from collections import Counter
from collections.abc import Collection, Iterator, Mapping
from functools import partial
from pathlib import Path

from tracer.phases import MARKS_ENV
from tracer.phases.automatic import STARTUP, SYNCHRONIZE_ENV
from tracer.phases.format import SUFFIX
from tracer.probes.openat import known as known_of
from tracer.probes.openat import open_in_root
from tracer.probes.proc import in_user_space
from tracer.probes.workers.opening import open_aside
from tracer.session.marks_folder import (
    MAX_BYTES,
    MOST_ENTRIES,
    MOST_FILES,
    MarksFolder,
    mapped_by,
    mark_files,
    own_pid,
    until_zeros,
    users_of,
)
from tracer.session.marks_handover import Handover
from tracer.session.marks_joiners import Children, Joiners, folder_named_by
from tracer.session.watch import Watch
from tracer.store import left_out
from tracer.store.files import create, open_regular
from tracer.store.listed import Lines
from tracer.store.lists import MOST_THREADS
from tracer.store.marks import NAMES, UNKNOWN_PID, last_ns
from tracer.store.names import escaped
from tracer.targets import Target, members_of, threads

_MAX_TOTAL = 4 << 30
"""Most bytes of all files together: 64 million marks."""
_MAX_OF_PID = 100
"""Most processes per pid that are searched for in one folder."""
_SECONDS = 2.0
"""Timeout in s for opening a target's folder."""
_SECONDS_IN_ALL = 10.0
"""Timeout in s for all folders that do not open: any number of processes may name one."""
_LEAST_REST_S = 0.005
_REST = 10
"""The recorder rests for this multiple of a look's CPU time, so it takes about 10 % of a CPU."""
_AGAIN_S = 1.0
"""Time in s after which the recorder looks again even if no file was made."""
_OTHERS = ("command", "machine")
"""Kinds of targets whose processes' environments are not asked: a command marks to `live`."""
_UNREADABLE = "their folder cannot be read"
_TOO_MANY = "too many files"


def environment_for(folder: Path, automatic: bool, cuda_sync: bool = False) -> dict[str, str]:
    """Returns the environment of a command that writes its marks to `folder`.

    With `automatic`, PyTorch marks its phases by itself; with `cuda_sync`, it synchronizes with
    the GPU at each mark of a computation.
    """
    environment = {**os.environ, MARKS_ENV: str(folder)}
    if automatic:
        path = os.environ.get("PYTHONPATH")
        environment["PYTHONPATH"] = os.pathsep.join([str(STARTUP), *([path] if path else [])])
        if cuda_sync:
            environment[SYNCHRONIZE_ENV] = "1"
    return environment


class Marks:
    """The marks of targets: of a command in `live`, of others in folders of their own.

    Targets may write anything into those folders. The recorder copies the marks file by file, up
    to limits, into its own folder `folder`, and counts each file that it leaves out, by reason
    (`store.left_out`).
    """

    def __init__(self, folder: Path, live: Path) -> None:
        self.folder = folder
        self._live = live
        self._lost: Counter[str] = Counter()
        self._copied_bytes = 0
        self._begun = time.monotonic_ns()
        self._targets: list[Target] = []
        self._handover = Handover()
        self._theirs: dict[tuple[int, int], MarksFolder] = {}
        self.marking: set[int] = set()
        """Processes that mark by themselves, so that uprobes are not needed for them."""
        self._asked: set[int] = set()
        """Processes whose environments were read before the recording."""
        self._joiners = Joiners(self._begun)
        self._asks_again = 0.0
        self._children = Children()
        self._names: Lines | None = None
        self._watch: Watch | None = None
        self._rests_until = 0.0
        self._looks_again = 0.0
        self._waited_s = 0.0

    def find(self, targets: list[Target]) -> None:
        """Opens the marks folders named in the environments of the targets' processes."""
        self._targets = [target for target in targets if target.kind not in _OTHERS]
        for target, members in zip(self._targets, members_of(self._targets), strict=True):
            for pid in members:
                self._asked.add(pid)
                inside = folder_named_by(pid)
                if inside is not None and not self._try_to_open(target, pid, inside):
                    self._joiners.add([(target, pid)], time.monotonic())
        self._take_in(self._begun)
        self._handover.knows(self._theirs.values())

    def arrived(self, target: Target, pid: int, environment: Mapping[str, str]) -> None:
        """Opens the folder that the environment of a container names, which has just begun."""
        inside = environment.get(MARKS_ENV)
        if not inside:
            return
        self._open_late(target, pid, inside)

    def joined(self, found: list[tuple[Target, int]]) -> None:
        """Has the environments of processes read that have joined a target; `look` does it."""
        new = [
            (target, pid)
            for target, pid in found
            if target.kind not in _OTHERS and pid not in self._asked
        ]
        self._joiners.add(new, time.monotonic())

    def _open_late(self, target: Target, pid: int, inside: str) -> None:
        self._try_to_open(target, pid, inside)
        # What it marked until now has a time since the recording began.
        self._take_in(time.monotonic_ns())

    def _take_in(self, now: int) -> None:
        """Notes the files in new folders, and watches those that have become foreign."""
        for folder in self._theirs.values():
            if not folder.remembered:
                try:
                    if folder.remember(now):
                        self._lost[_TOO_MANY] += 1
                except OSError:
                    self._lost[_UNREADABLE] += 1
            if folder.foreign and not folder.watched:
                if self._names is None:
                    self._names = Lines.continued(*self._list)
                if self._watch is None:
                    self._watch = Watch()
                self._watch.add(folder.fd)
                folder.watched = True

    @property
    def _list(self) -> tuple[Path, str]:
        return self.folder.parent, f"{self.folder.name}/{NAMES}"

    def _try_to_open(self, target: Target, pid: int, inside: str) -> bool:
        """Returns False if the folder is missing. It may be made before the first mark."""
        folder = None
        try:
            folder = self._open(target, pid, inside)
        except FileNotFoundError:
            self._joiners.missed(target, pid, inside)
            return False
        except (OSError, ValueError):
            self._lost["their folder cannot be opened"] += 1
        self._joiners.opened(target, pid, inside, folder)
        return True

    @property
    def readable(self) -> list[int]:
        """Descriptors that become readable when it is time to look; none while `look` rests."""
        watched = self._watch is not None and self._watch.fd is not None
        if self._watch is None or not watched or time.monotonic() < self._rests_until:
            return []
        return [fd for fd in (self._watch.fd,) if fd is not None]

    @property
    def rest_s(self) -> float | None:
        """Time in s until the end of the rest; None if `look` does not rest."""
        left = self._rests_until - time.monotonic()
        return left if left > 0 and self._watch is not None else None

    def _open(self, target: Target, pid: int, inside: str) -> MarksFolder | None:
        """Opens a folder as the process sees it, possibly inside a container.

        None for a folder that may never answer, or that of the command.
        """
        spaces = (f"/proc/{pid}/ns/pid", "/proc/self/ns/pid")
        foreign = len({Path(space).readlink() for space in spaces}) > 1
        find = partial(open_in_root, pid, inside, os.O_RDONLY | os.O_DIRECTORY)
        try:
            if self._waited_s >= _SECONDS_IN_ALL:
                raise TimeoutError
            begun = time.monotonic()
            try:
                fd = open_aside(find, _SECONDS)
            except TimeoutError:
                self._waited_s += time.monotonic() - begun
                raise
            if in_user_space(fd, pid):
                os.close(fd)
                raise TimeoutError
        except TimeoutError:
            self._lost["their folder's file system may never answer"] += 1
            return None
        if self._is_live(fd):
            os.close(fd)
            return None
        status = known_of(fd)
        found = MarksFolder(fd, [], foreign)
        known = self._theirs.setdefault((status.device, status.inode), found)
        known.update(found)
        known.add(target, pid)
        self.marking.add(pid)
        return known

    def _is_live(self, fd: int) -> bool:
        """Returns whether an open folder is that of the command, which may be in other targets."""
        try:
            return os.path.samestat(os.fstat(fd), self._live.stat())
        except FileNotFoundError:
            return False

    def look(self) -> None:
        """Opens the folders of joined processes; notes the pids of processes on this machine.

        These are processes that mark under other pids. Rests some time after each look, because
        targets may make files and processes as fast as they can.
        """
        now, begun = time.monotonic(), time.thread_time()
        if now >= self._asks_again:
            self.joined(self._children.look(self._targets, now))
            for target, pid, inside in self._joiners.due(now):
                self._open_late(target, pid, inside)
            self._handover.tell(self._theirs.values(), self._targets)
            self._asks_again = time.monotonic() + _REST * (time.thread_time() - begun)
        self._note_names()

    def _note_names(self) -> None:
        now = time.monotonic()
        if now < self._rests_until or self._names is None:
            return
        quiet = self._watch is not None and self._watch.fd is not None and not self._watch.told
        if quiet and now < self._looks_again:
            return
        begun = time.thread_time()
        if self._watch is not None:
            self._watch.clear()
        for folder in self._theirs.values():
            if folder.foreign:
                with contextlib.suppress(OSError):  # `collect` reads it again and counts the error
                    self._name(folder, folder.named)
        now = time.monotonic()
        self._rests_until = now + max(_LEAST_REST_S, _REST * (time.thread_time() - begun))
        self._looks_again = now + _AGAIN_S

    def _name(self, folder: MarksFolder, but: Collection[str] = ()) -> None:
        """Finds the pids of a folder's files, except for the processes in `but`."""
        if self._names is None:
            return
        members: dict[int, set[int]] = {}
        for pid in {pid for found in members_of(folder.targets) for pid in found}:
            members.setdefault(own_pid(pid), set()).add(pid)
            folder.users |= users_of(pid)
        often = Counter(int(process.partition("-")[0]) for process in but)
        asked: dict[str, int] = {}
        for match in mark_files(folder.fd, MOST_ENTRIES):
            process, own = match["process"], int(match["pid"])
            if own not in members or process in but or process in asked:
                continue
            if often[own] < _MAX_OF_PID and folder.holds_now(match, self._begun):
                often[own] += 1
                asked[process] = own
        tids: dict[int, list[tuple[int, int]]] = {}
        for process, own in asked.items():
            alike = members[own]
            if len(alike) > 1:  # containers with equal pids that share a folder
                alike = {pid for pid in alike if process in mapped_by(pid)}
            for pid in alike:
                if pid not in tids:
                    tids[pid] = [(own_pid(t, pid), t) for t in threads(pid)]
                self._write_name(process, own, pid, tids[pid])
                folder.named.add(process)

    def _write_name(self, process: str, own: int, pid: int, named: list[tuple[int, int]]) -> None:
        assert self._names is not None
        self._names.add([(escaped(process), own, pid, named[:MOST_THREADS])])

    def take_over(self) -> None:
        """Takes the folders that a killed recorder had found, in a process forked from it."""
        for told in self._handover.taken(self._targets):
            status = known_of(told.fd)
            known = self._theirs.setdefault((status.device, status.inode), told)
            known.update(told)
        if any(folder.foreign for folder in self._theirs.values()):
            self._names = Lines.continued(*self._list)

    def collect(self) -> None:
        """Copies the marks into the trace."""
        for target, pid, inside in self._joiners.last(time.monotonic()):
            self._open_late(target, pid, inside)
        for folder in self._theirs.values():
            try:
                if folder.foreign:  # include the threads made since the last look
                    self._name(folder)
                self._copy_all(folder.fd, folder)
            except OSError:
                self._lost[_UNREADABLE] += 1
            os.close(folder.fd)
        self._theirs = {}
        self._handover.close()
        try:
            fd = os.open(self._live, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
            try:
                self._copy_all(fd)
            finally:
                os.close(fd)
        except FileNotFoundError:
            pass  # there is no command, or a killed recorder had already collected
        except OSError:
            self._lost[_UNREADABLE] += 1
        if self._joiners.crowded:
            self._lost["too many processes and folders at a time"] += self._joiners.crowded
        sentences = {f"files of marks left out: {why}": n for why, n in self._lost.items()}
        left_out.note(self.folder.parent, "marks", sentences)
        if self._names is not None:
            self._names.close()
            self._names = None
        if self._watch is not None:
            self._watch.close()

    def _copy_all(self, fd: int, folder: MarksFolder | None = None) -> None:
        """Copies the marks and notes in an open folder; with `folder`, only the recording's."""
        count = 0

        def wanted() -> Iterator[tuple[int, str]]:
            nonlocal count
            for match in mark_files(fd, MOST_ENTRIES):
                # The folder may hold files of earlier runs and of processes with the same pids.
                if folder is None or folder.holds_now(match, self._begun):
                    count += 1
                    yield int(match["ns"]), match[0]

        found = heapq.nsmallest(MOST_FILES, wanted())
        if count > len(found):
            self._lost[_TOO_MANY] += count - len(found)
        with os.scandir(fd) as entries:
            if next(itertools.islice(entries, MOST_ENTRIES, None), None) is not None:
                self._lost["too many names in the folder"] += 1
        for _, name in found:
            self._copy(fd, name, folder)
            pid, _, ns = name.partition("-")
            process = f"{pid}-{re.match('[0-9]+', ns)[0]}"  # type: ignore[index]
            if folder is not None and folder.foreign and process not in folder.named:
                self._write_name(process, int(pid), UNKNOWN_PID, [])

    def _copy(self, fd: int, name: str, folder: MarksFolder | None) -> None:
        """Copies a file up to the unused space at its end."""
        try:
            with open_regular(name, fd) as source:
                status = os.fstat(source.fileno())
                if status.st_size > MAX_BYTES:
                    raise ValueError("too long")
                if folder is not None and status.st_uid not in folder.users:
                    raise ValueError("another user's file")
                data = until_zeros(source)
            if name.endswith(SUFFIX) and last_ns(data) > time.monotonic_ns():
                raise ValueError("of another clock than this machine's")
            if self._copied_bytes + len(data) > _MAX_TOTAL:
                raise ValueError("too much in all")
        except ValueError as error:
            self._lost[str(error)] += 1
            return
        except OSError:
            self._lost["not readable"] += 1
            return
        if not data:
            return
        self._copied_bytes += len(data)
        try:
            with create(self.folder / name) as target:
                target.write(data)
        except OSError as error:
            self._lost[f"not written: {error.strerror}"] += 1
