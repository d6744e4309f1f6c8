"""Control groups: version 1 hierarchies, the unified hierarchy of version 2, or both together.

A hierarchy has the number that /proc/PID/cgroup and the kernel's cgroup events give it. Version 2
has number 0.
"""

from __future__ import annotations

import contextlib
import errno
import os
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import psutil

from tracer.probes.errors import TargetGone, UsageError
from tracer.probes.folders import walk
from tracer.probes.proc import KTHREADD, lines, process_of, read_mounts, read_stat
from tracer.store.manifest_parts import CgroupFacts, TargetFacts
from tracer.targets import containerd
from tracer.targets.target import Target
from tracer.targets.tree import ProcessTree

_LIST = "cgroup.procs"


@dataclass(frozen=True)
class Hierarchy:
    """A tree of cgroups and the mount point of its root."""

    number: int
    controllers: str
    """Controllers of version 1, separated by commas; empty for the unified hierarchy."""
    mount: Path


@dataclass(frozen=True)
class Cgroup:
    """One cgroup of one hierarchy. It need not exist now."""

    hierarchy: int
    controllers: str
    path: str
    """Path from the hierarchy's root, with a leading slash."""
    folder: Path | None
    """None: its hierarchy is not mounted here."""

    def exists(self) -> bool:
        """Returns whether the cgroup exists now."""
        return self.folder is not None and self.folder.is_dir()

    def processes(self) -> set[int]:
        """Returns the processes in it and below it now; none if it is gone."""
        found: set[int] = set()
        for folder, _ in walk(str(self.folder or os.devnull)):
            found.update(_processes_in(Path(folder)))
        return found

    def holds(self, pids: Iterable[int]) -> bool:
        """Returns whether each of these processes is in it or below it, or has ended.

        Processes may begin and end meanwhile.
        """
        return all(map(self._has, set(pids) - self.processes()))

    def _has(self, pid: int) -> bool:
        path = of_process(pid).get(self.hierarchy)
        if path is None or f"{path}/".startswith(f"{self.path.rstrip('/')}/"):
            return True
        # A process that exits is shown in the root of each old hierarchy.
        stat = read_stat(pid)
        return stat is None or stat.exiting

    def facts(self) -> CgroupFacts:
        """Returns the cgroup's description for the manifest."""
        return {
            "hierarchy": self.hierarchy,
            "controllers": self.controllers,
            # Escape the path as the decoder escapes it in events.
            "path": os.fsencode(self.path).decode("utf-8", "backslashreplace"),
        }


def cgroup_at(mounted: Hierarchy | None, number: int, path: str) -> Cgroup:
    """Returns the cgroup at a path of hierarchy `number`. `mounted`: None if it is not mounted."""
    if mounted is None:
        return Cgroup(number, "", path, None)
    return Cgroup(number, mounted.controllers, path, mounted.mount / path.lstrip("/"))


def _processes_in(folder: Path) -> Iterator[int]:
    try:
        # A process outside this pid namespace is listed as 0.
        yield from (pid for pid in map(int, (folder / _LIST).read_text().split()) if pid)
    except OSError as error:
        if error.errno == errno.EOPNOTSUPP:  # a threaded cgroup lists only threads
            yield from _processes_of_threads(folder)
        elif error.errno not in (errno.ENOENT, errno.ENODEV):
            raise


def _processes_of_threads(folder: Path) -> Iterator[int]:
    found = map(process_of, map(int, (folder / "cgroup.threads").read_text().split()))
    yield from (pid for pid in found if pid is not None)


def hierarchies() -> list[Hierarchy]:
    """Returns every mounted hierarchy by number, so the unified one comes first."""
    names = {}
    for line in lines("/proc/self/cgroup"):
        digits, controllers, _ = line.split(":", 2)
        names[int(digits)] = controllers
    found: dict[int, Hierarchy] = {}
    for mount in read_mounts():
        if mount.root != b"/" or mount.kind not in (b"cgroup", b"cgroup2"):
            continue
        given = set(mount.options.decode().split(",")) if mount.kind == b"cgroup" else set()
        for number, controllers in names.items():
            own = set(filter(None, controllers.split(",")))
            if own <= given and bool(own) == (mount.kind == b"cgroup"):
                place = Path(os.fsdecode(mount.path))
                found.setdefault(number, Hierarchy(number, controllers, place))
    return [found[number] for number in sorted(found)]


def of_process(pid: int) -> dict[int, str]:
    """Returns the cgroup path of a process in each hierarchy; empty if the process is gone."""
    try:
        parts = [line.split(":", 2) for line in lines(f"/proc/{pid}/cgroup") if line]
    except (FileNotFoundError, ProcessLookupError):
        return {}
    return {int(number): path.removesuffix(" (deleted)") for number, _, path in parts}


