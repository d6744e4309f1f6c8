"""The kernel's side of a recording: two tracefs instances, their filters and their drain.

The instance of scope `target` sees the targets' threads alone, by the kernel's own pid filter,
which follows children. The instance of scope `machine` sees every context, since the write-back
that a target causes happens in kernel threads; the recorder's own threads are left out of it.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Collection, Iterable
from pathlib import Path

from probes.backends.choice import EBPF, PERF
from probes.backends.drain import WAKE_PERCENT, Drain
from probes.backends.ebpf.programs import Filter, Programs
from probes.backends.ebpf.ring import BpfRing
from probes.backends.event_format import parse_page
from probes.backends.ftrace.instance import Instance, ours, remove
from probes.backends.ftrace.page_source import PageSource
from probes.backends.perf_events.ring import Ring
from probes.backends.perf_events.rings import FaultRings
from probes.backends.perf_events.tracepoints import TracepointRing, Tracepoints, WideFilter
from probes.errors import FeatureMissing, TargetGone, TracerError
from probes.schema import Feed, Probe, Scope
from tracer.session.guardian import Guardian
from tracer.store.files import allow_open_files, give_to_user
from tracer.store.manifest import Ftrace, StreamFacts
from tracer.targets import Target, threads_of

CLOCK = "mono"

Stats = dict[str, dict[str, int]]
"""The kernel's own counters, by stream."""

_KIB_TARGET = 16 << 10
_KIB_MACHINE = 8 << 10
_KIB_FAULTS = 4 << 10
_MEMORY_SHARE = 16
"""No more than this part of memory goes into ring buffers by default."""
_SETTLE_ROUNDS = 20


def default_kib(scope: Scope, cpus: int, memory_bytes: int) -> int:
    """Size of one CPU's ring buffer at first: some 0.2 s of a high rate, as memory allows."""
    wanted = _KIB_TARGET if scope is Scope.TARGET else _KIB_MACHINE
    return min(wanted, _fair_kib(cpus, memory_bytes))


