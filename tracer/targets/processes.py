"""Targets given by pid, a launched command, and the whole machine."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from pathlib import Path

import psutil

from tracer.probes.cgroups import BY_DESCENT
from tracer.probes.errors import PermissionMissing, TargetGone, UsageError
from tracer.probes.kernel import process_alive, process_start_time
from tracer.probes.proc import command_line, name_of
from tracer.targets.target import Target

_MOST_COMMANDS = 64 << 10
"""Most bytes of the targets' command lines together: a manifest that is too large is refused."""
_CUT_NAME, _WHOLE_NAME = 15, 255
"""Most bytes of a process's name in the kernel (TASK_COMM_LEN), and of a file's (NAME_MAX)."""


class ProcessTarget(Target):
    """A process and all its descendants."""

    def members(self) -> dict[int, int]:
        """Returns the process and all its descendants now; none if it is gone."""
        return dict.fromkeys(with_descendants([self.pid]), BY_DESCENT)


class MachineTarget(Target):
    """Every process of the machine."""

    @property
    def alive(self) -> bool:
        """True."""
        return True

    @property
    def ends_with(self) -> int | None:
        """None: the machine does not end."""
        return None


def from_pids(text: str, named: str | None = None, role: str = "target") -> list[Target]:
    """Returns targets from `-p PID,PID`. Raises UsageError or TargetGone.

    `named`: their name, instead of that of the process.
    """
    targets: dict[int, Target] = {}
    parts = text.split(",")
    most = _MOST_COMMANDS // len(parts)
    for part in parts:
        digits = part.strip()
        if not digits.isascii() or not digits.isdigit() or not 0 < int(digits) < 1 << 31:
            raise UsageError(
                f"-p needs process ids, and {part.strip()!r} is not one", "e.g. -p 1234"
            )
        pid = int(digits)
        if pid == os.getpid():
            raise UsageError("a recorder cannot trace itself", "give another process's pid")
        start = process_start_time(pid)
        if start is None or not process_alive(pid, start):
            raise TargetGone(f"there is no process {pid}", "find it: pgrep -a python")
        try:
            command = command_line(pid, most)
            name = _name(pid, command)
        except (FileNotFoundError, ProcessLookupError):
            raise TargetGone(f"process {pid} has just ended", "find it: pgrep -a python") from None
        except PermissionError:
            raise PermissionMissing(
                f"this user may not inspect process {pid}", "run as root"
            ) from None
        targets[pid] = ProcessTarget(named or name, "pid", pid, start, role, command)
    return list(targets.values())


def _name(pid: int, command: list[str]) -> str:
    """Returns a process's name, which the kernel cuts, as whole as its command tells it."""
    name = name_of(pid)
    whole = os.path.basename(command[0]) if command else ""  # noqa: PTH119 a text
    known = whole.startswith(name) and len(os.fsencode(whole)) <= _WHOLE_NAME
    return whole if known and len(os.fsencode(name)) >= _CUT_NAME else name


def from_command(command: list[str], pid: int) -> Target:
    """Returns the target of a launched command."""
    name = Path(command[0]).name
    return ProcessTarget(name, "command", pid, process_start_time(pid), command=command)


def machine() -> Target:
    """Returns every process of the machine as one target."""
    return MachineTarget("machine", "machine")


def with_descendants(
    roots: Iterable[int], but: Callable[[int], bool] = lambda pid: False
) -> set[int]:
    """Returns these processes and all their descendants that live now.

    If `but` returns true for a process, it is left out with its descendants, unless it is a root.
    """
    children: dict[int, list[int]] = {}
    alive = set()
    for process in psutil.process_iter(["ppid"]):
        alive.add(process.pid)
        children.setdefault(process.info["ppid"], []).append(process.pid)
    found: set[int] = set()
    waiting = [pid for pid in roots if pid in alive]
    while waiting:
        pid = waiting.pop()
        if pid not in found:
            found.add(pid)
            waiting += [child for child in children.get(pid, ()) if not but(child)]
    return found


def processes_with_memory(targets: list[Target]) -> list[int]:
    """Returns the processes whose mappings are read at the start. A command has none until exec."""
    if any(target.kind == "machine" for target in targets):
        return psutil.pids()
    return sorted({pid for t in targets if t.kind != "command" for pid in t.members()})


def threads_of(targets: list[Target], makers: bool) -> set[int]:
    """Returns every thread of the targets now and, with `makers`, the threads of their makers."""
    pids = {pid for target in targets for pid in target.members()}
    if makers:
        pids.update(pid for target in targets for pid in target.makers())
    return {tid for pid in pids for tid in threads(pid)}


def threads(pid: int) -> list[int]:
    """Returns the threads of a process now; none if it is gone."""
    try:
        return [int(tid) for tid in os.listdir(f"/proc/{pid}/task")]
    except (FileNotFoundError, ProcessLookupError):
        return []
