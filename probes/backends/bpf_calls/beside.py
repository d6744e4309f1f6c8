"""Another backend beside the programs: they record the system calls, it records all else."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from tracer.probes.backends.backend import Backend, Filter, Together
from tracer.probes.backends.bpf_calls.backend import EVENTS, BpfCalls
from tracer.probes.backends.drain import Source
from tracer.probes.schema import Probe, Scope


class BesideCalls:
    """A `Backend` made of another one and of the programs for system calls."""

    def __init__(self, other: Backend, calls: BpfCalls) -> None:
        """Joins them. `other` was made without the events of system calls."""
        self.wide = other.wide
        self.layout = other.layout
        self.missing = other.missing
        self.formats = {**other.formats, **calls.formats}
        self.sources: Sequence[Source] = [*calls.sources, *other.sources]
        self.filters: dict[Scope, Filter] = dict(other.filters)
        its = self.filters.get(Scope.TARGET)
        self.filters[Scope.TARGET] = calls if its is None else Together(its, calls)


def has_calls(probes: Iterable[Probe]) -> bool:
    """Returns whether system calls are among the events of the probes."""
    return any(event.name in EVENTS for probe in probes for event in probe.events)


def without_calls(probes: Iterable[Probe]) -> list[Probe]:
    """Returns the probes with their other events; those that have others."""
    rest = [
        replace(probe, events=tuple(e for e in probe.events if e.name not in EVENTS))
        for probe in probes
    ]
    return [probe for probe in rest if probe.events]
