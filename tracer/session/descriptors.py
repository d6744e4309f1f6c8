"""The open files of the targets' processes: descriptors, positions, and which of them share one.

They are listed when the recording begins, and for each process that joins a target later.

Kernel: Documentation/filesystems/proc.rst (/proc/PID/fdinfo), man 2 kcmp. No file is opened and no
file system is asked, because some never answer. Names and numbers of descriptors are the targets'.
"""

from __future__ import annotations

import ctypes
import os
import time
from collections import Counter
from collections.abc import Collection, Iterable, Iterator
from pathlib import Path

from tracer.probes.libc import libc
from tracer.probes.proc import read_stat
from tracer.store import left_out
from tracer.store.finalize import DESCRIPTORS
from tracer.store.listed import Lines
from tracer.store.lists import DescriptorFacts, MemberFacts
from tracer.targets import Target, processes_with_memory

MOST = 1 << 16
"""Most descriptors of all processes."""
_MOST_S = 2.0
"""Time in s after which no more processes and files are looked at."""
_SHARE = 50
"""After the start, at most one part in so many of the time is used for looks."""
_SETTLE_ROUNDS = 20
_MOST_ALIKE = 64
"""Most open files of one name that a further one is compared with. Beyond, it has no number."""
_MOST_BYTES = 1 << 16
"""Most bytes of fdinfo that are read: an epoll descriptor has a line for each file in it."""
_NO_FILES = ("/dev/", "/proc/", "/sys/")
_SYS_KCMP = {"x86_64": 312, "aarch64": 272}
_KCMP_FILE = 0
_FARTHEST = (1 << 63) - 1


class Descriptors:
    """The list of open files in a trace."""

    def __init__(self, raw: Path, targets: list[Target]) -> None:
        """Makes the list. Raises FileExistsError if it exists."""
        self._raw = raw
        self._targets = targets
        self._list = Lines(raw, DESCRIPTORS)
        self._since: dict[int, int] = {}
        """Time (ns) from which on a process's new children have descriptors that are known."""
        self._rows = 0
        self._numbers = 0
        self._left_s = _MOST_S
        self._ended = time.monotonic()

    def first_look(self) -> None:
        """Lists the open files of the targets' processes.

        Call it when their calls are recorded, so that no move of a position is missed.
        """
        # Look again for processes made before their parent was looked at.
        for _ in range(_SETTLE_ROUNDS):
            new = [pid for pid in processes_with_memory(self._targets) if pid not in self._since]
            if not new:
                return
            self._look(new, list(self._since))

    def joined(
        self, found: Iterable[MemberFacts], members: Collection[int], before_ns: int
    ) -> None:
        """Lists the open files of processes that have just joined a target. OSError if that fails.

        Leaves out a process that one with known files has made since the search for members before
        this one, at `before_ns`: it has inherited them. `members` are the targets' processes now.
        Call it when the calls of the new ones are recorded.
        """
        self._since = {pid: ns for pid, ns in self._since.items() if pid in members}
        alone = []
        for pid, began in {pid: began for _, pid, _, _, began, _ in found}.items():
            stat = read_stat(pid)
            if stat is None:
                continue
            since = self._since.get(stat.ppid)
            if since is None or began < max(since, before_ns):
                alone.append(pid)
            else:
                self._since[pid] = 0
        if alone:
            others = set(processes_with_memory(self._targets)) - set(alone)
            self._look(alone, sorted(others))

    def _look(self, pids: list[int], others: Iterable[int]) -> None:
        begun = time.monotonic()
        self._left_s = min(_MOST_S, self._left_s + (begun - self._ended) / _SHARE)
        most = MOST - self._rows
        rows, beyond = descriptors(pids, others, self._left_s, most, self._numbers)
        self._ended = time.monotonic()
        self._left_s = max(0.0, self._left_s - (self._ended - begun))
        self._rows += len(rows)
        self._numbers = max([self._numbers, *(row[4] or 0 for row in rows)])
        self._list.add(rows)
        left_out.note(self._raw, "descriptors", beyond)
        self._since |= dict.fromkeys(pids, time.monotonic_ns())

    def close(self) -> None:
        """Closes the list. Repeated calls do no harm."""
        self._list.close()