def of_container(pid: int, is_own: Callable[[str], bool]) -> list[Cgroup]:
    """Returns a container's cgroup in each hierarchy, even if its init `pid` is in a cgroup below.

    `is_own` tells of a cgroup's path whether it is the container's.
    """
    mounts = {h.number: h for h in hierarchies()}
    found = []
    for number, path in sorted(of_process(pid).items()):
        parts = path.split("/")
        above = ("/".join(parts[:n]) for n in range(2, len(parts) + 1))
        own = next(filter(is_own, above), None)
        if own is not None:
            found.append(cgroup_at(mounts.get(number), number, own))
    return found


def find_cgroups(wanted: str) -> list[Cgroup]:
    """Returns the cgroups that a path names: one, or the same name in several hierarchies.

    The path is a folder (/sys/fs/cgroup/memory/job) or a path from the root of the hierarchies as
    in /proc/PID/cgroup (/job, job). Raises UsageError or TargetGone.
    """
    if not wanted.strip():
        raise UsageError("--cgroup needs a path", "e.g. --cgroup /system.slice/docker.service")
    known = hierarchies()
    real = Path(os.path.realpath(wanted))
    around = [h for h in known if wanted.startswith("/") and real.is_relative_to(h.mount)]
    if around:
        # Use the innermost mount: a hierarchy may be mounted below another hierarchy's root.
        return _existing(wanted, [(max(around, key=lambda h: len(h.mount.parts)), real)])
    relative = wanted.lstrip("/")
    return _existing(wanted, [(h, Path(os.path.realpath(h.mount / relative))) for h in known])


def _is_cgroup(folder: Path) -> bool:
    try:
        return (folder / _LIST).exists()
    except OSError:  # its name is too long
        return False


def _existing(wanted: str, places: list[tuple[Hierarchy, Path]]) -> list[Cgroup]:
    cgroups = []
    for hierarchy, folder in places:
        if folder.is_relative_to(hierarchy.mount) and _is_cgroup(folder):
            inside = folder.relative_to(hierarchy.mount)
            path = "/" if inside == Path() else f"/{inside}"
            cgroups.append(Cgroup(hierarchy.number, hierarchy.controllers, path, folder))
    if not cgroups:
        raise TargetGone(
            f"there is no cgroup {wanted}", "see /proc/PID/cgroup of a process in the cgroup"
        )
    return cgroups


class CgroupTarget(Target):
    """Every process of a cgroup and of the cgroups below it."""

    def __init__(self, name: str, cgroups: list[Cgroup]) -> None:
        super().__init__(name, "cgroup")
        self.cgroups = cgroups

    @property
    def alive(self) -> bool:
        """True until the cgroup is removed: an empty cgroup may fill again."""
        return any(cgroup.exists() for cgroup in self.cgroups)

    @property
    def distinction(self) -> str:
        """The controllers of its hierarchy; the kind if it lies in several hierarchies."""
        if len(self.cgroups) > 1:
            return self.kind
        return self.cgroups[0].controllers or "unified"

    @property
    def joined(self) -> bool:
        """True: processes are put into a cgroup from outside."""
        return True

    @property
    def ends_with(self) -> int | None:
        """None: processes come and go."""
        return None

    def members(self, tree: ProcessTree | None = None) -> dict[int, int]:
        """Returns every process in one of the hierarchies, without the recorder."""
        found = {pid: cgroup.hierarchy for cgroup in self.cgroups for pid in cgroup.processes()}
        found.pop(os.getpid(), None)
        return found

    def makers(self) -> set[int]:
        """Returns the outside parents of its processes: they may put more processes into it.

        If a parent is a container's shim, containerd is returned as well.
        """
        members = self.members()
        parents = set()
        for pid in members:
            with contextlib.suppress(psutil.NoSuchProcess):
                parents.add(psutil.Process(pid).ppid())
        parents -= {*members, os.getpid(), 0, KTHREADD}
        return parents | {daemon for pid in parents if (daemon := containerd.of_shim(pid))}

    @cached_property
    def _facts(self) -> list[CgroupFacts]:
        return [cgroup.facts() for cgroup in self.cgroups]

    def describe(self) -> TargetFacts:
        """Returns the target's description for the manifest."""
        return {**super().describe(), "cgroups": self._facts}


def from_paths(paths: list[str]) -> list[Target]:
    """Returns targets from `--cgroup PATH`, each path once. Raises UsageError or TargetGone."""
    found: dict[tuple[Cgroup, ...], Target] = {}
    for path in paths:
        cgroups = find_cgroups(path)
        found.setdefault(tuple(cgroups), CgroupTarget(cgroups[0].path, cgroups))
    return list(found.values())
