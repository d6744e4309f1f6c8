"""Address spaces as they change: the mapping behind an address at a time.

A space is a list of mappings that do not overlap. It starts with the content of /proc/PID/maps,
empty at an exec, or as its parent's at a fork. Every later mapping replaces the parts that it
overlaps. The kernel logs no munmap: an unmapped address still shows its old mapping, but no fault
on it succeeds. The kernel logs no mremap either: a moved mapping is not found at its new place.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tracer.probes.compiled import compiled

NOWHERE = -1
"""File number of an address without a known file."""

FAULT, MAP, CLEAR = 0, 1, 2

_LEAST_FILES = 4096
"""Number of files from which on closed files are searched for and forgotten."""
_MOST_MAPPINGS = 1 << 22
"""Most mappings in all spaces together, 28 bytes each. By default a process may have 65,530."""

_STACK_BYTES = 8 << 20
"""Assumed size of a stack, the usual limit. The kernel logs a stack's mapping once, while it is
small; it then grows down with use."""


@dataclass(frozen=True)
class MappedFile:
    """The content of a mapping: a file by path, device and inode, or a name in brackets."""

    path: str
    dev: tuple[int, int] = (0, 0)
    ino: int = 0

    @property
    def is_file(self) -> bool:
        """True if it is a file that may be looked up by its path."""
        return self.path.startswith("/") and not self.path.startswith(("//", "/memfd:", "/SYSV"))


_CLOSED = MappedFile("")
_NO_PLACE = "/"
_NO_NUMBERS = np.empty(0, np.int32)


@dataclass
class Space:
    """One process's mappings, sorted by address. Arrays have room beyond `count`."""

    start: NDArray[np.int64] = field(default_factory=lambda: np.zeros(64, np.int64))
    end: NDArray[np.int64] = field(default_factory=lambda: np.zeros(64, np.int64))
    file: NDArray[np.int32] = field(default_factory=lambda: np.zeros(64, np.int32))
    offset: NDArray[np.int64] = field(default_factory=lambda: np.zeros(64, np.int64))
    count: int = 0

    def copy(self) -> Space:
        """Returns an independent copy."""
        return Space(
            self.start.copy(), self.end.copy(), self.file.copy(), self.offset.copy(), self.count
        )

    def reserve(self, more: int) -> None:
        """Makes room for `more` mappings."""
        wanted = self.count + more
        if wanted > len(self.start):
            room = max(wanted, 2 * len(self.start)) - len(self.start)
            for name in ("start", "end", "file", "offset"):
                array = getattr(self, name)
                setattr(self, name, np.concatenate([array, np.zeros(room, array.dtype)]))


@dataclass
class Steps:
    """The events in one address space, in time order: arrays of equal length."""

    what: NDArray[np.int8]
    """FAULT, MAP or CLEAR."""
    address: NDArray[np.int64]
    """Address of the fault; or begin of the mapping."""
    ip: NDArray[np.int64]
    """Address of the instruction that faulted; or end of the mapping."""
    file: NDArray[np.int32]
    """Number of the mapping's file."""
    offset: NDArray[np.int64]
    """Offset in the file at the mapping's begin."""


@dataclass
class Places:
    """The answers to `Steps`: file numbers (NOWHERE: not known), and offsets in the files."""

    file: NDArray[np.int32]
    offset: NDArray[np.int64]
    ip_file: NDArray[np.int32]
    ip_offset: NDArray[np.int64]


