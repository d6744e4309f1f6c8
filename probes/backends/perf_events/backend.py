"""perf events: tracepoints of every process, a ring a CPU and scope.

perf can tell processes apart only one by one and CPU by CPU, so that every process is recorded,
and who belongs to no target is left out when tables are made. Needs no place to write to but its
rings: tracefs is read for ids and formats alone.
"""

from __future__ import annotations

import mmap
from collections.abc import Iterable, Mapping
from pathlib import Path

from tracer.probes.backends import event_format
from tracer.probes.backends.backend import Filter, available
from tracer.probes.backends.kernel_stacks import note_missing
from tracer.probes.backends.perf_events.tracepoints import TracepointRing
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
        ids: dict[Scope, list[int]] = {scope: [] for scope in Scope}
        about_others: set[int] = set()
        for probe in probes:
            for event in available(probe, lambda name: self._format(name).exists(), self.missing):
                self.formats[event.name] = self._format(event.name).read_text()
                parsed = event_format.parse(event.name, self.formats[event.name])
                ids[probe.scope].append(parsed.id)
                if event.threads:
                    about_others.add(parsed.id)
        # A ring would hold the stacks of all processes.
        note_missing(probes, self.missing, lambda _: False)
        rings: dict[Scope, list[TracepointRing]] = {scope: [] for scope in Scope}
        try:
            for scope in Scope:
                # A power of two.
                size = max(mmap.PAGESIZE, 1 << ((kib[scope] << 10).bit_length() - 1))
                for cpu in cpus if ids[scope] else ():
                    path = raw / f"perf-{scope.value}-cpu{cpu}.raw"
                    ring = TracepointRing(cpu, path, size, ids[scope], about_others)
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
