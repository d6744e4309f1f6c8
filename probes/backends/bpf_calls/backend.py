"""The system calls of a recording: their programs, and the filter and the sources of these."""

from __future__ import annotations

import contextlib
import mmap
import os
from collections.abc import Callable, Iterable
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np

from tracer.probes.backends.bpf_calls import programs
from tracer.probes.backends.bpf_calls.btf import TYPEDEF, Types
from tracer.probes.backends.bpf_calls.kernel import (
    RAW_TRACEPOINT,
    TRACING,
    attach_raw,
    load,
    make_array,
    map_array,
    misses,
    need_compiled_programs,
)
from tracer.probes.backends.bpf_calls.programs import OPEN, STATE, Memory
from tracer.probes.backends.bpf_calls.records import BLOCK
from tracer.probes.backends.bpf_calls.ring import CallsRing
from tracer.probes.backends.bpf_calls.wake import Wakers
from tracer.probes.backends.drain import WAKE_PERCENT
from tracer.probes.backends.event_format import EventFormat, parse
from tracer.probes.errors import FeatureMissing, TracerError
from tracer.probes.kernel import tracefs
from tracer.probes.limits import PID_LIMIT
from tracer.probes.schema import Scope

ENTER, EXIT = "raw_syscalls:sys_enter", "raw_syscalls:sys_exit"
EVENTS = (ENTER, EXIT)
_FIELDS = {ENTER: {"id": (8, 8), "args": (16, 48)}, EXIT: {"id": (8, 8), "ret": (16, 8)}}
"""Offsets and sizes of the events' fields, as the programs write them."""
_FORK, _EXIT, _EXEC = "sched_process_fork", "sched_process_exit", "sched_process_exec"


class BpfCalls:
    """Loaded programs that record the system calls of some threads.

    It is also their `Filter`, for scope `target`. They record nothing until it is started.
    """

    def __init__(self, raw: Path, kib: int, cpus: list[int], everybody: bool) -> None:
        """Loads and attaches the programs.

        `kib` is the ring size in KiB per CPU, rounded down to a power of two. With `everybody`,
        the calls of all threads are recorded but those of the recorder.

        Raises PermissionMissing or FeatureMissing.
        """
        need_compiled_programs()
        self.formats = _formats()
        self.sources: list[CallsRing] = []
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
                self._threads[:] = b"\1" * PID_LIMIT
            self._attach()
            for cpu in cpus:
                missed = self._missed if cpu == cpus[0] else _none
                self.sources.append(self._source(raw, cpu, self._wakers.events[cpu], missed))
        except BaseException:
            self.discard()
            raise

    def _source(self, raw: Path, cpu: int, wakes: int, missed: Callable[[], int]) -> CallsRing:
        size = self._memory.ring_bytes
        ring = self._mapped(self._memory.rings, size, cpu * size)
        path = raw / f"calls-{Scope.TARGET.value}-cpu{cpu}.raw"
        return CallsRing(cpu, path, ring, self._states[cpu], wakes, missed)

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
        its = programs.registers(types)
        tid_at = types.offset("task_struct", "pid")
        number = {name: parse(name, text).id for name, text in self.formats.items()}
        memory = self._memory
        if not self._everybody:
            self._load(types, _FORK, programs.fork(memory.threads, tid_at))
            self._load(types, _EXIT, programs.ended(memory.threads, tid_at))
            self._load(types, _EXEC, programs.executed(memory.threads, tid_at))
        self._counted = [
            self._load(types, "sys_exit", programs.exit_(memory, number[EXIT], its)),
            self._load(types, "sys_enter", programs.entry(memory, number[ENTER], its)),
        ]

    def _load(self, types: Types, tracepoint: str, code: bytes) -> int:
        type_id = types.number(f"btf_trace_{tracepoint}", TYPEDEF)
        program = self._kept(load(TRACING, code, RAW_TRACEPOINT, type_id))
        self._kept(attach_raw(program))
        return program

    def _missed(self) -> int:
        """Returns the calls since the start that no program ran for: at most so many of targets."""
        return sum(misses(program) for program in self._counted) - self._missed_before

    def set_option(self, option: str, on: bool) -> bool:
        """Returns True only to switch event-fork on: the programs always follow children."""
        return option == "event-fork" and on

    def set_pids(self, tids: Iterable[int]) -> None:
        """Admits the calls of these threads."""
        self.add_pids(tids)

    def add_pids(self, tids: Iterable[int]) -> None:
        """Adds threads to the set that `set_pids` made."""
        for tid in tids:
            self._threads[tid] = 1

    def leave_out(self, tids: Iterable[int]) -> None:
        """Excludes the calls of these threads."""
        for tid in tids:
            self._threads[tid] = 0

    def without(self, tids: Iterable[int]) -> set[int]:
        """Returns the threads among `tids` that are neither in the set nor children of it."""
        return {tid for tid in tids if not self._threads[tid]}

    def start(self) -> None:
        """Starts to record calls."""
        self._missed_before += self._missed()
        self._states[:, OPEN // 8] = 1

    def stop(self) -> None:
        """Stops recording calls."""
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


def why_not() -> TracerError | None:
    """Loads the programs and unloads them; returns the error that prevents it."""
    try:
        with TemporaryDirectory() as raw:
            BpfCalls(Path(raw), 0, [min(os.sched_getaffinity(0))], everybody=False).discard()
    except TracerError as error:
        return error
    except OSError as error:
        return FeatureMissing(f"no file for them can be made: {error.strerror}", "set TMPDIR")
    return None


def _formats() -> dict[str, str]:
    """Returns the text of the events' formats. Raises FeatureMissing if they are others."""
    folder = tracefs(writable=False) / "events"
    texts = {}
    for event, fields in _FIELDS.items():
        path = folder / event.replace(":", "/") / "format"
        if not path.exists():
            raise FeatureMissing(f"this kernel has no event {event}", "use --backend ftrace")
        texts[event] = path.read_text()
        if not _fits(parse(event, texts[event]), fields):
            raise FeatureMissing(f"the fields of {event} are not the usual ones", "use ftrace")
    return texts


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