class AddressSpaces:
    """The mappings of every process, and their files, numbered."""

    def __init__(
        self, least_files: int = _LEAST_FILES, most_mappings: int = _MOST_MAPPINGS
    ) -> None:
        """Makes an empty set of spaces.

        least_files    number of files from which on closed files are forgotten
        most_mappings  most mappings in all spaces together
        """
        self.files: list[MappedFile] = []
        """Files by number. After `forget_closed`, a number may belong to another file."""
        self.forgotten = 0
        """Number of spaces forgotten because there were too many mappings."""
        self._most_mappings = most_mappings
        self._numbers: dict[MappedFile, int] = {}
        self._inodes: dict[tuple[tuple[int, int], int], MappedFile] = {}
        """The file of each inode that was mapped last by a path of its own."""
        self._free: list[int] = []
        self._least_files = self._look_at = least_files
        """Number of files at which the next search for closed files starts."""
        self._mapped = 0
        """Mappings made since the last search."""
        self._spaces: dict[int, Space] = {}
        self._shared: set[int] = set()

    def number(self, file: MappedFile) -> int:
        """Returns the number of a file; gives it one if it is new.

        A file that is mounted without a place has the path "/": runc executes itself so. It is the
        file with the same inode that was mapped before.
        """
        inode = (file.dev, file.ino)
        if file.path == _NO_PLACE:
            file = self._inodes.get(inode, file)
        elif file.ino:
            self._inodes[inode] = file
        found = self._numbers.get(file)
        if found is None:
            if self._free:
                found = self._free.pop()
                self.files[found] = file
            else:
                found = len(self.files)
                self.files.append(file)
            self._numbers[file] = found
        return found

    def forget_closed(self, held: NDArray[np.int32] = _NO_NUMBERS) -> None:
        """Forgets the files that no mapping refers to, except those with the numbers `held`.

        Call it often. It searches the mappings only if the number of files has doubled since the
        last search, or if many mappings were made since then.
        """
        if len(self._numbers) < self._look_at and 4 * self._mapped < self._most_mappings:
            return
        self._mapped = 0
        self._bound()
        spaces = {id(space): space for space in self._spaces.values()}
        used = np.zeros(len(self.files), np.bool_)
        for numbers in (held, *(space.file[: space.count] for space in spaces.values())):
            used[numbers[numbers != NOWHERE]] = True
        for number in np.flatnonzero(~used).tolist():
            if self._numbers.get(self.files[number]) == number:
                closed = self.files[number]
                del self._numbers[closed]
                if self._inodes.get((closed.dev, closed.ino)) == closed:
                    del self._inodes[closed.dev, closed.ino]
                self.files[number] = _CLOSED
                self._free.append(number)
        self._look_at = max(self._least_files, 2 * len(self._numbers))

    def _bound(self) -> None:
        """Forgets the largest spaces until there are no longer too many mappings."""
        sizes = {id(space): space.count for space in self._spaces.values()}
        left = sum(sizes.values())
        for space, count in sorted(sizes.items(), key=lambda item: -item[1]):
            if left <= self._most_mappings:
                return
            left -= count
            self.forgotten += 1
            for pid in [pid for pid, its in self._spaces.items() if id(its) == space]:
                self._drop(pid)

    def _drop(self, pid: int) -> None:
        self._spaces.pop(pid, None)
        self._shared.discard(pid)

    def snapshot(self, pid: int, maps: Iterable[tuple[int, int, int, int]]) -> None:
        """Starts a space with (start, end, file number, offset) of each of its mappings."""
        steps = [(MAP, start, end, file, offset) for start, end, file, offset in maps]
        what, start, end, file, offset = zip(*steps, strict=True) if steps else ((),) * 5
        self._spaces[pid] = Space()
        self.walk(
            pid,
            Steps(
                np.array(what, np.int8),
                np.array(start, np.int64),
                np.array(end, np.int64),
                np.array(file, np.int32),
                np.array(offset, np.int64),
            ),
        )

    def fork(self, parent: int, child: int) -> None:
        """Starts a child's space with its parent's mappings."""
        if parent in self._spaces:
            self._spaces[child] = self._spaces[parent]
            self._shared |= {parent, child}
        else:
            self._drop(child)

    def forget(self) -> None:
        """Forgets every mapping, because some may have changed without an event."""
        self._spaces.clear()
        self._shared.clear()

    def walk(self, pid: int, steps: Steps) -> Places:
        """Applies the events to one space; returns the places of the faults."""
        n = len(steps.what)
        places = Places(
            np.full(n, NOWHERE, np.int32),
            np.zeros(n, np.int64),
            np.full(n, NOWHERE, np.int32),
            np.zeros(n, np.int64),
        )
        maps = int(np.count_nonzero(steps.what != FAULT))
        space = self._spaces.get(pid)
        if space is None:
            if not maps:
                return places
            space = self._spaces[pid] = Space()
        if maps:
            if pid in self._shared:
                space = self._spaces[pid] = space.copy()
                self._shared.discard(pid)
            space.reserve(2 * maps)
        stack = self._numbers.get(MappedFile("[stack]"), NOWHERE)
        space.count = _walk(
            steps.what,
            steps.address,
            steps.ip,
            steps.file,
            steps.offset,
            stack,
            space.start,
            space.end,
            space.file,
            space.offset,
            space.count,
            places.file,
            places.offset,
            places.ip_file,
            places.ip_offset,
        )
        self._mapped += maps
        if not space.count:
            self._drop(pid)
        return places


