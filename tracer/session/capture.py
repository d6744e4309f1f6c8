"""The kernel side of a recording: a backend, its filters and the drain.

Scope `target` records only events of the targets' threads, filtered in the kernel, with their
children. Scope `machine` records events of every thread, because kernel threads do the write-back
that a target causes. The recorder's own threads are excluded.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Collection, Iterable, Mapping
from pathlib import Path

import psutil

from tracer.probes.backends.backend import Backend, NoEvents, Together
from tracer.probes.backends.choice import EBPF, FTRACE, NONE, PERF
from tracer.probes.backends.drain import Drain, Source
from tracer.probes.backends.ebpf.backend import EbpfBackend
from tracer.probes.backends.ebpf.programs import Programs
from tracer.probes.backends.ftrace.backend import FtraceBackend
from tracer.probes.backends.ftrace.instance import ours, remove
from tracer.probes.backends.own_bpf.backend import OwnPrograms, recordable
from tracer.probes.backends.own_bpf.beside import BesideOwn
from tracer.probes.backends.perf_events.backend import PerfBackend
from tracer.probes.backends.perf_events.rings import FaultRings
from tracer.probes.backends.uprobes import events
from tracer.probes.backends.uprobes.backend import Uprobes
from tracer.probes.errors import FeatureMissing, TargetGone, TracerError, UsageError
from tracer.probes.events.page_faults import TRACEPOINTS
from tracer.probes.schema import Feed, Probe, Scope
from tracer.session.guardian import Guardian
from tracer.sizes import show_size
from tracer.store.files import allow_open_files
from tracer.store.manifest_parts import CaptureFacts, StreamFacts
from tracer.targets import Target, threads_of

Stats = dict[str, dict[str, int]]
"""The kernel's own counters, by stream."""

_KIB_TARGET = 16 << 10
_KIB_MACHINE = 8 << 10
_KIB_FAULTS = 4 << 10
_BUFFERS = len(Scope) + 2
"""Most buffers of a CPU: one of each scope, those of faults and of programs."""
_MEMORY_SHARE = 16
"""Divisor of memory: ring buffers take at most 1/16 of memory by default."""
_LARGE_BUFFERS = len(Scope) + 1
"""Buffers of a CPU of the size of a scope: one of each scope, and that of programs."""
_SETTLE_ROUNDS = 20


def default_kib(scope: Scope, cpus: int, memory_bytes: int) -> int:
    """Returns the default ring buffer per CPU in KiB: about 0.2 s at the highest rate.

    `cpus` is the number of CPUs that have a buffer: also those that the kernel makes or a program
    has for CPUs of lower numbers that are offline.
    """
    wanted = _KIB_TARGET if scope is Scope.TARGET else _KIB_MACHINE
    fair = memory_bytes // _MEMORY_SHARE // max(1, cpus) // 1024 // _LARGE_BUFFERS
    return max(256, min(wanted, fair))


