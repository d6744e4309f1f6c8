"""The ftrace backend: one tracefs instance per scope, filtered by thread, with raw pages."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from tracer.probes.backends.backend import CLOCK, Filter, available
from tracer.probes.backends.drain import WAKE_PERCENT
from tracer.probes.backends.event_format import parse, parse_page
from tracer.probes.backends.ftrace.instance import Instance
from tracer.probes.backends.ftrace.page_source import PageSource
from tracer.probes.backends.kernel_stacks import STATE, asleep, note_missing, stack_events
from tracer.probes.schema import Probe, Scope


class FtraceBackend:
    """A `Backend` that follows child processes with the kernel's pid filter."""

    wide = False

    def __init__(
        self,
        raw: Path,
        probes: list[Probe],
        kib: Mapping[Scope, int],
        cpus: list[int],
    ) -> None:
        """Makes the instances and enables their events, with tracing off.

        `kib` is the buffer size in KiB per CPU of each scope.
        """
        self.filters: dict[Scope, Filter] = {}
        self.formats: dict[str, str] = {}
        self.missing: dict[str, list[str]] = {}
        self.layout: dict[str, str] = {}
        self.sources: list[PageSource] = []
        try:
            for scope in Scope:
                mine = [probe for probe in probes if probe.scope is scope]
                if mine:
                    instance = Instance(scope.value)
                    self.filters[scope] = instance
                    self._prepare(instance, mine, kib[scope])
                    self._open(raw, instance, scope, kib, cpus)
        except BaseException:
            for source in self.sources:
                source.close()
            for made in self.filters.values():
                made.close()
            raise

    def _prepare(self, instance: Instance, probes: list[Probe], kib: int) -> None:
        instance.stop()
        instance.set_clock(CLOCK)
        instance.set_buffer(kib)
        for probe in probes:
            for event in available(probe, instance.has_event, self.missing):
                self.formats[event.name] = instance.enable_event(event.name)
            for event in stack_events(probe):
                if (text := self.formats.get(event.stack_of)) and instance.has_event(event.name):
                    states = asleep(parse(event.stack_of, text))
                    if states and instance.add_stacks(event.stack_of, f"{STATE} & {states}"):
                        self.formats[event.name] = instance.format_of(event.name)
        note_missing(probes, self.missing, lambda event: event.name in self.formats)

    def _open(
        self,
        raw: Path,
        instance: Instance,
        scope: Scope,
        kib: Mapping[Scope, int],
        cpus: list[int],
    ) -> None:
        self.layout = {
            header: instance.read(f"events/{header}") for header in ("header_page", "header_event")
        }
        page_bytes = parse_page(self.layout["header_page"]).page_bytes
        wakes = instance.wake_reader_at(WAKE_PERCENT)
        capacity = kib[scope] << 10
        for cpu in cpus:
            path = raw / f"ftrace-{scope.value}-cpu{cpu}.raw"
            source = PageSource(instance, cpu, path, page_bytes, capacity, wakes)
            self.sources.append(source)
            source.open()