@compiled
def _find(start: Any, end: Any, count: int, address: int) -> int:
    """Returns the index of the mapping that contains `address`, or -1."""
    low, high = 0, count
    while low < high:
        middle = (low + high) // 2
        if start[middle] <= address:
            low = middle + 1
        else:
            high = middle
    at = low - 1
    return at if at >= 0 and address < end[at] else -1


@compiled
def _walk(
    what: Any,
    address: Any,
    ip: Any,
    file_of: Any,
    offset_of: Any,
    stack: int,
    start: Any,
    end: Any,
    file: Any,
    offset: Any,
    count: int,
    out_file: Any,
    out_offset: Any,
    out_ip_file: Any,
    out_ip_offset: Any,
) -> int:
    for i in range(len(what)):
        if what[i] == CLEAR:
            count = 0
            continue
        if what[i] == FAULT:
            at = _find(start, end, count, address[i])
            if at >= 0:
                out_file[i] = file[at]
                out_offset[i] = offset[at] + address[i] - start[at]
            at = _find(start, end, count, ip[i])
            if at >= 0:
                out_ip_file[i] = file[at]
                out_ip_offset[i] = offset[at] + ip[i] - start[at]
            continue
        first, last = address[i], ip[i]
        if last <= first:
            continue
        # The mappings from `a` to before `b` overlap the new one.
        a = 0
        low, high = 0, count
        while low < high:
            middle = (low + high) // 2
            if end[middle] <= first:
                low = middle + 1
            else:
                high = middle
        a = low
        b = a
        while b < count and start[b] < last:
            b += 1
        left = a < b and start[a] < first
        right = a < b and end[b - 1] > last
        right_file, right_start, right_end, right_offset = file[0], first, last, offset[0]
        if right:
            right_file, right_start, right_end = file[b - 1], last, end[b - 1]
            right_offset = offset[b - 1] + last - start[b - 1]
        if left:
            end[a] = first
            a += 1
        fresh = 1 + int(right)
        move = a + fresh - b
        if move > 0:
            for k in range(count - 1, b - 1, -1):
                start[k + move] = start[k]
                end[k + move] = end[k]
                file[k + move] = file[k]
                offset[k + move] = offset[k]
        elif move < 0:
            for k in range(b, count):
                start[k + move] = start[k]
                end[k + move] = end[k]
                file[k + move] = file[k]
                offset[k + move] = offset[k]
        count += move
        if file_of[i] == stack and stack >= 0:
            below = end[a - 1] if a > 0 else 0
            first = max(below, first - _STACK_BYTES)
        start[a] = first
        end[a] = last
        file[a] = file_of[i]
        offset[a] = offset_of[i]
        if right:
            start[a + 1] = right_start
            end[a + 1] = right_end
            file[a + 1] = right_file
            offset[a + 1] = right_offset
    return count
