"""Docker containers as targets, and the list of all running containers."""

from __future__ import annotations

import os
import time
from typing import Any

import psutil

from tracer.probes.errors import FeatureMissing, TargetGone, TracerError, UsageError
from tracer.store.manifest import ContainerFacts, TargetFacts
from tracer.targets import containerd
from tracer.targets.cgroups import Cgroup, hierarchies, of_process
from tracer.targets.engine import Engine
from tracer.targets.target import Target

_ASK_AGAIN_S = 0.5
_QUICK_S = 3.0
"""Timeout in s of a question to the daemon that a recording can do without."""
_NAMES_SHOWN = 20


class ContainerTarget(Target):
    """Every process in a container's cgroup, now and after a restart of the container."""

    def __init__(self, facts: ContainerFacts, cgroups: list[Cgroup]) -> None:
        super().__init__(facts["name"], "container", facts["pid"])
        self.facts = facts
        self.cgroups = cgroups
        self._listed = next((c for c in cgroups if c.folder is not None), cgroups[0])
        self._asked = 0.0
        self._gone = False
        self._shim = _parent(self.pid)

    @property
    def alive(self) -> bool:
        """True until the container is removed: a stopped container may be started again."""
        now = time.monotonic()
        if not self._gone and now >= self._asked + _ASK_AGAIN_S and not self.members():
            # Ask the daemon rarely: it may be a target, too.
            self._asked = now
            try:
                with Engine(_QUICK_S) as docker:
                    self._gone = docker.inspect(self.facts["id"]) is None
            except TracerError:
                return True  # the daemon does not answer, so assume that the container exists
        return not self._gone

    @property
    def joined(self) -> bool:
        """True: `docker exec` and a restart put processes into the container."""
        return True

    @property
    def ends_with(self) -> int | None:
        """None: the container may be started again."""
        return None

    def members(self) -> dict[int, int]:
        """Returns every process in its cgroup, without the recorder."""
        found = self._listed.processes() - {os.getpid()}
        return dict.fromkeys(found, self._listed.hierarchy)

    def makers(self) -> set[int]:
        """Returns its shim, which starts processes in it, and containerd, which restarts it."""
        if self._shim is None:
            return set()
        daemon = containerd.of_shim(self._shim)
        return {self._shim} if daemon is None else {self._shim, daemon}

    def describe(self) -> TargetFacts:
        """Returns the target's description for the manifest."""
        return {
            **super().describe(),
            "container": self.facts["id"],
            "image": self.facts["image"],
            "cgroups": [cgroup.facts() for cgroup in self.cgroups],
            "makers": [] if self._shim is None else [self._shim],
        }


def _parent(pid: int) -> int | None:
    try:
        parent = psutil.Process(pid).ppid()
    except psutil.NoSuchProcess:
        return None
    return parent if parent > 1 else None


def from_names(names: list[str]) -> list[Target]:
    """Returns targets from `--container NAME` (names or ids), each container once.

    Raises UsageError, TargetGone if a container does not exist or does not run, and the errors
    of `Engine`.
    """
    found: dict[str, Target] = {}
    with Engine() as docker:
        for name in names:
            if not name:
                raise UsageError("--container needs a name or an id", "see: docker ps")
            facts = docker.inspect(name)
            if facts is None:
                raise TargetGone(f"there is no container {name!r}", _which(docker.names()))
            found.setdefault(str(facts["Id"]), _target(facts))
    return list(found.values())


def _which(names: list[str]) -> str:
    if not names:
        return "there are no containers: docker run ..."
    more = ", ..." if len(names) > _NAMES_SHOWN else ""
    return f"there are: {', '.join(names[:_NAMES_SHOWN])}{more}"


def _target(facts: dict[str, Any]) -> ContainerTarget:
    told = _facts(facts)
    name, pid = told["name"], told["pid"]
    if not pid:
        state = facts.get("State", {}).get("Status", "stopped")
        raise TargetGone(f"container {name} is not running ({state})", f"docker start {name}")
    cgroups = _cgroups(told["id"], pid)
    if not cgroups:
        raise FeatureMissing(
            f"no cgroup of container {name} is visible here",
            f"record on the daemon's machine, or record its first process: -p {pid}",
        )
    return ContainerTarget(told, cgroups)


def _cgroups(container: str, pid: int) -> list[Cgroup]:
    """Returns the container's cgroup in each hierarchy, even if its init is in a cgroup below."""
    mounts = {h.number: h for h in hierarchies()}
    found = []
    for number, path in sorted(of_process(pid).items()):
        parts = path.split("/")
        at = next((i for i, part in enumerate(parts) if container in part), None)
        if at is None:
            continue
        whole = "/".join(parts[: at + 1])
        mounted = mounts.get(number)
        folder = mounted.mount / whole.lstrip("/") if mounted else None
        found.append(Cgroup(number, mounted.controllers if mounted else "", whole, folder))
    return found


def _facts(inspected: dict[str, Any]) -> ContainerFacts:
    """Returns the container's facts for the manifest, without its environment variables."""
    layers = inspected.get("GraphDriver", {}).get("Data") or {}
    pid = int(inspected.get("State", {}).get("Pid") or 0)
    identity = str(inspected["Id"])
    cgroups = _cgroups(identity, pid) if pid else []
    return {
        "id": identity,
        "name": str(inspected.get("Name", "")).lstrip("/"),
        "image": str(inspected.get("Config", {}).get("Image", "")),
        "pid": pid,
        "cgroup": cgroups[0].facts()["path"] if cgroups else None,
        "merged": layers.get("MergedDir"),
        "upper": layers.get("UpperDir"),
        "lower": str(layers["LowerDir"]).split(":") if layers.get("LowerDir") else [],
        "mounts": [
            {
                "type": str(mount.get("Type", "")),
                "source": str(mount.get("Source", "")),
                "path": str(mount.get("Destination", "")),
                "writable": bool(mount.get("RW")),
            }
            for mount in inspected.get("Mounts") or []
        ],
    }


def seen_since(
    begun_s: float, before: dict[str, ContainerFacts] | None
) -> dict[str, ContainerFacts] | None:
    """Returns `before`, the running containers, and those started since `begun_s` (s since 1970).

    Returns only `before` if no daemon answers.
    """
    try:
        with Engine(_QUICK_S) as docker:
            now = {str(facts["Id"]): _facts(facts) for facts in docker.running()}
            started = docker.started_between(begun_s, time.time())
    except TracerError:
        return before
    found = {**(before or {}), **now}
    for identity, (name, image) in started.items():
        found.setdefault(identity, {"id": identity, "name": name, "image": image, "pid": 0})
    return found
