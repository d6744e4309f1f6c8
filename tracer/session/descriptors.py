"""The open files of the targets' processes: descriptors, positions, and which of them share one.

Kernel: Documentation/filesystems/proc.rst (/proc/PID/fdinfo), man 2 kcmp. No file is opened and no
file system is asked, because some never answer. Names and numbers of descriptors are the targets'.
"""

from __future__ import annotations

import ctypes
import os
import time
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path

from tracer.probes.libc import libc
from tracer.store.lists import DescriptorFacts

MOST = 1 << 16
"""Most descriptors of all processes."""
_MOST_S = 2.0
"""Time in s after which no more processes and files are looked at."""
_MOST_ALIKE = 64
"""Most open files of one name that a further one is compared with. Beyond, it has no number."""
_MOST_BYTES = 1 << 16
"""Most bytes of fdinfo that are read: an epoll descriptor has a line for each file in it."""
_NO_FILES = ("/dev/", "/proc/", "/sys/")
_SYS_KCMP = {"x86_64": 312, "aarch64": 272}
_KCMP_FILE = 0
_FARTHEST = (1 << 63) - 1


def descriptors(pids: Iterable[int]) -> tuple[list[DescriptorFacts], Counter[str]]:
    """Returns the open files of processes, and counts of what was left out.

    Processes that end meanwhile, or that this user may not look at, are left out silently.
    """
    found: list[DescriptorFacts] = []
    left_out: Counter[str] = Counter()
    shared = _Shared()
    deadline = time.monotonic() + _MOST_S
    for pid in pids:
        if time.monotonic() > deadline:
            left_out[f"processes' open files left out: after {_MOST_S:.0f} s"] += 1
            continue
        for fd, path in _files(pid):
            if time.monotonic() > deadline:
                left_out[f"processes' open files left out in part: after {_MOST_S:.0f} s"] += 1
                break
            if len(found) == MOST:
                left_out[f"open files left out: {MOST} are known"] += 1
                continue
            begun = time.monotonic_ns()
            told = _position(pid, fd)
            if told is not None:
                took = time.monotonic_ns() - begun
                number = shared.number(pid, fd, path)
                found.append((begun, took, pid, fd, number, *told, path))
    return found, left_out


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

    def __init__(self) -> None:
        self._kcmp = _SYS_KCMP.get(os.uname().machine)
        self._known: dict[str, list[tuple[int, int, int]]] = {}
        """(pid, fd, number) of a descriptor of each description, by name."""
        self._count = 0

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

    def _compared(self, pid: int, fd: int, other_pid: int, other_fd: int) -> bool | None:
        if self._kcmp is None:
            return None
        arguments = (self._kcmp, pid, other_pid, _KCMP_FILE, fd, other_fd)
        result: int = libc().syscall(*map(ctypes.c_long, arguments))
        return result == 0 if result >= 0 else None
