"""Samples into folded stacks, counted.

A stack is its functions from the root to the event, joined by `;`. Kernel functions end in `_[k]`,
as other tools write them, and nothing that a process chooses (names of threads, files, functions,
return addresses on its stack) can look like one: what would is escaped, and once a chain has come
to user mode it stays there.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from tracer.probes.backends.perf_tools.perf_data import SAMPLE, PerfData, Record
from tracer.probes.backends.perf_tools.processes import Processes
from tracer.probes.backends.perf_tools.told import UNTOLD, Told
from tracer.probes.call_graphs import KERNEL, TABLE, TRUNCATED, UNKNOWN
from tracer.probes.loss import Gap
from tracer.probes.symbols.frames import PLUMBING, escaped, without_module
from tracer.probes.symbols.kernel import KernelSymbols
from tracer.probes.symbols.mappings import MappedFile

MAX_DEPTH = 127
"""Frames kept of a stack: the kernel's default (kernel.perf_event_max_stack)."""
_CONTEXTS = (1 << 64) - 4095
"""The least entry of a chain that is not an address but names the context of the next entries
(PERF_CONTEXT_MAX)."""
_USER = (1 << 64) - 512
_KERNEL_HALF = 1 << 63
_PID_END = 1 << 31
_MOST_TEXT = 32 << 20
"""Characters of stacks that are handed on together."""
_MOST_FRAMES = 1 << 20
_MOST_COUNTS = 1 << 18
_MOST_ADDRESSES = 1 << 18
"""Held before what was counted is handed on."""
_PROGRESS_RECORDS = 1 << 16


@dataclass(frozen=True)
class Place:
    """An address in user mode that a function's name is wanted for."""

    file: MappedFile
    """Path in the process's own mount namespace."""
    offset: int
    """Offset in the file, in bytes."""
    pid: int
    address: int


Resolve = Callable[[Sequence[Place]], Sequence[str | None]]
"""Names the function at each place, or None."""


def unresolved(places: Sequence[Place]) -> Sequence[str | None]:
    """Knows no function's name."""
    return [None] * len(places)


@dataclass(frozen=True)
class CallGraphs:
    """One file of samples, to be read once."""

    path: Path
    kernel: KernelSymbols | None
    """The mappings at the recording; None: not known."""
    leave_out: Collection[int] = ()
    """Processes whose samples do not count: the recorder and perf."""
    resolve: Resolve = unresolved
    progress: Callable[[int, int], None] | None = None
    """Told bytes read, and bytes in all."""
    told: Mapping[int, Told] = field(default_factory=dict)
    """Places of the fields of tracepoints, by the numbers of the tracepoints."""

    def read(self, gaps: list[Gap]) -> Iterator[pa.RecordBatch]:
        """Rows of the table call_graphs; what is missing is added to `gaps`.

        Memory is bounded: a stack can come in several batches, each with the part of the count
        since the last. Raises BadTrace.
        """
        data = PerfData(self.path)
        try:
            folder = _Folder(self, data)
            for number, record in enumerate(data.records()):
                if record.type != SAMPLE:
                    folder.processes.note(record)
                else:
                    folder.add(record)
                    if folder.full:
                        yield from folder.take()
                if self.progress and number % _PROGRESS_RECORDS == 0:
                    self.progress(min(data.bytes_read, data.bytes), data.bytes)
            yield from folder.take()
            if self.progress:
                self.progress(data.bytes, data.bytes)
        finally:
            data.close()
        gaps += data.gaps


class _Kind(NamedTuple):
    """The columns of a row before its stack; `event` is a number."""

    event: int
    comm: str | None
    pid: int
    dev: str | None
    operation: str | None