def descriptors(
    pids: Iterable[int],
    others: Iterable[int] = (),
    most_s: float = _MOST_S,
    most: int = MOST,
    numbers: int = 0,
) -> tuple[list[DescriptorFacts], Counter[str]]:
    """Returns the open files of processes, and counts of what was left out.

    Descriptors of `others` that share a position with them follow, looked at later. Numbers of
    descriptions begin after `numbers`. Processes that end meanwhile, or that this user may not look
    at, are left out silently.
    """
    found: list[DescriptorFacts] = []
    beyond: Counter[str] = Counter()
    shared = _Shared(numbers)
    deadline = time.monotonic() + most_s
    for pid in pids:
        if time.monotonic() > deadline:
            beyond["processes' open files left out: no time was left"] += 1
            continue
        for fd, path in _files(pid):
            if time.monotonic() > deadline:
                beyond["processes' open files left out in part: no time was left"] += 1
                break
            if len(found) == most:
                beyond[f"open files left out: {MOST} are known"] += 1
                continue
            begun = time.monotonic_ns()
            told = _position(pid, fd)
            if told is not None:
                took = time.monotonic_ns() - begun
                number = shared.number(pid, fd, path)
                found.append((begun, took, pid, fd, number, *told, path))
    sharing = _sharing(others, shared, {row[-1] for row in found}, deadline, most - len(found))
    if sharing is None:
        beyond["looks at which nobody knows who shares a position: no time or room was left"] += 1
        return [(*row[:4], None, *row[5:]) for row in found], beyond
    return found + sharing, beyond


def _sharing(
    pids: Iterable[int], shared: _Shared, names: set[str], deadline: float, most: int
) -> list[DescriptorFacts] | None:
    """Returns the descriptors of processes that share a position with one in `shared`.

    `names` are the names in `shared`. Returns None if time or room do not suffice.
    """
    found: list[DescriptorFacts] = []
    for pid in pids if names else ():
        if time.monotonic() > deadline:
            return None
        for fd, path in _files(pid):
            if time.monotonic() > deadline:
                return None
            number = shared.known(pid, fd, path) if path in names else None
            if number is None:
                continue
            if len(found) == most:
                return None
            begun = time.monotonic_ns()
            told = _position(pid, fd)
            if told is not None:
                took = time.monotonic_ns() - begun
                found.append((begun, took, pid, fd, number, *told, path))
    return found


def _files(pid: int) -> Iterator[tuple[int, str]]:
    """Yields the descriptors of a process that have a name in a file system."""
    folder = f"/proc/{pid}/fd"
    try:
        numbers = sorted(int(name) for name in os.listdir(folder))
    except OSError:
        return
    for fd in numbers:
        try:
            path = str(Path(folder, str(fd)).readlink())
        except OSError:
            continue  # closed meanwhile
        if path.startswith("/") and not path.startswith(_NO_FILES):
            yield fd, path


def _position(pid: int, fd: int) -> tuple[int, int] | None:
    """Returns the position and flags of a descriptor; None if it is closed or tells neither."""
    try:
        with Path(f"/proc/{pid}/fdinfo/{fd}").open("rb") as file:
            text = file.read(_MOST_BYTES)
    except OSError:
        return None
    fields = dict(line.split(b":", 1) for line in text.splitlines() if b":" in line)
    try:
        position, flags = int(fields[b"pos"]), int(fields[b"flags"], 8)
    except (KeyError, ValueError):
        return None
    return (position, flags) if 0 <= position <= _FARTHEST and 0 <= flags <= _FARTHEST else None


class _Shared:
    """Numbers of open file descriptions: descriptors of the same one get the same number."""

    def __init__(self, numbers: int) -> None:
        """Numbers the first description `numbers + 1`."""
        self._kcmp = _SYS_KCMP.get(os.uname().machine)
        self._known: dict[str, list[tuple[int, int, int]]] = {}
        """(pid, fd, number) of a descriptor of each description, by name."""
        self._count = numbers

    def number(self, pid: int, fd: int, path: str) -> int | None:
        """Returns the number of a descriptor's description; None if the kernel does not tell."""
        others = self._known.setdefault(path, [])
        for its, other, number in others:
            same = self._compared(pid, fd, its, other)
            if same is None:
                return None
            if same:
                return number
        if len(others) == _MOST_ALIKE:
            return None
        self._count += 1
        others.append((pid, fd, self._count))
        return self._count

    def known(self, pid: int, fd: int, path: str) -> int | None:
        """Returns the number that a descriptor's description has already; None if it has none."""
        for its, other, number in self._known.get(path, ()):
            if self._compared(pid, fd, its, other):
                return number
        return None

    def _compared(self, pid: int, fd: int, other_pid: int, other_fd: int) -> bool | None:
        if self._kcmp is None:
            return None
        arguments = (self._kcmp, pid, other_pid, _KCMP_FILE, fd, other_fd)
        result: int = libc().syscall(*map(ctypes.c_long, arguments))
        return result == 0 if result >= 0 else None
