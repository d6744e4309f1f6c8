"""The places of faults: the file behind the address, the file and function of the instruction."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from tracer.probes.backends.event_format import EventFormat
from tracer.probes.backends.timeline import Batch
from tracer.probes.loss import Gap
from tracer.probes.rows import columns
from tracer.probes.schema import AssemblyContext
from tracer.probes.symbols.mappings import (
    CLEAR,
    FAULT,
    MAP,
    NOWHERE,
    AddressSpaces,
    MappedFile,
    Steps,
)

_STREAM = "maps"
"""Part of the names of the streams that tell of mappings."""

_ALL_CPUS = -1
_KERNEL = "[kernel]"
_MAX_PATH = 4096
_SPOKEN = {"//anon": "[anon]"}
"""The kernel's names for what is no file, and those of /proc/PID/maps."""


class FaultPlaces:
    """Follows every address space through the recording."""

    def __init__(self, context: AssemblyContext, formats: Mapping[str, EventFormat | None]) -> None:
        self._formats = {
            label: parsed
            for label in ("mmap", "exec", "fork", "exit")
            if (parsed := formats.get(label)) is not None
        }
        self._spaces = AddressSpaces()
        self._symbols = context.symbols
        self._gaps_seen = 0
        self._gaps: list[Gap] = context.gaps
        self._known_from: dict[int, int] = {}
        self._threads: dict[int, set[int]] = {}
        """Living threads of each process of which all are known."""
        for tid, pid, *_ in context.manifest.get("threads", []):
            self._threads.setdefault(pid, set()).add(tid)
        for pid, ts, maps in context.manifest.get("maps", []):
            self._known_from[pid] = ts
            self._spaces.snapshot(
                pid,
                [
                    (start, end, self._spaces.number(_mapped(*file)), offset)
                    for start, end, offset, file in maps
                ],
            )

    def locate(
        self,
        batch: Batch,
        of_probe: NDArray[np.int64],
        types: NDArray[np.uint16],
        faults: NDArray[Any],
        at: NDArray[np.int64],
    ) -> None:
        """Fill file, file_offset, ip_file and ip_offset of the faults at `at` of `of_probe`."""
        for name in ("file", "ip_file"):
            faults[name] = NOWHERE
        if not self._formats:
            return
        lost = sum(_STREAM in gap.stream for gap in batch.gaps)
        if lost > self._gaps_seen:
            self._gaps_seen = lost
            self._spaces.forget()
            self._threads.clear()
        what = np.full(len(types), -1, np.int8)
        pid = batch.pid[of_probe].copy()
        steps = Steps(
            what,
            np.zeros(len(types), np.int64),
            np.zeros(len(types), np.int64),
            np.full(len(types), NOWHERE, np.int32),
            np.zeros(len(types), np.int64),
        )
        what[at] = FAULT
        steps.address[at], steps.ip[at] = faults["address"], faults["ip"]
        self._mappings(batch, of_probe, types, steps, pid)
        self._ends(batch, of_probe, types, what, pid)
        forks = self._forks(batch, of_probe, types)
        number = np.full(len(types), -1, np.int64)
        number[at] = np.arange(len(at))
        begin = 0
        for position, parent, child in [*forks, (len(types), 0, 0)]:
            self._segment(steps, pid, number, begin, position, faults)
            if position < len(types):
                self._spaces.fork(parent, child)
            begin = position

    def forget_closed(self, waiting: NDArray[Any], now: int) -> None:
        """Forget files that neither a mapping nor one of the faults `waiting` shows any more."""
        before = self._spaces.forgotten
        self._spaces.forget_closed(np.concatenate([waiting["file"], waiting["ip_file"]]))
        if count := self._spaces.forgotten - before:
            cause = f"mappings of {count} processes forgotten: there were too many"
            self._gaps.append(Gap(_STREAM, _ALL_CPUS, now, None, None, cause))

    def _rows(self, label: str, types: NDArray[np.uint16]) -> NDArray[np.int64]:
        event_format = self._formats.get(label)
        if event_format is None:
            return np.empty(0, np.int64)
        return np.flatnonzero(types == event_format.id)

    def _mappings(
        self,
        batch: Batch,
        of_probe: NDArray[np.int64],
        types: NDArray[np.uint16],
        steps: Steps,
        pid: NDArray[np.int32],
    ) -> None:
        rows = self._rows("mmap", types)
        if not len(rows):
            return
        event_format = self._formats["mmap"]
        values = {
            name: columns.integers(batch, of_probe[rows], event_format.field(name))[0]
            for name in ("pid", "address", "bytes", "file_offset", "major", "minor", "ino")
        }
        paths = columns.text(
            batch,
            [(of_probe[rows], np.arange(len(rows)), event_format.field("path"))],
            len(rows),
            _MAX_PATH,
        )
        names = paths.dictionary.to_pylist()
        codes = paths.indices.fill_null(-1).to_numpy(zero_copy_only=False)
        for i, row in enumerate(rows.tolist()):
            owner = int(values["pid"][i])
            if batch.ts[of_probe[row]] < self._known_from.get(owner, 0):
                continue  # the list of mappings was taken later
            steps.what[row] = MAP
            pid[row] = owner
            steps.file[row] = self._spaces.number(
                _mapped(
                    names[codes[i]] if codes[i] >= 0 else "",
                    (int(values["major"][i]), int(values["minor"][i])),
                    int(values["ino"][i]),
                )
            )
        steps.address[rows] = values["address"]
        steps.ip[rows] = values["address"] + values["bytes"]
        steps.offset[rows] = values["file_offset"]

    def _ends(
        self,
        batch: Batch,
        of_probe: NDArray[np.int64],
        types: NDArray[np.uint16],
        what: NDArray[np.int8],
        pid: NDArray[np.int32],
    ) -> None:
        """Execs, and exits of the last threads of processes, after which a space is empty."""
        found: list[tuple[int, str, int, int]] = []
        for label in ("fork", "exec", "exit"):
            rows = self._rows(label, types)
            owner, tid = self._values(label, batch, of_probe[rows], "pid", "tid")
            if label != "fork":
                pid[rows] = owner
            each = zip(rows.tolist(), owner.tolist(), tid.tolist(), strict=True)
            found += [(row, label, process, thread) for row, process, thread in each]
        for row, label, process, thread in sorted(found):
            if label == "exec" or (label == "fork" and thread == process):
                self._threads[process] = {thread}
            threads = self._threads.get(process, set())
            if label == "fork":
                threads.add(thread)
            elif label == "exit" and threads:
                threads.discard(thread)
                if not threads:
                    del self._threads[process]
                    what[row] = CLEAR
            if label == "exec":
                what[row] = CLEAR

    def _values(
        self, label: str, batch: Batch, rows: NDArray[np.int64], *names: str
    ) -> list[NDArray[np.int64]]:
        """Fields of the records of a kind in these rows."""
        event_format = self._formats.get(label)
        if event_format is None:
            return [np.empty(0, np.int64) for _ in names]
        return [columns.integers(batch, rows, event_format.field(name))[0] for name in names]

    def _forks(
        self, batch: Batch, of_probe: NDArray[np.int64], types: NDArray[np.uint16]
    ) -> list[tuple[int, int, int]]:
        """(position, parent, child) of each new process."""
        rows = self._rows("fork", types)
        child, parent = self._values("fork", batch, of_probe[rows], "pid", "ppid")
        return [
            (row, p, c)
            for row, p, c in zip(rows.tolist(), parent.tolist(), child.tolist(), strict=True)
            if p != c
        ]

    def _segment(
        self,
        steps: Steps,
        pid: NDArray[np.int32],
        number: NDArray[np.int64],
        begin: int,
        end: int,
        faults: NDArray[Any],
    ) -> None:
        """Walk every space through the steps from `begin` up to `end`."""
        rows = begin + np.flatnonzero(steps.what[begin:end] >= 0)
        if not len(rows):
            return
        rows = rows[np.argsort(pid[rows], kind="stable")]
        bounds = np.flatnonzero(np.diff(pid[rows])) + 1
        for mine in np.split(rows, bounds):
            found = self._spaces.walk(
                int(pid[mine[0]]),
                Steps(
                    steps.what[mine],
                    steps.address[mine],
                    steps.ip[mine],
                    steps.file[mine],
                    steps.offset[mine],
                ),
            )
            of_fault = steps.what[mine] == FAULT
            which = number[mine[of_fault]]
            faults["file"][which] = found.file[of_fault]
            faults["file_offset"][which] = found.offset[of_fault]
            faults["ip_file"][which] = found.ip_file[of_fault]
            faults["ip_offset"][which] = found.ip_offset[of_fault]

    def may_be_shared(self, faults: NDArray[Any]) -> NDArray[np.bool_]:
        """Faults whose memory is not known to be private, such as a heap or a stack."""
        files = self._spaces.files
        numbers, codes = np.unique(faults["file"], return_inverse=True)
        shared = [n == NOWHERE or not files[n].path.startswith("[") for n in numbers.tolist()]
        return np.array(shared, np.bool_)[codes]

    def columns(self, faults: NDArray[Any]) -> dict[str, pa.Array]:
        """The columns file, file_offset, ip_file and symbol."""
        files = self._spaces.files
        numbers, codes = np.unique(faults["file"], return_inverse=True)
        in_file = [n != NOWHERE and files[n].path.startswith("/") for n in numbers.tolist()]
        with_offset = np.array(in_file, np.bool_)[codes]
        kernel = ~faults["user"]
        functions = np.full(len(faults), -1, np.int32), list[str]()
        if self._symbols is not None:
            functions = self._symbols.names(files, faults, kernel)
        return {
            "file": _names(files, faults["file"], None),
            "file_offset": pa.array(np.ascontiguousarray(faults["file_offset"]), mask=~with_offset),
            "ip_file": _names(files, faults["ip_file"], kernel),
            "symbol": columns.encoded(functions[0], functions[0] >= 0, functions[1]),
        }


def _mapped(path: str, dev: tuple[int, int], ino: int) -> MappedFile:
    return MappedFile(_SPOKEN.get(path, path) or "[anon]", tuple(dev), ino)  # type: ignore[arg-type]


def _names(
    files: list[MappedFile], numbers: NDArray[np.int32], kernel: NDArray[np.bool_] | None
) -> pa.DictionaryArray:
    """Paths of numbered files, "[kernel]" where `kernel`, else null."""
    numbers = np.where(kernel, -2, numbers) if kernel is not None else numbers
    unique, codes = np.unique(numbers, return_inverse=True)
    names = [_KERNEL if n == -2 else files[n].path if n >= 0 else "" for n in unique.tolist()]
    return columns.encoded(codes, numbers != NOWHERE, names)
