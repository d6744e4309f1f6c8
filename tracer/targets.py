"""What to trace: processes by their pid, a command, or the whole machine."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from pathlib import Path

import psutil

from probes.errors import PermissionMissing, TargetGone, UsageError
from probes.kernel import process_alive, process_start_time
from tracer.store.manifest import TargetFacts


@dataclass
class Target:
    """One target: a process and all its descendants."""

    name: str
    kind: str
    """pid, command or machine."""
    pid: int
    start_time: int | None
    role: str = "target"
    command: list[str] = field(default_factory=list)

    @property
    def alive(self) -> bool:
        """Whether that very process still runs."""
        return process_alive(self.pid, self.start_time)

    def describe(self) -> TargetFacts:
        """For the manifest."""
        return {
            "name": _text(self.name),
            "role": self.role,
            "kind": self.kind,
            "pid": self.pid,
            "command": [_text(argument) for argument in self.command],
        }


def _text(name: str) -> str:
    """A name of the file system as text: bytes that are no UTF-8 become question marks."""
    return name.encode("utf-8", "replace").decode()


def from_pids(text: str) -> list[Target]:
    """Targets from `-p PID,PID`. Raises UsageError or TargetGone."""
    targets: dict[int, Target] = {}
    for part in text.split(","):
        digits = part.strip()
        if not digits.isascii() or not digits.isdigit() or not 0 < int(digits) < 1 << 31:
            raise UsageError(f"-p wants process ids, and {part.strip()!r} is none", "e.g. -p 1234")
        pid = int(digits)
        if pid == os.getpid():
            raise UsageError("a recorder cannot trace itself", "give another process's pid")
        start = process_start_time(pid)
        if start is None or not process_alive(pid, start):
            raise TargetGone(f"there is no process {pid}", "find it: pgrep -a python")
        process = psutil.Process(pid)
        try:
            command = process.cmdline()
            name = process.name()
        except psutil.NoSuchProcess:
            raise TargetGone(f"process {pid} has just ended", "find it: pgrep -a python") from None
        except psutil.AccessDenied:
            raise PermissionMissing(f"process {pid} may not be looked at", "run as root") from None
        targets[pid] = Target(name, "pid", pid, start, command=command)
    return list(targets.values())


def from_command(command: list[str], pid: int) -> Target:
    """The target of a launched command."""
    return Target(
        Path(command[0]).name,
        "command",
        pid,
        process_start_time(pid),
        command=command,
    )


def machine() -> Target:
    """Every process of the machine, as one target."""
    return Target("machine", "machine", 0, None)


def named_apart(targets: list[Target]) -> list[Target]:
    """The same targets; those that share a name get their pid into it."""
    names = [target.name for target in targets]
    for target in targets:
        if names.count(target.name) > 1:
            target.name = f"{target.name}-{target.pid}"
    return targets


def processes_of(target: Target) -> list[int]:
    """A target's process and all its descendants, now; none where it is gone."""
    try:
        children = psutil.Process(target.pid).children(recursive=True)
    except psutil.NoSuchProcess:
        return []
    return [target.pid, *(child.pid for child in children)]


def processes_with_memory(targets: list[Target]) -> list[int]:
    """Processes whose address spaces a recording begins with: a command's come with its exec."""
    if any(target.kind == "machine" for target in targets):
        return psutil.pids()
    return [p for t in targets if t.kind != "command" for p in processes_of(t)]


def threads_of(targets: list[Target]) -> set[int]:
    """Every thread of the targets and of all their descendants, now."""
    tids: set[int] = set()
    for target in targets:
        if target.kind == "machine":
            continue
        for pid in processes_of(target):
            try:
                tids.update(int(tid) for tid in os.listdir(f"/proc/{pid}/task"))
            except (FileNotFoundError, ProcessLookupError):
                continue
    return tids