class _Folder:
    """Stacks and how often they came. User functions are named when stacks are handed on."""

    def __init__(self, source: CallGraphs, data: PerfData) -> None:
        self.processes = Processes()
        self._source = source
        self._data = data
        self._counts: dict[tuple[_Kind, int], int] = {}
        """Counts by kind and number of the stack."""
        self._kernel: dict[int, str] = {}
        self._stacks: dict[tuple[str | int, ...], int] = {}
        """Frames from the event to the root: text, or the number of a place."""
        self._chains: dict[tuple[int, int, bytes], int] = {}
        self._frames_held = 0
        self._numbers: dict[object, int] = {}
        self._places: list[Place] = []
        self._names: list[str] = []
        """The number of the first of the places."""

    @property
    def full(self) -> bool:
        """True if the counts should be handed on, because they are many."""
        return (
            self._frames_held >= _MOST_FRAMES
            or len(self._places) >= _MOST_ADDRESSES
            or len(self._counts) >= _MOST_COUNTS
        )

    def add(self, record: Record) -> None:
        """Count a sample."""
        layout, data = record.layout, record.data
        assert layout is not None
        pid, tid = struct.unpack_from("<II", data, layout.pid)
        if pid in self._source.leave_out:
            return
        chain, raw = layout.parts(data)
        seen = (pid, self.processes.state(pid), chain)
        stack = self._chains.get(seen)
        if stack is None:
            frames = self._folded(pid, chain)
            stack = self._stacks.setdefault(frames, len(self._stacks))
            self._frames_held += len(frames) + len(chain) // 8
            self._chains[seen] = stack
        kind = _Kind(record.event, self.processes.comm(tid), pid, *self._read(record.event, raw))
        key = kind, stack
        self._counts[key] = self._counts.get(key, 0) + 1

    def _read(self, event: int, raw: bytes) -> tuple[str | None, str | None]:
        """Returns the device and the operation of an event."""
        number = self._data.tracepoints[event]
        source = None if number is None else self._source.told.get(number)
        return UNTOLD if source is None else source.read(raw)

    def _folded(self, pid: int, chain: bytes) -> tuple[str | int, ...]:
        frames: list[str | int] = []
        user: list[int] = []
        in_kernel = True
        for (address,) in struct.iter_unpack("<Q", chain):
            if address >= _CONTEXTS:
                in_kernel = in_kernel and address != _USER
            elif in_kernel and address >= _KERNEL_HALF:
                frame = self._kernel_frame(address)
                if frames or not frame.startswith(PLUMBING):
                    frames.append(frame)
            else:
                in_kernel = False
                user.append(min(address, _KERNEL_HALF - 1))
        frames += self._user_frames(pid, user)
        if len(frames) > MAX_DEPTH:
            frames[MAX_DEPTH:] = [TRUNCATED]
        return tuple(frames)

    def _kernel_frame(self, address: int) -> str:
        name = self._kernel.get(address)
        if name is None:
            name = escaped(self._kernel_name(address) or UNKNOWN) + KERNEL
            if len(self._kernel) >= _MOST_ADDRESSES:
                self._kernel.clear()
            self._kernel[address] = name
        return name

    def _kernel_name(self, address: int) -> str | None:
        if self._source.kernel is None:
            return None
        (name,) = self._source.kernel.table.names_of(np.array([address], np.uint64))
        return without_module(name) if name is not None else None

    def _user_frames(self, pid: int, addresses: Sequence[int]) -> Iterator[str | int]:
        if not addresses:
            return
        for address, place in zip(addresses, self.processes.places(pid, addresses), strict=True):
            if place is None:
                yield UNKNOWN
                continue
            file, offset = place
            # Code without a file is the process's own, made by a JIT.
            key = (file, offset) if file.is_file else (pid, self.processes.state(pid), address)
            number = self._numbers.setdefault(key, len(self._places))
            if number == len(self._places):
                self._places.append(Place(file, offset, pid, address))
            yield number

    def take(self) -> Iterator[pa.RecordBatch]:
        """The counts since the last call, in pieces."""
        places = self._places[len(self._names) :]
        named = self._source.resolve(places)
        self._names += [_named(place, name) for place, name in zip(places, named, strict=True)]
        stacks = list(self._stacks)
        counts: dict[tuple[_Kind, str], int] = {}
        folded: dict[int, str] = {}
        text = 0
        for (kind, number), count in self._counts.items():
            stack = folded.get(number)
            if stack is None:
                stack = folded[number] = self._text(stacks[number])
            before = counts.get((kind, stack))
            counts[kind, stack] = (before or 0) + count
            if before is None:
                text += len(stack) + 64
            if text >= _MOST_TEXT:
                yield self._batch(counts)
                counts, folded, text = {}, {}, 0
        if counts:
            yield self._batch(counts)
        self._counts = {}
        if self._frames_held >= _MOST_FRAMES or len(self._places) >= _MOST_ADDRESSES:
            self._stacks, self._chains, self._frames_held = {}, {}, 0
            self._numbers, self._places, self._names = {}, [], []

    def _text(self, frames: Sequence[str | int]) -> str:
        names = [self._names[frame] if isinstance(frame, int) else frame for frame in frames]
        return ";".join(reversed(names)) or UNKNOWN

    def _batch(self, counts: dict[tuple[_Kind, str], int]) -> pa.RecordBatch:
        names = self._data.events

        def text(values: list[str | None]) -> pa.Array:
            return pa.array(values, pa.string()).dictionary_encode()

        return pa.RecordBatch.from_arrays(
            [
                text([names[kind.event] or "unknown" for kind, _ in counts]),
                text([kind.comm for kind, _ in counts]),
                pa.array(
                    [kind.pid if kind.pid < _PID_END else None for kind, _ in counts], pa.int32()
                ),
                text([kind.dev for kind, _ in counts]),
                text([kind.operation for kind, _ in counts]),
                text([stack for _, stack in counts]),
                pa.array(counts.values(), pa.int64()),
            ],
            schema=TABLE.arrow_schema(),
        )


def _named(place: Place, function: str | None) -> str:
    """The frame of a place: its function, or its file in brackets."""
    # The kernel's own names of mappings, as [vdso], are in brackets already.
    file = PurePosixPath(place.file.path).name.strip("[]") or "unknown"
    name = escaped(function or f"[{file}]")
    return name[: -len(KERNEL)] + "\\x5f[k]" if name.endswith(KERNEL) else name
