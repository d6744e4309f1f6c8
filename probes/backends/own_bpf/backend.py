"""The programs of a recording, their filter and their sources."""

from __future__ import annotations

import contextlib
import mmap
import os
from collections.abc import Callable, Iterable
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np

from tracer.probes.backends.drain import WAKE_PERCENT
from tracer.probes.backends.event_format import EventFormat, parse
from tracer.probes.backends.own_bpf import marks, programs
from tracer.probes.backends.own_bpf.btf import TYPEDEF, Types
from tracer.probes.backends.own_bpf.kernel import (
    RAW_TRACEPOINT,
    TRACING,
    attach_raw,
    load,
    make_array,
    map_array,
    misses,
    need_compiled_programs,
)
from tracer.probes.backends.own_bpf.programs import OPEN, STATE, Memory
from tracer.probes.backends.own_bpf.records import BLOCK
from tracer.probes.backends.own_bpf.ring import RecordRing
from tracer.probes.backends.own_bpf.wake import Wakers
from tracer.probes.errors import FeatureMissing, TracerError
from tracer.probes.kernel import tracefs
from tracer.probes.limits import PID_LIMIT
from tracer.probes.schema import Feed, Probe, Scope

ENTER, EXIT = "raw_syscalls:sys_enter", "raw_syscalls:sys_exit"
USER_FAULT, KERNEL_FAULT = "exceptions:page_fault_user", "exceptions:page_fault_kernel"
SIGNAL = "signal:signal_generate"
_FAULT_FIELDS = {"address": (8, 8), "ip": (16, 8), "error_code": (24, 8)}
_FIELDS = {
    ENTER: {"id": (8, 8), "args": (16, 48)},
    EXIT: {"id": (8, 8), "ret": (16, 8)},
    USER_FAULT: _FAULT_FIELDS,
    KERNEL_FAULT: _FAULT_FIELDS,
    SIGNAL: {
        "sig": (8, 4),
        "errno": (12, 4),
        "code": (16, 4),
        "comm": (20, 16),
        "pid": (36, 4),
        "group": (40, 4),
        "result": (44, 4),
    },
}
"""The events that programs can record: offsets and sizes of the fields, as programs write them."""
_NEW, _EXIT, _EXEC = "task_newtask", "sched_process_exit", "sched_process_exec"


