"""Cgroups of our own for a job on the host: CPU time, CPUs to run on, memory and swap.

The quota is in `cpu.max` or `cpu.cfs_quota_us`, the CPUs are in `cpuset.cpus`, the memory is in
`memory.max` or `memory.limit_in_bytes`, the swap in `memory.swap.max` or, together with the memory,
in `memory.memsw.limit_in_bytes` (kernel: Documentation/admin-guide/cgroup-v2.rst, and
scheduler/sched-bwc.rst and cgroup-v1/memory.rst for the older files).
Hierarchies of v1 and v2 may be mounted at the same time; each controller is in one of them.

A process is in one cgroup of v2, so a job that joins ours leaves that of the runner. Its limits on
devices (`io.max`), such as those of a study's medium, go along.
"""

from __future__ import annotations

import contextlib
import os
import signal
import time
from dataclasses import dataclass
from pathlib import Path

from tracer.workloads.errors import JobError, explained
from tracer.workloads.modes.controllers import CONTROL, switch_off
from tracer.workloads.modes.mechanism import ROOT, Before, read, write

PERIOD_US = 100_000
"""Period of a quota of CPU time in microseconds: the default of the kernel and of Docker."""

_IO = "io.max"
_PATIENCE_S = 15
_ROUND_S = 0.02


@dataclass(frozen=True)
class Share:
    """The CPUs that a job may run on, and its quota of their time in CPUs. None: all."""

    cpus: tuple[int, ...] | None = None
    quota: float | None = None

    @property
    def cpuset(self) -> str | None:
        """The CPUs in the format of a cpuset, such as "0,1"."""
        return None if self.cpus is None else ",".join(map(str, self.cpus))


@dataclass(frozen=True)
class Memory:
    """The bytes of memory that a job may use, and the bytes of swap beside them."""

    limit_bytes: int
    swap_bytes: int = 0


@dataclass(frozen=True)
class Mount:
    """A mounted hierarchy of cgroups. `unified`: it is of v2, with one tree for all controllers."""

    path: Path
    unified: bool
    controllers: frozenset[str]


def mounts(root: Path = ROOT) -> list[Mount]:
    """Returns all mounted hierarchies with their controllers. Raises JobError."""
    found = []
    with explained("cannot read the mounts", "mount /proc"):
        lines = (root / "proc/mounts").read_text().splitlines()
    for line in lines:
        _, where, kind, options, *_ = line.split()
        path = root / where.lstrip("/")
        if kind == "cgroup":
            found.append(Mount(path, False, frozenset(options.split(","))))
        elif kind == "cgroup2":
            with contextlib.suppress(OSError):
                has = (path / "cgroup.controllers").read_text().split()
                found.append(Mount(path, True, frozenset(has)))
    return found


def find_mount(controller: str, root: Path = ROOT) -> Mount:
    """Returns the hierarchy of a controller. Raises JobError if no hierarchy has it."""
    for mount in mounts(root):
        if controller in mount.controllers:
            return mount
    raise JobError(
        f"this machine has no cgroups with the controller {controller!r}",
        "mount them (mount -t cgroup2), or leave `cores`, `cpu_quota` and `memory` out",
    )


def plan(share: Share, name: str, root: Path = ROOT, memory: Memory | None = None) -> Before:
    """Returns the plan for `make`. It is noted first, so that `remove` can undo a partial `make`.

    Keys: made (for each cgroup its files and the text to write to each, in order), enabled (the
    root's control file and the controller, for controllers that its children did not have).
    """
    made: dict[str, dict[str, str]] = {}
    enabled: list[list[str]] = []

    def cgroup(controller: str) -> tuple[Mount, dict[str, str]]:
        mount = find_mount(controller, root)
        control = mount.path / CONTROL
        if mount.unified and controller not in read(control).split():
            enabled.append([str(control), controller])
        return mount, made.setdefault(str(mount.path / name), {})

    if share.quota is not None:
        mount, files = cgroup("cpu")
        quota = round(share.quota * PERIOD_US)
        if mount.unified:
            files["cpu.max"] = f"{quota} {PERIOD_US}"
        else:
            files |= {"cpu.cfs_period_us": str(PERIOD_US), "cpu.cfs_quota_us": str(quota)}
    if share.cpuset is not None:
        mount, files = cgroup("cpuset")
        if not mount.unified:  # a new cgroup of v1 has no memory nodes
            files["cpuset.mems"] = read(mount.path / "cpuset.mems")
        files["cpuset.cpus"] = share.cpuset
    if memory is not None:
        mount, files = cgroup("memory")
        files |= _limits(memory, mount, root)
    for mount in mounts(root):
        if mount.unified and (folder := str(mount.path / name)) in made:
            made[folder] |= _of_devices(mount, root)
    return {"made": made, "enabled": enabled}


