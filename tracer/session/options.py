"""What a recording is asked for, what it tells meanwhile, and what it came to."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from probes.backends.choice import AUTO
from probes.catalogue import PROBES
from probes.errors import ExitCode
from tracer.store.manifest import Manifest
from tracer.targets import Target


@dataclass
class Options:
    """What `tracer record` was asked for."""

    output: Path
    pids: str | None = None
    containers: list[str] = field(default_factory=list)
    daemon: bool = False
    cgroups: list[str] = field(default_factory=list)
    machine: bool = False
    command: list[str] = field(default_factory=list)
    probes: list[str] = field(default_factory=lambda: list(PROBES))
    duration_s: float | None = None
    buffer_kib: int | None = None
    max_bytes: int | None = None
    force: bool = False
    backend: str = AUTO
    summary: bool = False
    """Count in the kernel instead of recording each event."""
    perf_stat: bool = False
    callgraphs: list[str] = field(default_factory=list)
    auto_phases: bool = True
    """Have PyTorch mark its phases in a command that is recorded."""
    cuda_sync: bool = False
    """Have these wait for the GPU where a computation begins and ends."""
    sample_hz: float = 1.0
    """Samples a second; 0: none."""
    residency: list[Path] = field(default_factory=list)
    """Folders whose files' share of the page cache is sampled."""
    baseload: bool = False
    """Record no target: what the machine draws without one."""


@dataclass
class Status:
    """How the recording stands, for a progress display."""

    elapsed_s: float
    bytes: int


class Listener:
    """What wants to know how a recording goes. This one shows nothing."""

    def started(self, targets: list[Target]) -> None:
        """Events are let in from now on."""

    def tick(self, status: Status) -> None:
        """Some time has passed."""

    def stopping(self, why: str) -> None:
        """The capture is over."""

    def decoding(self, done: int, pages: int) -> None:
        """Part of the pages has been decoded."""


@dataclass
class Outcome:
    """What a recording came to."""

    folder: Path
    manifest: Manifest
    status: int
    """The command's own exit status where it ended by itself, else 0."""


def exit_status(outcome: Outcome, fail_on_loss: bool) -> int:
    """What `tracer record` exits with."""
    loss = outcome.manifest["loss"]
    if fail_on_loss and (loss["events"] or loss["windows"]):
        return int(ExitCode.EVENTS_LOST)
    return outcome.status
