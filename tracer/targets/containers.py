"""Docker containers as targets, and the list of all running containers."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from typing import Any

import psutil

from tracer.probes.errors import (
    FeatureMissing,
    PermissionMissing,
    TargetGone,
    TracerError,
    UsageError,
)
from tracer.store.manifest_parts import ContainerFacts, TargetFacts
from tracer.targets import containerd
from tracer.targets.cgroups import Cgroup, cgroup_at, hierarchies, of_process
from tracer.targets.daemon import dockerd_pid
from tracer.targets.engine import Engine
from tracer.targets.target import Target

_ASK_AGAIN_S = 0.5
_QUICK_S = 3.0
"""Timeout in s of a question to the daemon that a recording can do without."""
_NAMES_SHOWN = 20
_SHORT_ID = 12
"""Digits of an id that `docker ps` shows."""


class ContainerTarget(Target):
    """Every process in a container's cgroup, now and after a restart of the container."""

    def __init__(self, facts: ContainerFacts, cgroups: list[Cgroup]) -> None:
        super().__init__(facts["name"], "container", facts["pid"])
        self.facts = facts
        self.identity: str | None = facts["id"]
        self.cgroups = cgroups
        self._listed = next((c for c in cgroups if c.folder is not None), cgroups[0])
        self._asked = 0.0
        self._gone = False
        self._shim = _parent(self.pid)

    @property
    def alive(self) -> bool:
        """True until the container is removed: a stopped container may be started again."""
        now = time.monotonic()
        wanted = self.identity
        quiet = now >= self._asked + _ASK_AGAIN_S
        if wanted is not None and not self._gone and quiet and not self.members():
            # Ask the daemon rarely: it may be a target, too.
            self._asked = now
            try:
                with Engine(_QUICK_S) as docker:
                    self._gone = docker.inspect(wanted) is None
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


class AwaitedContainer(ContainerTarget):
    """A container that need not exist yet: the first one that is made or started by this name.

    Until then it has no process. Its processes are recorded from their first one on, because
    containerd, which makes it, is followed (`makers`).
    """

    def __init__(self, name: str, since_s: float, containerd_pid: int | None) -> None:
        Target.__init__(self, name, "container")
        self.since_s = since_s
        """Time (s since 1970) from which on the daemon's events may tell of it."""
        self.identity = None
        self.cgroups: list[Cgroup] = []
        self.environment: dict[str, str] = {}
        """The environment variables that it was started with. They are not kept."""
        self.known: ContainerFacts | None = None
        """The facts of `docker inspect`, once it was started; None if it was removed before."""
        self.new = True
        """True until the recording has let it in."""
        self._wanted = name
        self._containerd = containerd_pid
        self._shim: int | None = None
        self._asked = 0.0
        self._gone = False

    def hear(self, event: str, identity: str, name: str) -> bool:
        """Takes in an event of a container. Returns whether it is this one's."""
        if self.identity is None:
            mine = name == self._wanted or _is_id(self._wanted, identity)
            if not mine or event == "destroy":
                return False
            self.identity = identity
        if identity != self.identity:
            return False
        self._gone = event == "destroy"
        return True

    def lies_in(self, paths: Mapping[int, str]) -> bool:
        """Notes its cgroups, path by hierarchy. Returns whether one of them was not known."""
        new = sorted(paths.keys() - {cgroup.hierarchy for cgroup in self.cgroups})
        mounts = {h.number: h for h in hierarchies()} if new else {}
        self.cgroups += [cgroup_at(mounts.get(number), number, paths[number]) for number in new]
        return bool(new)

    def look(self) -> None:
        """Asks the daemon for its facts, once it was started. Raises the errors of `Engine`."""
        assert self.identity is not None
        with Engine(_QUICK_S) as docker:
            inspected = docker.inspect(self.identity)
        if inspected is None:
            return
        self.known = _facts(inspected)
        entries = (str(e).partition("=") for e in inspected.get("Config", {}).get("Env") or [])
        self.environment = {name: value for name, _, value in entries}
        if pid := self.known["pid"]:
            self.pid = pid
            self._shim = _parent(pid)
            self.lies_in({c.hierarchy: c.path for c in _cgroups(self.identity, pid)})

    @property
    def alive(self) -> bool:
        """True until the container is removed, also before it is made."""
        return not self._gone and (self.identity is None or super().alive)

    def members(self) -> dict[int, int]:
        """Returns every process in its cgroup, without the recorder; none before it is made."""
        found: dict[int, int] = {}
        for cgroup in self.cgroups:
            found |= dict.fromkeys(cgroup.processes() - {os.getpid()}, cgroup.hierarchy)
        return found

    def makers(self) -> set[int]:
        """Returns containerd, which makes its shim, and the shim once it is there."""
        return {pid for pid in (self._containerd, self._shim) if pid is not None}

    def describe(self) -> TargetFacts:
        """Returns the target's description for the manifest."""
        found: TargetFacts = {
            **Target.describe(self),
            "cgroups": [cgroup.facts() for cgroup in self.cgroups],
            "makers": [] if self._shim is None else [self._shim],
        }
        if self.identity is not None:
            found["container"] = self.identity
        if self.known is not None:
            found["image"] = self.known["image"]
        return found


def _is_id(wanted: str, identity: str) -> bool:
    """Returns whether a name is the container's id, or a beginning of it as `docker ps` shows."""
    return len(wanted) >= _SHORT_ID and identity.startswith(wanted)


def _parent(pid: int) -> int | None:
    try:
        parent = psutil.Process(pid).ppid()
    except psutil.NoSuchProcess:
        return None
    return parent if parent > 1 else None


def from_names(names: list[str], wait: bool = False) -> list[Target]:
    """Returns targets from `--container NAME` (names or ids), each container once.

    With `wait`, a container that does not run now is awaited. Raises UsageError, TargetGone if a
    container does not exist or does not run, and the errors of `Engine`.
    """
    found: dict[str, Target] = {}
    asked_s = time.time()
    with Engine() as docker:
        for name in names:
            if not name:
                raise UsageError("--container needs a name or an id", "see: docker ps")
            facts = docker.inspect(name)
            if wait and not (facts or {}).get("State", {}).get("Pid"):
                found.setdefault(name, AwaitedContainer(name, asked_s, _containerd()))
                continue
            if facts is None:
                raise TargetGone(f"there is no container {name!r}", _which(docker.names()))
            found.setdefault(str(facts["Id"]), _target(facts))
    return list(found.values())


def _containerd() -> int | None:
    """Returns the pid of the daemon's containerd; None if it is not visible here."""
    try:
        return containerd.of_dockerd(dockerd_pid())
    except (FeatureMissing, PermissionMissing):
        return None


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
        found.append(cgroup_at(mounts.get(number), number, whole))
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
