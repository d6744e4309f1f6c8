"""eBPF: programs on tracepoints, which filter by thread, and a ring a scope."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from pathlib import Path

from probes.backends.backend import Filter
from probes.backends.ebpf.programs import Programs
from probes.backends.ebpf.ring import BpfRing
from probes.schema import Probe, Scope


class EbpfBackend:
    """A `Backend`: children are followed by the programs themselves."""

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
        """Load the programs, letting nothing in yet.

        `summed_up` are probes whose events are counted in the kernel instead of recorded.
        """
        # One ring serves every CPU.
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
    """One scope of the programs."""

    def __init__(self, programs: Programs, scope: Scope) -> None:
        self._programs = programs
        self._scope = scope

    def set_option(self, option: str, on: bool) -> bool:
        """Children are always followed."""
        return option == "event-fork" and on

    def set_pids(self, tids: Iterable[int]) -> None:
        """Let in these threads."""
        self._programs.follow(tids)

    def add_pids(self, tids: Iterable[int]) -> None:
        """Add threads to what `set_pids` set."""
        self._programs.follow(tids)

    def leave_out(self, tids: Iterable[int]) -> None:
        """The recorder's own are left out from the start."""

    def without(self, tids: Iterable[int]) -> set[int]:
        """Those of these threads that are not let in, neither by `set_pids` nor as children."""
        return self._programs.without(tids)

    def start(self) -> None:
        """Let events in."""
        self._programs.open(self._scope, True)

    def stop(self) -> None:
        """Let no more events in."""
        self._programs.open(self._scope, False)

    def close(self) -> None:
        """Unload the programs, of both scopes."""
        self._programs.close()
