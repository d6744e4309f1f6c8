"""The eBPF backend: programs on tracepoints that filter by thread, and one ring per scope."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from pathlib import Path

from tracer.probes.backends.backend import Filter
from tracer.probes.backends.ebpf.programs import Programs
from tracer.probes.backends.ebpf.ring import BpfRing
from tracer.probes.schema import Probe, Scope


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
        self.programs = Programs(probes, whole, everybody, summed_up)
        self.formats = self.programs.formats
        self.missing = self.programs.missing
        self.layout: dict[str, str] = {}
        self.filters: dict[Scope, Filter] = {
            scope: ProgramFilter(self.programs, scope) for scope in Scope
        }
        self.sources: list[BpfRing] = []
        try:
            for scope in Scope:
                ring = self.programs.ring(scope, raw / f"ebpf-{scope.value}.raw")
                self.sources.append(ring)
        except BaseException:
            for ring in self.sources:
                ring.close()
            self.programs.close()
            raise


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
