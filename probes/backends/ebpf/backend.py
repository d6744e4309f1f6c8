"""The eBPF backend: programs on tracepoints that filter by thread, and one ring per scope.

Ftrace records the events that may happen in an interrupt, because the kernel does not run their
program if the interrupt comes while another program runs on the CPU. Where ftrace cannot be used,
programs record them, and the events for which none ran are counted as lost.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace
from pathlib import Path

from tracer.probes.backends.backend import Filter, Together
from tracer.probes.backends.choice import FTRACE, why_not
from tracer.probes.backends.ebpf.programs import Programs
from tracer.probes.backends.ebpf.ring import BpfRing
from tracer.probes.backends.ftrace.backend import FtraceBackend
from tracer.probes.backends.ftrace.page_source import PageSource
from tracer.probes.schema import Probe, Scope

_SHARE_OF_INTERRUPTS = 4
"""Divisor of a scope's ring size. The result is the size of ftrace's buffers."""


class EbpfBackend:
    """A `Backend` whose programs follow child processes in the kernel."""

    wide = False

    def __init__(
        self,
        raw: Path,
        probes: list[Probe],
        kib: Mapping[Scope, int],
        cpus: list[int],
        everybody: bool,
        summed_up: Collection[str],
    ) -> None:
        """Loads the programs. They record nothing until the filters are started.

        `kib` is the ring size in KiB per CPU of each scope. `summed_up` are the names of probes
        whose events are counted in the kernel instead of recorded.
        """
        # One ring serves all CPUs.
        whole = {scope: size * len(cpus) for scope, size in kib.items()}
        by_ftrace = why_not(FTRACE) is None
        self.programs = Programs(probes, whole, everybody, summed_up, interrupts=not by_ftrace)
        self.formats = self.programs.formats
        self.missing = self.programs.missing
        self.layout: dict[str, str] = {}
        self.filters: dict[Scope, Filter] = {}
        self.sources: list[BpfRing | PageSource] = []
        try:
            for scope in Scope:
                self.sources.append(self.programs.ring(scope, raw / f"ebpf-{scope.value}.raw"))
                self.filters[scope] = ProgramFilter(self.programs, scope)
            if by_ftrace:
                less = {scope: max(1, size // _SHARE_OF_INTERRUPTS) for scope, size in kib.items()}
                self._add(FtraceBackend(raw, _in_interrupts(probes), less, cpus))
        except BaseException:
            for source in self.sources:
                source.close()
            self.programs.close()
            raise

    def _add(self, ftrace: FtraceBackend) -> None:
        """Adds the streams of events that ftrace records."""
        self.sources += ftrace.sources
        self.layout = ftrace.layout
        for scope, instance in ftrace.filters.items():
            self.filters[scope] = Together(self.filters[scope], instance)


def _in_interrupts(probes: Iterable[Probe]) -> list[Probe]:
    """Returns the probes that have events that may happen in an interrupt, with these alone."""
    found = []
    for probe in probes:
        if events := tuple(event for event in probe.events if event.interrupts):
            found.append(replace(probe, events=events, optional=True))
    return found


class ProgramFilter:
    """The filter of one scope of the programs."""

    def __init__(self, programs: Programs, scope: Scope) -> None:
        self._programs = programs
        self._scope = scope

    def set_option(self, option: str, on: bool) -> bool:
        """Returns True only to switch event-fork on: the programs always follow children."""
        return option == "event-fork" and on

    def set_pids(self, tids: Iterable[int]) -> None:
        """Admits the events of these threads."""
        self._programs.follow(tids)

    def add_pids(self, tids: Iterable[int]) -> None:
        """Adds threads to the set that `set_pids` made."""
        self._programs.follow(tids)

    def leave_out(self, tids: Iterable[int]) -> None:
        """Does nothing: the programs always exclude the recorder's threads."""

    def without(self, tids: Iterable[int]) -> set[int]:
        """Returns the threads among `tids` that are neither in the set nor children of it."""
        return self._programs.without(tids)

    def start(self) -> None:
        """Starts to record events."""
        self._programs.open(self._scope, True)

    def stop(self) -> None:
        """Stops recording events."""
        self._programs.open(self._scope, False)

    def close(self) -> None:
        """Unloads the programs of both scopes."""
        self._programs.close()
