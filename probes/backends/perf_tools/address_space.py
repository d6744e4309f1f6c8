"""Which file lay at which address of which process, and what threads were called.

Follows what the kernel says of forks, execs and mappings of code, in time order. Bounded: of
processes that have ended only the latest are remembered, and of a process only so many mappings.
"""

from __future__ import annotations

import struct
from bisect import bisect_right
from collections import OrderedDict
from dataclasses import dataclass

from probes.backends.perf_tools.perf_data import (
    COMM,
    EXIT,
    FORK,
    MMAP,
    MMAP2,
    Record,
    text,
)

_COMM_EXEC = 1 << 13
_BUILD_ID = 1 << 14
_MOST_DEAD = 4096
_MOST_MAPPINGS = 1 << 16
"""No more than the kernel's own default limit of a process (vm.max_map_count)."""
_MOST_THREADS = 1 << 22
"""As many as there can be pids."""
_MOST_FILES = 1 << 20


@dataclass(frozen=True)
class File:
    """What is mapped: a file by its path in the process's own mount namespace."""

    path: str
    build_id: str
    """In hex; "" where it has none or the kernel did not say."""


@dataclass(frozen=True)
class Mapping:
    """A mapped part of a file: addresses `start` up to `end` begin at `offset` in it."""

    start: int
    end: int
    offset: int
    file: File


class AddressSpace:
    """The mappings of one process, by address. Never changed in place, so that forks share it."""

    def __init__(self, mappings: tuple[Mapping, ...] = ()) -> None:
        self._mappings = mappings
        self._starts = [mapping.start for mapping in mappings]

    def at(self, address: int) -> Mapping | None:
        """The mapping that an address lies in."""
        number = bisect_right(self._starts, address) - 1
        if number < 0 or address >= self._mappings[number].end:
            return None
        return self._mappings[number]

    def with_mapping(self, new: Mapping) -> AddressSpace:
        """The same with one more mapping, in place of what lay there."""
        if len(self._mappings) >= _MOST_MAPPINGS:
            return self
        kept: list[Mapping] = []
        for old in self._mappings:
            if old.end <= new.start or old.start >= new.end:
                kept.append(old)
                continue
            if old.start < new.start:
                kept.append(Mapping(old.start, new.start, old.offset, old.file))
            if old.end > new.end:
                offset = old.offset + new.end - old.start
                kept.append(Mapping(new.end, old.end, offset, old.file))
        kept.append(new)
        kept.sort(key=lambda mapping: mapping.start)
        return AddressSpace(tuple(kept))


_EMPTY = AddressSpace()


class Processes:
    """Names and address spaces of all threads and processes at one moment."""

    def __init__(self) -> None:
        self._comms: dict[int, str] = {}
        self._spaces: dict[int, AddressSpace] = {}
        self._dead: OrderedDict[int, None] = OrderedDict()
        self._files: dict[tuple[bytes, bytes], File] = {}

    def comm(self, tid: int) -> str | None:
        """What a thread is called; None where nobody said."""
        return self._comms.get(tid)

    def space(self, pid: int) -> AddressSpace:
        """The address space of a process; an empty one where it is not known."""
        return self._spaces.get(pid, _EMPTY)

    def note(self, record: Record) -> None:
        """Take a record that names a thread, a process or a mapping."""
        data = record.data
        if len(data) < 16:
            return
        if record.type == COMM:
            pid, tid = struct.unpack_from("<II", data)
            self._name(tid, text(data[8:]))
            if record.misc & _COMM_EXEC:
                self._spaces[pid] = _EMPTY
        elif record.type == FORK:
            pid, ppid, tid, ptid = struct.unpack_from("<IIII", data)
            if ptid in self._comms:
                self._name(tid, self._comms[ptid])
            if pid != ppid:
                self._spaces[pid] = self.space(ppid)
                self._dead.pop(pid, None)
        elif record.type == EXIT:
            pid, _, tid, _ = struct.unpack_from("<IIII", data)
            if pid == tid:
                self._end(pid)
        elif record.type in (MMAP, MMAP2):
            self._map(record)

    def _name(self, tid: int, comm: str) -> None:
        if len(self._comms) < _MOST_THREADS or tid in self._comms:
            self._comms[tid] = comm

    def _end(self, pid: int) -> None:
        """Forget a process, but not yet: its other threads, or its last events, may follow."""
        self._dead[pid] = None
        while len(self._dead) > _MOST_DEAD:
            gone, _ = self._dead.popitem(last=False)
            self._spaces.pop(gone, None)

    def _map(self, record: Record) -> None:
        data = record.data
        head = 32 if record.type == MMAP else 64
        if len(data) < head:
            return
        pid, _, start, length, offset = struct.unpack_from("<IIQQQ", data)
        build_id = b""
        if record.type == MMAP2 and record.misc & _BUILD_ID:
            build_id = data[36 : 36 + min(data[32], 20)]
        if not length or start >> 63:
            return  # the kernel's own, which kallsyms tells better
        path = data[head:].partition(b"\0")[0]
        file = self._files.get((path, build_id))
        if file is None:
            file = File(text(path), build_id.hex())
            if len(self._files) < _MOST_FILES:
                self._files[path, build_id] = file
        mapping = Mapping(start, start + length, offset, file)
        self._spaces[pid] = self.space(pid).with_mapping(mapping)
