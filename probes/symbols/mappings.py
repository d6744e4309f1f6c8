"""Address spaces as they change: what lay behind an address at a time.

A space is a list of mappings that do not overlap. It begins with what /proc/PID/maps said, or
empty at an exec, or as its parent's at a fork; every mapping since covers what it overlaps. The
kernel tells of no munmap: an address that was unmapped still shows what was there, but no fault
on it succeeds. Nor does it tell of mremap: what was moved is not found at its new place.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from probes.compiled import compiled

NOWHERE = -1
"""The number of no file."""

FAULT, MAP, CLEAR = 0, 1, 2

_LEAST_FILES = 4096
"""Number of files that are kept before a look which are still mapped."""
_MOST_MAPPINGS = 1 << 22
"""The most of all spaces together, 28 bytes each: a process may have 65,530 by default."""

_STACK_BYTES = 8 << 20
"""A stack's mapping is told of once, small, and grows down as it is used: the usual limit."""


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
        """The same mappings, to change apart."""
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
    """Answers to `Steps`: file numbers, NOWHERE where nothing is known, and offsets in them."""

    file: NDArray[np.int32]
    offset: NDArray[np.int64]
    ip_file: NDArray[np.int32]
    ip_offset: NDArray[np.int64]


class AddressSpaces:
    """Every process's mappings, and the files that they show, numbered."""

    def __init__(
        self, least_files: int = _LEAST_FILES, most_mappings: int = _MOST_MAPPINGS
    ) -> None:
        """Files are looked through from `least_files` on; `most_mappings`: of all spaces."""
        self.files: list[MappedFile] = []
        """The files by number; `forget_closed` gives numbers to other files."""
        self.forgotten = 0
        """Spaces that were forgotten because all together had become too large."""
        self._most_mappings = most_mappings
        self._numbers: dict[MappedFile, int] = {}
        self._free: list[int] = []
        self._least_files = self._look_at = least_files
        """Number of files at which the next look finds those that are still mapped."""
        self._mapped = 0
        """Mappings made since that was last done."""
        self._spaces: dict[int, Space] = {}
        self._shared: set[int] = set()

    def number(self, file: MappedFile) -> int:
        """The number of a file."""
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
        """Forget the files that no mapping shows any more, but those of the numbers `held`.

        To be called often: it looks at the mappings once there are twice as many files as it left
        the last time, or a good part of the mappings that are kept at most.
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
                del self._numbers[self.files[number]]
                self.files[number] = _CLOSED
                self._free.append(number)
        self._look_at = max(self._least_files, 2 * len(self._numbers))

    def _bound(self) -> None:
        """Forget the largest spaces while there are too many mappings in all."""
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
        """Begin a space with (start, end, file number, offset) of each of its mappings."""
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
        """A child begins with its parent's mappings."""
        if parent in self._spaces:
            self._spaces[child] = self._spaces[parent]
            self._shared |= {parent, child}
        else:
            self._drop(child)

    def forget(self) -> None:
        """Forget every mapping: some may have changed unseen."""
        self._spaces.clear()
        self._shared.clear()

    def walk(self, pid: int, steps: Steps) -> Places:
        """Take steps in one space; tells where each fault was."""
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
    """The mapping that `address` lies in, or -1."""
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
        # Mappings from `a` up to `b` overlap the new one.
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
