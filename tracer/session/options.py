"""The options, the progress and the outcome of a recording."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from tracer.probes.backends.choice import AUTO
from tracer.probes.errors import TracerError
from tracer.store.manifest import Manifest
from tracer.targets import Target
from tracer.targets.engines import AUTO as ENGINES_AUTO


@dataclass
class Options:
    """The options of `tracer record`."""

    output: Path
    pids: str | None = None
    containers: list[str] = field(default_factory=list)
    engine: str = ENGINES_AUTO
    """The engine of the containers (`tracer.targets.engines.ABOUT`)."""
    wait: bool = False
    """Awaits containers that do not run yet."""
    daemon: bool = False
    docker_cli: int | None = None
    """A process that runs `docker`; it and its children count for the daemon."""
    cgroups: list[str] = field(default_factory=list)
    machine: bool = False
    command: list[str] = field(default_factory=list)
    probes: list[str] = field(default_factory=lambda: ["default"])
    """Names of probes, or of several (`tracer.probes.catalogue.SETS`)."""
    needs_events: bool = False
    """Refuses to record marks and samples alone if this user may record no events."""
    duration_s: float | None = None
    linger_s: float = 0.0
    """Time to go on after the command, or every target, has ended."""
    buffer_kib: int | None = None
    max_bytes: int | None = None
    force: bool = False
    backend: str = AUTO
    summary: bool = False
    """Counts events in the kernel instead of recording them."""
    perf_stat: bool = False
    callgraphs: list[str] = field(default_factory=list)
    stacks: bool = False
    """Looks at Python stacks of the targets' threads; records kernel stacks of their sleeps."""
    auto_phases: bool = True
    """Makes PyTorch mark its phases in a recorded command."""
    cuda_sync: bool = False
    """Makes automatic marks synchronize with the GPU at both ends of a computation."""
    sample_hz: float = 1.0
    """Samples per second; 0: no samples."""
    residency: list[Path] = field(default_factory=list)
    """Folders; the share of their files in the page cache is sampled."""
    baseload: bool = False
    """Records no target, only samples of the idle machine."""


@dataclass
class Status:
    """The state of a recording, for a progress display."""

    elapsed_s: float
    bytes: int


class Listener:
    """A receiver of a recording's progress. This base class shows nothing."""

    def without_events(self, why: TracerError) -> None:
        """This user may record no kernel events, so the trace will have none."""

    def without_stacks(self, kind: str, why: TracerError) -> None:
        """Stacks of this kind are wanted, but cannot be recorded."""

    def without_names(self, why: TracerError) -> None:
        """Call graphs are recorded, but the kernel's functions have no names in them."""

    def started(self, targets: list[Target]) -> None:
        """Events are recorded from now on."""

    def tick(self, status: Status) -> None:
        """Some time has passed."""

    def stopping(self, why: str) -> None:
        """The capture has ended."""

    def decoding(self, done: int, pages: int) -> None:
        """`done` of `pages` pages have been decoded."""


@dataclass
class Outcome:
    """The result of a recording."""

    folder: Path
    manifest: Manifest
    status: int
    """The command's exit status if it ended by itself, else 0."""
