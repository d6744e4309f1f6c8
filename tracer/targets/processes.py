"""Targets given by pid, a launched command, and the whole machine."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path

import psutil

from tracer.probes.cgroups import BY_DESCENT
from tracer.probes.errors import PermissionMissing, TargetGone, UsageError
from tracer.probes.kernel import process_alive, process_start_time
from tracer.probes.proc import beginning, command_line, name_of, process_of
from tracer.targets.target import Target, refuse_many
from tracer.targets.tree import ProcessTree

_MOST_COMMANDS = 64 << 10
"""Most bytes of the targets' command lines together: a manifest that is too large is refused."""
_MOST_DIGITS = 10
"""Most digits of a process id; Python reads no number of thousands of digits."""
_CUT_NAME, _WHOLE_NAME = 15, 255
"""Most bytes of a process's name in the kernel (TASK_COMM_LEN), and of a file's (NAME_MAX)."""


class ProcessTarget(Target):
    """A process and all its descendants."""

    def members(self, tree: ProcessTree | None = None) -> dict[int, int]:
        """Returns the process and all its descendants now, without the recorder and its own.

        There are none if the process is gone.
        """
        tree = tree or ProcessTree()
        recorder = os.getpid()  # which a shell that records itself has made, too
        found = tree.descendants([self.pid], lambda pid: pid == recorder)
        return dict.fromkeys(found, BY_DESCENT)


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


def from_pids(
    text: str,
    named: str | None = None,
    role: str = "target",
    option: str = "-p",
    program: str = "python",
) -> list[Target]:
    """Returns targets from `-p PID,PID`. Raises UsageError or TargetGone.

    `named`: their name, instead of that of the process. Errors name the `option` that was given,
    and say how to find a process of `program`.
    """
    targets: list[Target] = []
    find = f"find it: pgrep -a {program}"
    pids = dict.fromkeys(_pid(part, option, program) for part in text.split(","))
    refuse_many(len(pids))
    most = _MOST_COMMANDS // len(pids)
    for pid in pids:
        if pid == os.getpid():
            raise UsageError("a recorder cannot trace itself", "give another process's pid")
        start = process_start_time(pid)
        if start is None:
            raise TargetGone(f"there is no process {pid}", find)
        if not process_alive(pid, start):
            raise TargetGone(f"process {pid} has ended, and its parent has not waited for it", find)
        process = process_of(pid)
        if process not in (pid, None):
            raise UsageError(f"{pid} is a thread of process {process}", f"give {option} {process}")
        try:
            command = command_line(pid, most)
            name = _name(pid, command)
        except (FileNotFoundError, ProcessLookupError):
            raise TargetGone(f"process {pid} has just ended", find) from None
        except PermissionError:
            raise PermissionMissing(
                f"this user may not inspect process {pid}", "run as root"
            ) from None
        targets.append(ProcessTarget(named or name, "pid", pid, start, role, command))
    return targets


def _pid(part: str, option: str, program: str) -> int:
    digits = part.strip()
    number = digits.lstrip("0")
    decimal = number.isascii() and number.isdigit() and len(number) <= _MOST_DIGITS
    if not decimal or int(number) >= 1 << 31:
        listed = len(digits.split()) > 1
        mend = "separate them by commas: pgrep -d," if listed else "find it: pgrep -a"
        raise UsageError(
            f"{option} needs process ids, and {digits!r} is not one", f"{mend} {program}"
        )
    return int(number)


def _name(pid: int, command: list[str]) -> str:
    """Returns a process's name, which the kernel cuts, as whole as its command tells it."""
    name = name_of(pid)
    whole = os.path.basename(command[0]) if command else ""  # noqa: PTH119 a text
    known = whole.startswith(name) and len(os.fsencode(whole)) <= _WHOLE_NAME
    return whole if known and len(os.fsencode(name)) >= _CUT_NAME else name


def from_command(command: list[str], pid: int) -> Target:
    """Returns the target of a launched command."""
    name = Path(command[0]).name
    began = process_start_time(pid)
    return ProcessTarget(name, "command", pid, began, command=beginning(command, _MOST_COMMANDS))


def machine() -> Target:
    """Returns every process of the machine as one target."""
    return MachineTarget("machine", "machine")


def members_of(targets: Iterable[Target]) -> list[dict[int, int]]:
    """Returns the members of each target now, from one look at the machine's processes."""
    tree = ProcessTree()
    return [target.members(tree) for target in targets]


def processes_with_memory(targets: list[Target]) -> list[int]:
    """Returns the processes whose mappings are read at the start. A command has none until exec."""
    if any(target.kind == "machine" for target in targets):
        return psutil.pids()
    running = [target for target in targets if target.kind != "command"]
    return sorted({pid for members in members_of(running) for pid in members})


def threads_of(targets: list[Target], makers: bool) -> set[int]:
    """Returns every thread of the targets now and, with `makers`, the threads of their makers."""
    pids = {pid for members in members_of(targets) for pid in members}
    if makers:
        pids.update(pid for target in targets for pid in target.makers())
    return {tid for pid in pids for tid in threads(pid)}


def threads(pid: int) -> list[int]:
    """Returns the threads of a process now; none if it is gone."""
    try:
        return [int(tid) for tid in os.listdir(f"/proc/{pid}/task")]
    except (FileNotFoundError, ProcessLookupError):
        return []