def _fair_kib(cpus: int, memory_bytes: int) -> int:
    """What the ring buffer of one CPU and scope may take without -b."""
    return max(256, memory_bytes // _MEMORY_SHARE // max(1, cpus) // 1024 // len(Scope))


class Capture:
    """Instances, streams and drain of one recording."""

    def __init__(
        self,
        raw: Path,
        probes: list[Probe],
        kib: int | None,
        cpus: list[int],
        backend: str = "ftrace",
        everybody: bool = False,
        summed_up: Collection[str] = (),
    ) -> None:
        """Make the instances and switch their events on, tracing nothing yet.

        `summed_up` are probes whose events BPF programs count instead of recording them.
        """
        self.raw = raw
        self.backend = backend
        self.instances: dict[Scope, Instance | Filter | WideFilter] = {}
        self.programs: Programs | None = None
        self.bpf_rings: list[BpfRing] = []
        self.tracepoint_rings: list[TracepointRing] = []
        self.pages: list[PageSource] = []
        self.rings: FaultRings | None = None
        self.formats: dict[str, str] = {}
        self.missing: dict[str, list[str]] = {}
        self.header_page = ""
        self.header_event = ""
        self.drain: Drain | None = None
        self._guardian: Guardian | None = None
        self._everybody = False
        # Of what the kernel counts, nobody's share can be taken out later.
        self.follows_makers = not summed_up
        memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
        allow_open_files(4 * (len(Scope) + 1) * len(cpus))
        try:
            sizes = {scope: kib or default_kib(scope, len(cpus), memory) for scope in Scope}
            if backend == EBPF:
                # One ring serves every CPU.
                whole = {scope: size * len(cpus) for scope, size in sizes.items()}
                self.programs = Programs(probes, whole, everybody, summed_up)
                self._use(self.programs)
            elif backend == PERF:
                self._use_perf(Tracepoints(raw, probes, sizes, cpus, give_to_user))
            else:
                for scope in Scope:
                    mine = [probe for probe in probes if probe.scope is scope]
                    if mine:
                        most = kib or _fair_kib(len(cpus), memory)
                        self._prepare(scope, mine, sizes[scope], most, cpus)
            if any(event.feed is Feed.PERF for probe in probes for event in probe.events):
                size = min(sizes[Scope.MACHINE], _KIB_FAULTS)
                self.rings = FaultRings(raw, cpus, size, give_to_user)
                self.formats |= self.rings.formats
                if self.rings.unavailable:
                    self.missing["page_faults"] = [self.rings.unavailable]
        except BaseException:
            self.close()
            raise

    def _use(self, programs: Programs) -> None:
        for scope in Scope:
            self.instances[scope] = Filter(programs, scope)
            ring = programs.ring(scope, self.raw / f"ebpf-{scope.value}.raw")
            self.bpf_rings.append(ring)
            give_to_user(ring.sink)
        self.formats |= programs.formats
        self.missing |= programs.missing

    def _use_perf(self, tracepoints: Tracepoints) -> None:
        self.tracepoint_rings = tracepoints.rings
        for scope in Scope:
            self.instances[scope] = WideFilter([r for r in tracepoints.rings if r.scope is scope])
        self.formats |= tracepoints.formats
        self.missing |= tracepoints.missing

    def _prepare(
        self, scope: Scope, probes: list[Probe], kib: int, most: int, cpus: list[int]
    ) -> None:
        instance = Instance(scope.value)
        self.instances[scope] = instance
        instance.stop()
        instance.set_clock(CLOCK)
        instance.set_buffer(kib)
        # Names come with the process events; the kernel need not keep a list of them.
        instance.set_option("record-cmd", False)
        for probe in probes:
            wanted = [event for event in probe.events if event.feed is Feed.TRACEPOINT]
            present = [event for event in wanted if instance.has_event(event.name)]
            if not present and not probe.optional:
                raise FeatureMissing(
                    f"this kernel has none of the events of probe {probe.name}",
                    "leave it out with -e, or see `tracer doctor`",
                )
            for event in present:
                self.formats[event.name] = instance.enable_event(event.name)
            # An older kernel's name for an event that is there is nothing missing.
            served = {event.label for event in present}
            absent = [event.name for event in wanted if event.label not in served]
            if absent:
                self.missing[probe.name] = absent
        self.header_page = instance.read("events/header_page")
        self.header_event = instance.read("events/header_event")
        page_bytes = parse_page(self.header_page).page_bytes
        wakes = instance.wake_reader_at(WAKE_PERCENT)
        for cpu in cpus:
            path = self.raw / f"ftrace-{scope.value}-cpu{cpu}.raw"
            source = PageSource(instance, cpu, path, page_bytes, kib << 10, most << 10, wakes)
            self.pages.append(source)
            source.open()
            give_to_user(source.sink)

    def follow(self, targets: list[Target]) -> None:
        """Trace these targets, their threads and children, and those that they will make."""
        instance = self.instances.get(Scope.TARGET)
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
        # A thread made between the look and the filter is found by looking again.
        for _ in range(_SETTLE_ROUNDS):
            new = threads_of(targets, self.follows_makers) - known
            if not new:
                return
            instance.add_pids(new)
            known |= new

    def join(self, tids: Iterable[int]) -> None:
        """Let in the events of these threads, too, and of what they make."""
        if Scope.TARGET in self.instances and not self._everybody:
            self.instances[Scope.TARGET].add_pids(tids)

    def not_followed(self, tids: Iterable[int]) -> set[int]:
        """Those of these threads whose events are not let in, now."""
        if Scope.TARGET not in self.instances or self._everybody:
            return set()
        return self.instances[Scope.TARGET].without(tids)

    def leave_out(self, tids: Iterable[int]) -> None:
        """Do not record these threads of the recorder."""
        for scope, instance in self.instances.items():
            wide = self.backend == PERF or self._everybody
            if scope is Scope.MACHINE or wide:
                with contextlib.suppress(FileNotFoundError):  # set_event_notrace_pid: kernel 5.9
                    instance.set_pids(tids, exclude=True)

    @property
    def guardian(self) -> int | None:
        """The process that outlives this one, if there is one."""
        return self._guardian.pid if self._guardian is not None else None

    def guard(self, forget: Callable[[], None] | None, rescue: Callable[[Stats], None]) -> None:
        """Have a process call `rescue`, with what `stop` returns, should this one be killed.

        It calls `forget` at once, to let go what it must not keep open. To be called before there
        are threads, and before others are handed descriptors of which this process keeps the
        other end. Where the process cannot be had, what the drain has not moved is lost with
        this one.
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

        recorder = os.getpid()
        self._guardian = Guardian(hold, save)

    def start_machine(self, limit_bytes: int | None, companions: Iterable[int] = ()) -> None:
        """Start the drain, then let in the events of scope `machine`, forks and exits among them.

        A list of threads taken after this and before `start_targets` misses none: a thread of a
        later event was either alive then or has its own fork in the trace. `companions` are
        processes that record for us, and are left out as the recorder is.
        """
        self.drain = Drain(self._sources, limit_bytes=limit_bytes)
        self.drain.start()
        self.leave_out([os.getpid(), *self.drain.tids, *companions])
        self.instances[Scope.MACHINE].start()
        if self.rings is not None:
            self.rings.start()

    def start_targets(self) -> None:
        """Let in the events of scope `target`."""
        if Scope.TARGET in self.instances:
            self.instances[Scope.TARGET].start()

    def stop(self) -> Stats:
        """Let no more events in, move what is left; returns the kernel's counters by stream."""
        self._let_no_more_in()
        if self.drain is not None:
            self.drain.finish()
        return self._stats()

    def _let_no_more_in(self) -> None:
        for instance in self.instances.values():
            instance.stop()
        if self.rings is not None:
            self.rings.stop()

    def _stats(self) -> Stats:
        return {source.path.stem: source.stats() for source in self._sources}

    @property
    def _sources(self) -> list[PageSource | Ring | BpfRing]:
        rings = self.rings.rings if self.rings is not None else []
        return [*self.pages, *self.bpf_rings, *self.tracepoint_rings, *rings]

    def describe(self) -> Ftrace:
        """For the manifest: what a decoder needs."""
        return {
            "header_page": self.header_page,
            "header_event": self.header_event,
            "formats": self.formats,
            "missing": self.missing,
            "streams": [_facts(source) for source in self._sources],
        }

    def close(self) -> None:
        """Close the streams and remove the instances."""
        if self._guardian is not None:
            self._guardian.dismiss()
        for source in self._sources:
            source.close()
        self.pages, self.bpf_rings, self.tracepoint_rings, self.rings = [], [], [], None
        instances, self.instances = self.instances, {}
        failure: TracerError | None = None
        for instance in instances.values():
            try:
                instance.close()
            except TracerError as error:
                failure = error
        if failure is not None:
            raise failure


def _facts(source: PageSource | Ring | BpfRing) -> StreamFacts:
    facts: StreamFacts = {
        "file": source.path.name,
        "stream": source.path.stem,
        "cpu": source.cpu,
    }
    if isinstance(source, PageSource) and source.stalls:
        facts["stalls"] = source.stalls
    if isinstance(source, BpfRing):
        facts["samples"] = "ebpf"
    if isinstance(source, Ring):
        facts["samples"] = source.event  # type: ignore[typeddict-item]
    return facts
