"""Cgroups of our own for a job on the host: a quota of CPU time, and CPUs to run on.

The quota is in `cpu.max` or `cpu.cfs_quota_us`, the CPUs are in `cpuset.cpus` (kernel:
Documentation/admin-guide/cgroup-v2.rst, and scheduler/sched-bwc.rst for the older files).
Hierarchies of both kinds may be mounted at once; a controller is in one of them.
"""

from __future__ import annotations

import contextlib
import os
import signal
import time
from dataclasses import dataclass
from pathlib import Path

from workloads.errors import JobError, explained
from workloads.modes.mechanism import ROOT, Before, read, write

PERIOD_US = 100_000
"""In which a quota is used up: the kernel's default, and Docker's."""

_PATIENCE_S = 15
_ROUND_S = 0.02


@dataclass(frozen=True)
class Share:
    """Which CPUs a job may run on, and how much of their time, in CPUs. None: all."""

    cpus: tuple[int, ...] | None = None
    quota: float | None = None

    @property
    def cpuset(self) -> str | None:
        """The CPUs as cpusets have them."""
        return None if self.cpus is None else ",".join(map(str, self.cpus))


@dataclass(frozen=True)
class Mount:
    """A hierarchy of cgroups. `unified`: one for all controllers (v2)."""

    path: Path
    unified: bool
    controllers: frozenset[str]


def mounts(root: Path = ROOT) -> list[Mount]:
    """Every hierarchy that is mounted, with the controllers that are in it."""
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


def find(controller: str, root: Path = ROOT) -> Mount:
    """The hierarchy of a controller. Raises JobError where it is in none."""
    for mount in mounts(root):
        if controller in mount.controllers:
            return mount
    raise JobError(
        f"this machine has no cgroups with the controller {controller!r}",
        "mount them (mount -t cgroup2), or leave `cores` and `cpu_quota` out",
    )


def plan(share: Share, name: str, root: Path = ROOT) -> Before:
    """What `make` will make, written down before so that `remove` can undo half of it.

    Keys: made (each cgroup's files with what is to be written to them, in order), enabled
    (controllers that children of the root have not had so far).
    """
    made: dict[str, dict[str, str]] = {}
    enabled: list[list[str]] = []

    def cgroup(controller: str) -> tuple[Mount, dict[str, str]]:
        mount = find(controller, root)
        control = mount.path / "cgroup.subtree_control"
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
        if not mount.unified:  # where a cgroup begins without any
            files["cpuset.mems"] = read(mount.path / "cpuset.mems")
        files["cpuset.cpus"] = share.cpuset
    return {"made": made, "enabled": enabled}


def make(planned: Before) -> list[Path]:
    """Make the cgroups; gives their folders. Raises JobError with the kernel's reason."""
    for control, controller in planned["enabled"]:
        write(Path(control), f"+{controller}")
    for folder, files in planned["made"].items():
        with explained(f"cannot make the cgroup {folder}", "power modes are set as root"):
            Path(folder).mkdir()
        for name, text in files.items():
            write(Path(folder, name), text)
    return [Path(folder) for folder in planned["made"]]


def remove(planned: Before) -> None:
    """Remove them with what still runs in them; those that are not there do no harm."""
    for folder in planned["made"]:
        _remove(Path(folder))
    for control, controller in planned["enabled"]:
        if controller in read(Path(control)).split():
            write(Path(control), f"-{controller}")


def entering(cgroups: list[Path], command: list[str]) -> list[str]:
    """A command that joins the cgroups and becomes `command`."""
    script = 'while [ "$1" != -- ]; do echo $$ > "$1/cgroup.procs" || exit 125; shift; done; shift'
    return ["/bin/sh", "-c", f'{script}; exec "$@"', "enter", *map(str, cgroups), "--", *command]


def _remove(folder: Path) -> None:
    deadline = time.monotonic() + _PATIENCE_S
    with explained(f"cannot remove the cgroup {folder}", "see what runs in it (cgroup.procs)"):
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
