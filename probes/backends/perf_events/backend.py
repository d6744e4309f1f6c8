"""perf events: tracepoints of every process, a ring a CPU and scope.

perf can tell processes apart only one by one and CPU by CPU, so that every process is recorded,
and who belongs to no target is left out when tables are made. Needs no place to write to but its
rings: tracefs is read for ids and formats alone. The kernel stacks that follow switches are their
samples' call chains; a filter has the kernel make none for threads that could go on.
"""

from __future__ import annotations

import mmap
import os
from collections.abc import Iterable, Mapping
from pathlib import Path

from tracer.probes.backends.backend import Filter, available
from tracer.probes.backends.event_format import EventFormat, parse
from tracer.probes.backends.kernel_stacks import STATE, asleep, note_missing, stack_events
from tracer.probes.backends.perf_events import records
from tracer.probes.backends.perf_events.tracepoints import (
    Sampled,
    TracepointRing,
    open_sampled,
    split,
)
from tracer.probes.errors import TracerError
from tracer.probes.kernel import tracefs
from tracer.probes.schema import Probe, Scope


class PerfBackend:
    """A `Backend` that needs nothing but to be allowed."""

    wide = True

    def __init__(
        self,
        raw: Path,
        probes: list[Probe],
        kib: Mapping[Scope, int],
        cpus: list[int],
    ) -> None:
        """Open the rings, switched off. PermissionMissing or FeatureMissing."""
        self.formats: dict[str, str] = {}
        self.missing: dict[str, list[str]] = {}
        self.layout: dict[str, str] = {}
        self.sources: list[TracepointRing] = []
        self._folder = tracefs(writable=False) / "events"
        sampled: dict[Scope, list[Sampled]] = {scope: [] for scope in Scope}
        for probe in probes:
            with_stacks = {event.stack_of for event in stack_events(probe)}
            for event in available(probe, lambda name: self._format(name).exists(), self.missing):
                self.formats[event.name] = self._format(event.name).read_text()
                parsed = parse(event.name, self.formats[event.name])
                parts: tuple[Sampled, ...] = (Sampled(parsed.id, bool(event.threads)),)
                if event.name in with_stacks and (found := self._with_stacks(parsed, cpus)):
                    parts = found
                    self.formats[records.STACK] = records.format_text(records.STACK)
                sampled[probe.scope] += parts
        note_missing(probes, self.missing, lambda event: event.name in self.formats)
        rings: dict[Scope, list[TracepointRing]] = {scope: [] for scope in Scope}
        try:
            for scope in Scope:
                # A power of two.
                size = max(mmap.PAGESIZE, 1 << ((kib[scope] << 10).bit_length() - 1))
                for cpu in cpus if sampled[scope] else ():
                    path = raw / f"perf-{scope.value}-cpu{cpu}.raw"
                    ring = TracepointRing(cpu, path, size, sampled[scope])
                    rings[scope].append(ring)
                    self.sources.append(ring)
                    ring.open()
        except BaseException:
            for ring in self.sources:
                ring.close()
            raise
        self.filters: dict[Scope, Filter] = {
            scope: WideFilter(mine) for scope, mine in rings.items() if mine
        }

    def _with_stacks(self, switch: EventFormat, cpus: list[int]) -> tuple[Sampled, ...]:
        """Returns the switches with and without a stack; none if the kernel cannot tell them."""
        if not (states := asleep(switch)) or STATE not in switch.fields:
            return ()
        parts = split(switch.id, f"{STATE} & {states}", about_others=True)
        try:
            for part in parts:
                os.close(open_sampled(part, cpus[0], chains=True))
        except (OSError, TracerError):
            return ()
        return parts

    def _format(self, event: str) -> Path:
        return self._folder / event.replace(":", "/") / "format"


class WideFilter:
    """One scope of the rings: it lets everybody in."""

    def __init__(self, rings: list[TracepointRing]) -> None:
        self._rings = rings

    def set_option(self, option: str, on: bool) -> bool:
        """Children are always followed."""
        return option == "event-fork" and on

    def set_pids(self, tids: Iterable[int]) -> None:
        """Everybody is let in from the start."""

    def add_pids(self, tids: Iterable[int]) -> None:
        """Everybody is let in."""

    def leave_out(self, tids: Iterable[int]) -> None:
        """Excludes the events of these threads."""
        listed = list(tids)
        for ring in self._rings:
            ring.leave_out(listed)

    def without(self, tids: Iterable[int]) -> set[int]:
        """Nobody is left out but the recorder."""
        return set()

    def start(self) -> None:
        """Starts recording events."""
        for ring in self._rings:
            ring.start()

    def stop(self) -> None:
        """Stops recording events."""
        for ring in self._rings:
            ring.stop()

    def close(self) -> None:
        """The rings are closed as streams."""
