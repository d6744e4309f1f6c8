"""The names and address spaces of threads, sample by sample.

Follows what the kernel says of names, forks, execs and mappings of code, in time order. Bounded:
of processes that have ended only the latest are remembered.
"""

from __future__ import annotations

import struct
from collections import OrderedDict
from collections.abc import Sequence

import numpy as np

from tracer.probes.backends.perf_tools.perf_data import COMM, EXIT, FORK, MMAP, MMAP2, Record, text
from tracer.probes.limits import PID_LIMIT
from tracer.probes.symbols.mappings import (
    CLEAR,
    FAULT,
    MAP,
    NOWHERE,
    AddressSpaces,
    MappedFile,
    Steps,
)

_COMM_EXEC = 1 << 13
_BUILD_ID = 1 << 14
"""The record has a build id in place of device and inode: not as we ask for it."""
_SPOKEN = {"//anon": "[anon]"}
"""The kernel's names for what is no file, and those of /proc/PID/maps."""
_ADDRESSES_END = 1 << 63
_MOST_DEAD = 4096


class Processes:
    """Threads and processes at one moment."""

    def __init__(self) -> None:
        self._comms: dict[int, str] = {}
        self._spaces = AddressSpaces()
        self._changes: dict[int, int] = {}
        self._dead: OrderedDict[int, None] = OrderedDict()

    def comm(self, tid: int) -> str | None:
        """Returns the name of a thread; None if no record has it."""
        return self._comms.get(tid)

    def state(self, pid: int) -> int:
        """A number that changes whenever the process's address space does."""
        return self._changes.get(pid, 0)

    def places(self, pid: int, addresses: Sequence[int]) -> list[tuple[MappedFile, int] | None]:
        """(file, offset in it) of each address of a process; None where nothing is known."""
        found = self._spaces.walk(pid, _steps([(FAULT, a, a, NOWHERE, 0) for a in addresses]))
        return [
            None if number == NOWHERE else (self._spaces.files[number], offset)
            for number, offset in zip(found.file.tolist(), found.offset.tolist(), strict=True)
        ]

    def note(self, record: Record) -> None:
        """Take a record that names a thread, a process or a mapping."""
        data = record.data
        if len(data) < 16:
            return
        if record.type == COMM:
            pid, tid = struct.unpack_from("<II", data)
            self._name(tid, text(data[8:]))
            if record.misc & _COMM_EXEC:
                self._clear(pid)
        elif record.type == FORK:
            pid, ppid, tid, ptid = struct.unpack_from("<IIII", data)
            if ptid in self._comms:
                self._name(tid, self._comms[ptid])
            if pid != ppid:
                self._spaces.fork(ppid, pid)
                self._change(pid)
                self._dead.pop(pid, None)
        elif record.type == EXIT:
            pid, _, tid, _ = struct.unpack_from("<IIII", data)
            if pid == tid:
                self._end(pid)
        elif record.type in (MMAP, MMAP2):
            self._map(record)

    def _name(self, tid: int, comm: str) -> None:
        if len(self._comms) < PID_LIMIT or tid in self._comms:
            self._comms[tid] = comm

    def _change(self, pid: int) -> None:
        self._changes[pid] = self._changes.get(pid, 0) + 1

    def _clear(self, pid: int) -> None:
        self._spaces.walk(pid, _steps([(CLEAR, 0, 0, NOWHERE, 0)]))
        self._change(pid)

    def _end(self, pid: int) -> None:
        """Forget a process, but not yet: its other threads, or its last events, may follow."""
        self._dead[pid] = None
        while len(self._dead) > _MOST_DEAD:
            gone, _ = self._dead.popitem(last=False)
            self._clear(gone)

    def _map(self, record: Record) -> None:
        data = record.data
        head = 32 if record.type == MMAP else 64
        if len(data) < head:
            return
        pid, _, start, length, offset = struct.unpack_from("<IIQQQ", data)
        if start + length >= _ADDRESSES_END or offset >= _ADDRESSES_END:
            return  # the kernel's own, which kallsyms tells better
        major, minor, inode = 0, 0, 0
        if record.type == MMAP2 and not record.misc & _BUILD_ID:
            major, minor, inode = struct.unpack_from("<IIQ", data, 32)
        path = text(data[head:])
        file = MappedFile(_SPOKEN.get(path, path), (major, minor), inode)
        self._spaces.forget_closed()
        number = self._spaces.number(file)
        self._spaces.walk(pid, _steps([(MAP, start, start + length, number, offset)]))
        self._change(pid)


def _steps(steps: Sequence[tuple[int, int, int, int, int]]) -> Steps:
    rows = np.array(steps, np.int64).reshape(-1, 5)
    return Steps(
        rows[:, 0].astype(np.int8),
        np.ascontiguousarray(rows[:, 1]),
        np.ascontiguousarray(rows[:, 2]),
        rows[:, 3].astype(np.int32),
        np.ascontiguousarray(rows[:, 4]),
    )