def _require_memory(kib: int, buffers: int) -> None:
    """Raises UsageError if so many buffers take more than half of the available memory."""
    wanted, available = kib * 1024 * buffers, psutil.virtual_memory().available
    if wanted > available // 2:
        fair = max(4, available // 4 // max(1, buffers) // 1024)
        raise UsageError(
            f"--buffer {show_size(kib * 1024)} takes {show_size(wanted)} of memory for {buffers}"
            f" buffers, and {show_size(available)} are available",
            f"give {fair // 1024}M or less" if fair >= 1024 else f"give {fair}K or less",
        )


class Capture:
    """Backend, perf's rings for page faults, drain and guardian of one recording."""

    def __init__(
        self,
        raw: Path,
        probes: list[Probe],
        kib: int | None,
        cpus: list[int],
        backend: str = FTRACE,
        everybody: bool = False,
        summed_up: Collection[str] = (),
        libraries: Mapping[str, Collection[int]] | None = None,
        own_programs: bool = False,
    ) -> None:
        """Enables the events of `probes` without recording any yet.

        BPF programs count the events of the probes in `summed_up` instead of recording them.
        `libraries` are files to probe with uprobes, by probe. With `own_programs`, BPF programs
        of our own record the targets' system calls and page faults, if the kernel allows them
        (`no_programs`).
        """
        self.name = backend
        self.programs: Programs | None = None
        self.faults: FaultRings | None = None
        self.uprobes: Uprobes | None = None
        self.drain: Drain | None = None
        self.no_programs: TracerError | None = None
        """The reason for which the backend records all events, though programs should some."""
        self._guardian: Guardian | None = None
        self._everybody = False
        self._left_out: list[int] = []
        # Makers are not followed in a summary: their share could not be subtracted later.
        self.follows_makers = not summed_up
        its = recordable(probes) if own_programs else []
        others = [probe for probe in probes if probe not in its]
        memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
        if kib is not None:
            rings = 1 + max(cpus) if its else 0
            _require_memory(kib, len(cpus) * len({probe.scope for probe in others}) + rings)
        sizes = {scope: kib or default_kib(scope, 1 + max(cpus), memory) for scope in Scope}
        allow_open_files(4 * _BUFFERS * len(cpus))
        own = self._programs(raw, sizes, cpus, everybody, its) if its else None
        try:
            others = probes if own is None else others
            self._backend = self._made(raw, others, sizes, cpus, everybody, summed_up)
        except BaseException:
            if own is not None:
                own.discard()
            raise
        self.own_programs = [probe.name for probe in its] if own is not None else []
        """The probes whose events programs of our own record."""
        if own is not None:
            self._backend = BesideOwn(self._backend, own)
        self._filters = self._backend.filters
        self._sources = [*self._backend.sources]
        try:
            if any(event.feed is Feed.PERF for probe in probes for event in probe.events):
                size = min(sizes[Scope.MACHINE], _KIB_FAULTS)
                alone = not any(name in self._backend.formats for name in TRACEPOINTS)
                self.faults = FaultRings(raw, cpus, size, alone)
                self._sources += self.faults.rings
            if libraries:
                self._look_into(libraries, raw, cpus)
        except BaseException:
            self.close()
            raise

    def _programs(
        self,
        raw: Path,
        sizes: Mapping[Scope, int],
        cpus: list[int],
        everybody: bool,
        probes: list[Probe],
    ) -> OwnPrograms | None:
        """Returns the programs for `probes`; None if the kernel does not allow them."""
        try:
            return OwnPrograms(raw, sizes[Scope.TARGET], cpus, everybody, probes)
        except TracerError as error:
            self.no_programs = error
            return None

    def _made(
        self,
        raw: Path,
        probes: list[Probe],
        sizes: Mapping[Scope, int],
        cpus: list[int],
        everybody: bool,
        summed_up: Collection[str],
    ) -> Backend:
        """Returns the backend that was chosen, which is set up for the events of `probes`."""
        if self.name == EBPF:
            ebpf = EbpfBackend(raw, probes, sizes, cpus, everybody, summed_up)
            self.programs = ebpf.programs
            return ebpf
        if self.name == PERF:
            return PerfBackend(raw, probes, sizes, cpus)
        if self.name == NONE:
            return NoEvents(probes)
        return FtraceBackend(raw, probes, sizes, cpus)

    def _look_into(
        self, libraries: Mapping[str, Collection[int]], raw: Path, cpus: list[int]
    ) -> None:
        self.uprobes = Uprobes(raw, cpus, libraries)
        self._sources += self.uprobes.sources
        if self.uprobes.instance is not None:
            targets = self._filters.get(Scope.TARGET)
            looked_into = self.uprobes.instance
            both = looked_into if targets is None else Together(targets, looked_into)
            self._filters[Scope.TARGET] = both

    @property
    def sees_mappings(self) -> bool:
        """True if the memory mappings of processes are recorded."""
        return self.faults is not None and bool(self.faults.rings)

    def follow(self, targets: list[Target]) -> None:
        """Traces these targets, their threads and children, and the processes of their makers."""
        instance = self._filters.get(Scope.TARGET)
        if instance is None:
            return
        if any(target.kind == "machine" for target in targets):
            self._everybody = True
            return
        if not instance.set_option("event-fork", True):
            raise FeatureMissing(
                "this kernel's ftrace cannot follow children", "it needs option event-fork (4.10)"
            )
        known = threads_of(targets, self.follows_makers)
        if not known and not any(target.joined and target.alive for target in targets):
            raise TargetGone("every target has ended", "start it and record again")
        instance.set_pids(known)
        # Look again for threads made between the look and the filter.
        for _ in range(_SETTLE_ROUNDS):
            new = threads_of(targets, self.follows_makers) - known
            if not new:
                return
            instance.add_pids(new)
            known |= new

    def join(self, tids: Iterable[int]) -> None:
        """Also records the events of these threads and of their children."""
        if Scope.TARGET in self._filters and not self._everybody:
            self._filters[Scope.TARGET].add_pids(tids)

    def not_followed(self, tids: Iterable[int]) -> set[int]:
        """Returns those of these threads whose events are not recorded now."""
        if Scope.TARGET not in self._filters or self._everybody:
            return set()
        return self._filters[Scope.TARGET].without(tids)

    @property
    def follows(self) -> bool:
        """True if the kernel follows the targets' threads and their children, and no others."""
        wide = self._everybody or self._backend.wide
        return Scope.TARGET in self._filters and not wide

    def followed(self, tids: Iterable[int]) -> set[int]:
        """Returns those of these threads that are followed; none unless `follows`."""
        if not self.follows:
            return set()
        listed = set(tids)
        return listed - self._filters[Scope.TARGET].without(listed)

    def leave_out(self, tids: Collection[int]) -> None:
        """Excludes these threads of the recorder, too."""
        self._left_out = [*self._left_out, *tids]
        for scope, instance in self._filters.items():
            wide = self._backend.wide or self._everybody
            if scope is Scope.MACHINE or wide:
                instance.leave_out(self._left_out)

    @property
    def guardian(self) -> int | None:
        """The pid of the guardian; None if there is none."""
        return self._guardian.pid if self._guardian is not None else None

    def guard(self, forget: Callable[[], None] | None, rescue: Callable[[Stats], None]) -> None:
        """Starts a process that calls `rescue` with the result of `stop` if this one is killed.

        The process calls `forget` at once, to close descriptors that it must not keep. Call this
        before there are threads, and before others receive descriptors whose other end this
        process keeps. Without the guardian, the events that the drain has not moved are lost when
        this process is killed.
        """

        def hold() -> None:
            if forget is not None:
                forget()
            for source in self._sources:
                source.inherit()

        def save() -> None:
            self._guardian = None
            self._let_no_more_in()
            for source in self._sources:
                source.take_over()
                while source.move():
                    pass
                source.move_last()
            rescue(self._stats())
            self.close()
            for leftover in ours():
                if leftover.owner == recorder:
                    remove(leftover.path)
            for group in events.ours():
                if group.owner == recorder:
                    events.remove(group.name)

        recorder = os.getpid()
        self._guardian = Guardian(hold, save)

    def start_machine(self, limit_bytes: int | None, companions: Iterable[int] = ()) -> None:
        """Starts the drain, then records the events of scope `machine`, with forks and exits.

        A list of threads taken after this call and before `start_targets` misses no thread: the
        thread of a later event either lived then or has its own fork in the trace. `companions`
        are processes that record for us. They are excluded like the recorder.
        """
        self.drain = Drain(self._sources, limit_bytes=limit_bytes)
        self.drain.start()
        self.leave_out([os.getpid(), *self.drain.tids, *companions])
        if Scope.MACHINE in self._filters:
            self._filters[Scope.MACHINE].start()
        if self.faults is not None:
            self.faults.start()

    def start_targets(self) -> None:
        """Starts recording the events of scope `target`."""
        if Scope.TARGET in self._filters:
            self._filters[Scope.TARGET].start()

    def stop(self) -> Stats:
        """Stops the events, moves the rest. Returns the kernel's counters by stream."""
        self._let_no_more_in()
        if self.drain is not None:
            self.drain.finish()
        return self._stats()

    def _let_no_more_in(self) -> None:
        # The forks of threads are in scope `machine`: it ends last, so that all threads are known.
        for scope in (Scope.TARGET, Scope.MACHINE):
            if scope in self._filters:
                self._filters[scope].stop()
        if self.faults is not None:
            self.faults.stop()

    def _stats(self) -> Stats:
        return {source.path.stem: source.stats() for source in self._sources}

    def describe(self) -> CaptureFacts:
        """Returns the manifest's entry, as the decoder needs it."""
        missing = self._backend.missing
        formats = self._backend.formats
        if self.faults is not None:
            formats = {**formats, **self.faults.formats}
            if self.faults.unavailable:
                missing = {**missing, "page_faults": [self.faults.unavailable]}
        layout = self._backend.layout
        if self.uprobes is not None:
            formats = {**formats, **self.uprobes.formats}
            layout = layout or self.uprobes.layout
            missing = {**missing, **{p: [why] for p, why in self.uprobes.unavailable.items()}}
        return {
            "header_page": layout.get("header_page", ""),
            "header_event": layout.get("header_event", ""),
            "formats": formats,
            "missing": missing,
            "streams": [_facts(source) for source in self._sources],
        }

    def close(self) -> None:
        """Closes the streams and removes the tracefs instances."""
        if self._guardian is not None:
            self._guardian.dismiss()
        if self.drain is not None and self.drain.runs:  # an error came before `stop`
            with contextlib.suppress(OSError):  # another process has removed an instance
                self._let_no_more_in()
            self.drain.finish()
        for source in self._sources:
            source.close()
        filters, self._filters = self._filters, {}
        failure: TracerError | None = None
        for instance in filters.values():
            try:
                instance.close()
            except TracerError as error:
                failure = error
        if self.uprobes is not None:
            self.uprobes.close()
        if failure is not None:
            raise failure


def _facts(source: Source) -> StreamFacts:
    facts: StreamFacts = {
        "file": source.path.name,
        "stream": source.path.stem,
        "cpu": source.cpu,
    }
    facts.update(source.describe())  # type: ignore[typeddict-item]
    return facts