class OwnPrograms:
    """Loaded programs that record events of some threads.

    It is also their `Filter`, for scope `target`. They record nothing until it is started.
    """

    def __init__(
        self, raw: Path, kib: int, cpus: list[int], everybody: bool, probes: Iterable[Probe]
    ) -> None:
        """Loads and attaches the programs of the probes' tracepoints. `probes` are recordable.

        `kib` is the ring size in KiB per CPU, rounded down to a power of two. With `everybody`,
        the events of all threads are recorded but those of the recorder.

        Raises PermissionMissing or FeatureMissing.
        """
        need_compiled_programs()
        self.formats = _formats(event for probe in probes for event in _tracepoints(probe))
        self.sources: list[RecordRing] = []
        self._everybody = everybody
        self._open_fds: list[int] = []
        self._counted: list[int] = []
        """Programs whose misses are lost events."""
        self._missed_before = 0
        self._maps: list[mmap.mmap] = []
        self._wakers: Wakers | None = None
        size = max(mmap.PAGESIZE, BLOCK, 1 << max(0, (kib << 10).bit_length() - 1))
        try:
            self._wakers = Wakers(cpus)
            self._memory = self._arrays(size, 1 + max(cpus), self._wakers.array)
            self._threads = self._mapped(self._memory.threads, PID_LIMIT)
            states = self._mapped(self._memory.states, _whole_pages(self._memory.cpus * STATE))
            self._states = np.frombuffer(states, np.uint64, self._memory.cpus * STATE // 8)
            self._states = self._states.reshape(self._memory.cpus, STATE // 8)
            if everybody:
                self._threads[:] = bytes([marks.FOLLOWED]) * PID_LIMIT
            self._attach()
            for cpu in cpus:
                missed = self._missed if cpu == cpus[0] else _none
                self.sources.append(self._source(raw, cpu, self._wakers.events[cpu], missed))
        except BaseException:
            self.discard()
            raise

    def _source(self, raw: Path, cpu: int, wakes: int, missed: Callable[[], int]) -> RecordRing:
        size = self._memory.ring_bytes
        ring = self._mapped(self._memory.rings, size, cpu * size)
        path = raw / f"programs-{Scope.TARGET.value}-cpu{cpu}.raw"
        return RecordRing(cpu, path, ring, self._states[cpu], wakes, missed)

    def _arrays(self, size: int, cpus: int, wakers: int) -> Memory:
        threads = self._kept(make_array(PID_LIMIT, 1))
        states = self._kept(make_array(cpus * STATE, 1))
        rings = self._kept(make_array(BLOCK, cpus * size // BLOCK))
        return Memory(threads, states, rings, cpus, size, wakers, size * WAKE_PERCENT // 100)

    def _kept(self, fd: int) -> int:
        self._open_fds.append(fd)
        return fd

    def _mapped(self, fd: int, size: int, offset: int = 0) -> mmap.mmap:
        self._maps.append(map_array(fd, size, offset))
        return self._maps[-1]

    def _attach(self) -> None:
        types = Types()
        tid_at = types.offset("task_struct", "pid")
        threads = self._memory.threads
        if not self._everybody:
            self._load(types, _NEW, marks.made(threads, tid_at))
            self._load(types, _EXIT, marks.ended(threads, tid_at))
            self._load(types, _EXEC, marks.executed(threads, tid_at))
        for event, text in self.formats.items():
            code = _program(event, self._memory, parse(event, text).id, types)
            self._counted.append(self._load(types, event.partition(":")[2], code))

    def _load(self, types: Types, tracepoint: str, code: bytes) -> int:
        type_id = types.number(f"btf_trace_{tracepoint}", TYPEDEF)
        program = self._kept(load(TRACING, code, b"tracer", RAW_TRACEPOINT, type_id))
        self._kept(attach_raw(program))
        return program

    def _missed(self) -> int:
        """Returns the events since the start that no program ran for.

        At most so many are the targets'.
        """
        return sum(misses(program) for program in self._counted) - self._missed_before

    def set_option(self, option: str, on: bool) -> bool:
        """Returns True only to switch event-fork on: the programs always follow children."""
        return option == "event-fork" and on

    def set_pids(self, tids: Iterable[int]) -> None:
        """Admits the events of these threads."""
        self.add_pids(tids)

    def add_pids(self, tids: Iterable[int]) -> None:
        """Adds threads to the set that `set_pids` made."""
        for tid in tids:
            self._threads[tid] = marks.FOLLOWED

    def leave_out(self, tids: Iterable[int]) -> None:
        """Excludes the events of these threads."""
        for tid in tids:
            self._threads[tid] = marks.NOT_FOLLOWED

    def without(self, tids: Iterable[int]) -> set[int]:
        """Returns the threads among `tids` that are neither in the set nor children of it."""
        return {tid for tid in tids if self._threads[tid] != marks.FOLLOWED}

    def start(self) -> None:
        """Starts to record events."""
        self._missed_before += self._missed()
        self._states[:, OPEN // 8] = 1

    def stop(self) -> None:
        """Stops recording events."""
        self._states[:, OPEN // 8] = 0

    def close(self) -> None:
        """Detaches and unloads the programs. The sources are closed first."""
        for fd in reversed(self._open_fds):
            os.close(fd)
        self._open_fds, self._counted = [], []
        self._states = np.empty((0, STATE // 8), np.uint64)
        for memory in self._maps:
            with contextlib.suppress(BufferError):  # unmapped with the last array that shows it
                memory.close()
        self._maps = []
        if self._wakers is not None:
            self._wakers.close()
            self._wakers = None

    def discard(self) -> None:
        """Closes everything and removes the files of the sources."""
        for source in self.sources:
            source.close()
            source.path.unlink(missing_ok=True)
        self.close()


def why_not(probes: Iterable[Probe]) -> TracerError | None:
    """Loads the programs of the probes that programs can record, and unloads them.

    Returns the error that prevents it.
    """
    try:
        cpus = [min(os.sched_getaffinity(0))]
        with TemporaryDirectory() as raw:
            OwnPrograms(Path(raw), 0, cpus, False, recordable(probes)).discard()
    except TracerError as error:
        return error
    except OSError as error:
        return FeatureMissing(f"no file for them can be made: {error.strerror}", "set TMPDIR")
    return None


def recordable(probes: Iterable[Probe]) -> list[Probe]:
    """Returns the probes of which programs can record all tracepoints, if this kernel has them."""
    return [
        probe
        for probe in probes
        if (events := _tracepoints(probe))
        and all(event in _FIELDS and _format_file(event).exists() for event in events)
    ]


def _tracepoints(probe: Probe) -> list[str]:
    return [event.name for event in probe.events if event.feed is Feed.TRACEPOINT]


def _program(event: str, memory: Memory, number: int, types: Types) -> bytes:
    """Returns the program that records an event, whose id is `number`."""
    if event == SIGNAL:
        return programs.signal(memory, number, programs.signal_types(types))
    made = {ENTER: programs.entry, EXIT: programs.exit_}.get(event, programs.fault)
    return made(memory, number, programs.registers(types))


def _formats(events: Iterable[str]) -> dict[str, str]:
    """Returns the text of the events' formats. Raises FeatureMissing if they are others."""
    texts = {event: _format_file(event).read_text() for event in events}
    for event, text in texts.items():
        if not _fits(parse(event, text), _FIELDS[event]):
            raise FeatureMissing(
                f"the fields of {event} are not the usual ones", "use --backend ftrace"
            )
    return texts


def _format_file(event: str) -> Path:
    return tracefs(writable=False) / "events" / event.replace(":", "/") / "format"


def _fits(parsed: EventFormat, fields: dict[str, tuple[int, int]]) -> bool:
    known = parsed.fields
    return all(
        name in known and (known[name].offset, known[name].size) == place
        for name, place in fields.items()
    )


def _whole_pages(size: int) -> int:
    return -(-size // mmap.PAGESIZE) * mmap.PAGESIZE


def _none() -> int:
    return 0
