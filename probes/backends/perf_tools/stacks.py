"""Samples into folded stacks, counted.

A stack is its functions from the root to the event, joined by `;`. Kernel functions end in `_[k]`,
as other tools write them, and nothing that a process chooses (names of threads, files, functions,
return addresses on its stack) can look like one: what would is escaped, and once a chain has come
to user mode it stays there.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

import pyarrow as pa

from probes.backends.perf_tools.kallsyms import KernelSymbols
from probes.backends.perf_tools.perf_data import SAMPLE, PerfData, Record
from probes.backends.perf_tools.processes import Processes
from probes.call_graphs import KERNEL, TABLE, TRUNCATED, UNKNOWN
from probes.loss import Gap
from probes.symbols.mappings import MappedFile

MAX_DEPTH = 127
"""Frames kept of a stack: the kernel's default (kernel.perf_event_max_stack)."""
_CONTEXTS = (1 << 64) - 4095
"""From here on a chain's entry is no address but says what follows (PERF_CONTEXT_MAX)."""
_USER = (1 << 64) - 512
_KERNEL_HALF = 1 << 63
_PID_END = 1 << 31
_MOST_TEXT = 32 << 20
"""Characters of stacks held before they are handed on."""
_PLUMBING = ("__traceiter_", "perf_trace_", "__do_trace_")
"""What calls the tracer of a tracepoint is no part of the way to it."""
_MOST_CHAINS = 1 << 16
_MOST_ADDRESSES = 1 << 18
_PROGRESS_RECORDS = 1 << 16
_MOST_NAME = 4096


@dataclass(frozen=True)
class Place:
    """An address in user mode that a function's name is wanted for."""

    file: MappedFile
    """Its path is that of the process's own mount namespace."""
    offset: int
    """In the file, in bytes."""
    pid: int
    address: int


Resolve = Callable[[Place], str | None]
"""Names the function at a place, or None."""


def unresolved(place: Place) -> str | None:
    """Knows no function's name."""
    return None


@dataclass(frozen=True)
class CallGraphs:
    """One file of samples, to be read once."""

    path: Path
    kernel: KernelSymbols
    leave_out: Collection[int] = ()
    """Processes whose samples do not count: the recorder and perf."""
    resolve: Resolve = unresolved
    progress: Callable[[int, int], None] | None = None
    """Told bytes read, and bytes in all."""

    def read(self, gaps: list[Gap]) -> Iterator[pa.RecordBatch]:
        """Rows of the table call_graphs; what is missing is added to `gaps`.

        Memory is bounded by some ten thousand distinct stacks: a stack can come in several batches,
        each with the part of the count since the last. Raises BadTrace.
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
                        yield folder.take()
                if self.progress and number % _PROGRESS_RECORDS == 0:
                    self.progress(min(data.bytes_read, data.bytes), data.bytes)
            if folder.counts:
                yield folder.take()
            if self.progress:
                self.progress(data.bytes, data.bytes)
        finally:
            data.close()
        gaps += data.gaps


class _Folder:
    """Stacks and how often they came."""

    def __init__(self, source: CallGraphs, data: PerfData) -> None:
        self.processes = Processes()
        self.counts: dict[tuple[int, str | None, int, str], int] = {}
        self._source = source
        self._data = data
        self._text = 0
        self._kernel: dict[int, str] = {}
        self._user: dict[object, str] = {}
        self._chains: dict[tuple[int, int, bytes], str] = {}

    @property
    def full(self) -> bool:
        """Whether what is held is to be handed on."""
        return self._text >= _MOST_TEXT

    def add(self, record: Record) -> None:
        """Count a sample."""
        layout, data = record.layout, record.data
        assert layout is not None
        pid, tid = struct.unpack_from("<II", data, layout.pid)
        if pid in self._source.leave_out:
            return
        length = int.from_bytes(data[layout.chain : layout.chain + 8], "little")
        start = layout.chain + 8
        chain = data[start : start + 8 * min(length, (len(data) - start) // 8)]
        seen = (pid, self.processes.state(pid), chain)
        stack = self._chains.get(seen)
        if stack is None:
            stack = self._folded(pid, chain)
            if len(self._chains) >= _MOST_CHAINS:
                self._chains.clear()
            self._chains[seen] = stack
        key = (record.event, self.processes.comm(tid), pid, stack)
        before = self.counts.get(key)
        if before is None:
            self._text += len(stack) + 64
        self.counts[key] = (before or 0) + 1

    def _folded(self, pid: int, chain: bytes) -> str:
        frames: list[str] = []
        user: list[int] = []
        in_kernel = True
        for (address,) in struct.iter_unpack("<Q", chain):
            if address >= _CONTEXTS:
                in_kernel = in_kernel and address != _USER
            elif in_kernel and address >= _KERNEL_HALF:
                frame = self._kernel_frame(address)
                if frames or not frame.startswith(_PLUMBING):
                    frames.append(frame)
            else:
                in_kernel = False
                user.append(min(address, _KERNEL_HALF - 1))
        frames += self._user_frames(pid, user)
        if len(frames) > MAX_DEPTH:
            frames[MAX_DEPTH:] = [TRUNCATED]
        return ";".join(reversed(frames)) or UNKNOWN

    def _kernel_frame(self, address: int) -> str:
        name = self._kernel.get(address)
        if name is None:
            name = _escaped(self._source.kernel.at(address) or UNKNOWN) + KERNEL
            if len(self._kernel) >= _MOST_ADDRESSES:
                self._kernel.clear()
            self._kernel[address] = name
        return name

    def _user_frames(self, pid: int, addresses: Sequence[int]) -> list[str]:
        if not addresses:
            return []
        names = []
        for address, place in zip(addresses, self.processes.places(pid, addresses), strict=True):
            if place is None:
                names.append(UNKNOWN)
                continue
            file, offset = place
            # Where there is no file, the code is the process's own, by a JIT.
            key = (file, offset) if file.is_file else (pid, self.processes.state(pid), address)
            name = self._user.get(key)
            if name is None:
                name = self._named(Place(file, offset, pid, address))
                if len(self._user) >= _MOST_ADDRESSES:
                    self._user.clear()
                self._user[key] = name
            names.append(name)
        return names

    def _named(self, place: Place) -> str:
        # The kernel's own names of mappings, as [vdso], are in brackets already.
        file = PurePosixPath(place.file.path).name.strip("[]") or "unknown"
        name = _escaped(self._source.resolve(place) or f"[{file}]")
        return name[: -len(KERNEL)] + "\\x5f[k]" if name.endswith(KERNEL) else name

    def take(self) -> pa.RecordBatch:
        """What was counted since the last call."""
        names = self._data.events
        schema = TABLE.arrow_schema()
        counts, self.counts, self._text = self.counts, {}, 0

        def text(values: list[str | None]) -> pa.Array:
            return pa.array(values, pa.string()).dictionary_encode()

        return pa.RecordBatch.from_arrays(
            [
                text([names[event] or "unknown" for event, _, _, _ in counts]),
                text([comm for _, comm, _, _ in counts]),
                pa.array([pid if pid < _PID_END else None for _, _, pid, _ in counts], pa.int32()),
                text([stack for _, _, _, stack in counts]),
                pa.array(counts.values(), pa.int64()),
            ],
            schema=schema,
        )


def _escaped(name: str) -> str:
    """A name that cannot end its frame, or its line."""
    return "".join(
        c if c.isprintable() and c not in ";\\" else f"\\x{ord(c):02x}" for c in name[:_MOST_NAME]
    )