def _of_devices(mount: Mount, root: Path) -> dict[str, str]:
    """Returns the limits on devices of this process's cgroup of v2, a line for each device."""
    with contextlib.suppress(OSError):
        for line in (root / "proc/self/cgroup").read_text().splitlines():
            number, controllers, path = line.split(":", 2)
            if (number, controllers) == ("0", ""):
                limits = (mount.path / path.lstrip("/") / _IO).read_text().strip()
                return {_IO: limits} if limits else {}
    return {}


def _limits(memory: Memory, mount: Mount, root: Path) -> dict[str, str]:
    both = "memory.memsw.limit_in_bytes"
    if not (root / "proc/swaps" if mount.unified else mount.path / both).exists():
        if memory.swap_bytes:
            raise JobError("this kernel does not limit swap", "leave `swap` out (or swapaccount=1)")
        both = ""
    if mount.unified:
        limits = {"memory.max": memory.limit_bytes}
        return _texts(limits | ({"memory.swap.max": memory.swap_bytes} if both else {}))
    limits = {"memory.limit_in_bytes": memory.limit_bytes}
    # After the other: the kernel refuses a sum below it.
    return _texts(limits | ({both: memory.limit_bytes + memory.swap_bytes} if both else {}))


def _texts(limits: dict[str, int]) -> dict[str, str]:
    return {name: str(value) for name, value in limits.items()}


def out_of_memory(cgroups: list[Path]) -> bool:
    """Returns whether the kernel has killed a process of these cgroups for a memory limit."""
    for folder in cgroups:
        for name in ("memory.events", "memory.oom_control"):  # of v2 and of v1
            with contextlib.suppress(OSError):
                counts = dict(line.split() for line in (folder / name).read_text().splitlines())
                if int(counts.get("oom_kill", 0)):
                    return True
    return False


def make(planned: Before) -> list[Path]:
    """Makes the cgroups and returns their folders. Raises JobError with the kernel's reason."""
    for control, controller in planned["enabled"]:
        write(Path(control), f"+{controller}")
    for folder, files in planned["made"].items():
        with explained(f"cannot make the cgroup {folder}", "run as root to set power modes"):
            Path(folder).mkdir()
        for name, text in files.items():
            for line in text.splitlines() or [text]:  # the kernel takes a device at a time
                write(Path(folder, name), line)
    return [Path(folder) for folder in planned["made"]]


def remove(planned: Before) -> None:
    """Removes the cgroups of a plan, and kills processes in them. Missing cgroups are no error.

    A controller that another program needs by now stays on.
    """
    for folder in planned["made"]:
        _remove(Path(folder))
    for control, controller in planned["enabled"]:
        with explained(f"cannot switch {controller} off in {control}", "run as root"):
            switch_off(Path(control).parent, controller)


def entering(cgroups: list[Path], command: list[str]) -> list[str]:
    """Returns a command that joins the cgroups and then executes `command`."""
    script = 'while [ "$1" != -- ]; do echo $$ > "$1/cgroup.procs" || exit 125; shift; done; shift'
    return ["/bin/sh", "-c", f'{script}; exec "$@"', "enter", *map(str, cgroups), "--", *command]


def _remove(folder: Path) -> None:
    deadline = time.monotonic() + _PATIENCE_S
    with explained(
        f"cannot remove the cgroup {folder}", "end the processes in it (see cgroup.procs)"
    ):
        while folder.exists():
            try:
                folder.rmdir()
            except FileNotFoundError:
                return
            except OSError:
                if time.monotonic() > deadline:
                    raise
                _kill(folder)
                time.sleep(_ROUND_S)


def _kill(folder: Path) -> None:
    with contextlib.suppress(FileNotFoundError):
        for pid in (folder / "cgroup.procs").read_text().split():
            with contextlib.suppress(ProcessLookupError):
                os.kill(int(pid), signal.SIGKILL)
