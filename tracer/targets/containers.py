"""Containers as targets, and the list of all containers that run or ran."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping

import psutil

from tracer.probes.errors import (
    FeatureMissing,
    PermissionMissing,
    TargetGone,
    TracerError,
    UsageError,
)
from tracer.probes.proc import read_stat
from tracer.store.manifest_parts import ContainerFacts, TargetFacts
from tracer.targets import containerd
from tracer.targets.cgroups import Cgroup, cgroup_at, hierarchies
from tracer.targets.daemon import dockerd_pid
from tracer.targets.engines import AUTO, DOCKER, PODMAN, Container, Engine, chosen, docker
from tracer.targets.engines.engine import is_id
from tracer.targets.target import Target
from tracer.targets.tree import ProcessTree

_ASK_AGAIN_S = 0.5
_SHARE = 10
"""At most one part in so many of the time is spent on asking for the facts of a container."""
_NAMES_SHOWN = 20
_NOTICE_S = 1.0
"""Time in s in which an engine notices that a container's first process has ended."""
_AGAIN_S = 0.02


class ContainerTarget(Target):
    """Every process in a container's cgroup, now and after a restart of the container."""

    def __init__(self, container: Container) -> None:
        facts = container.facts
        super().__init__(facts["name"], "container", facts["pid"])
        self.facts = facts
        self.cgroups = container.cgroups
        self._exists = container.exists
        self._listed = next((c for c in self.cgroups if c.folder is not None), self.cgroups[0])
        self._asked = 0.0
        self._gone = False
        self._shim = _parent(self.pid)

    @property
    def alive(self) -> bool:
        """True until the container is removed: a stopped container may be started again."""
        now = time.monotonic()
        quiet = now >= self._asked + _ASK_AGAIN_S
        if not self._gone and quiet and not self.members():
            # Ask the engine rarely: it may be a target, too.
            self._asked = now
            self._gone = not self._exists()
        return not self._gone

    @property
    def joined(self) -> bool:
        """True: `docker exec` (or podman's, ctr's) and a restart put processes into it."""
        return True

    @property
    def ends_with(self) -> int | None:
        """None: the container may be started again."""
        return None

    def members(self, tree: ProcessTree | None = None) -> dict[int, int]:
        """Returns every process in its cgroup, without the recorder."""
        found = self._listed.processes() - {os.getpid()}
        return dict.fromkeys(found, self._listed.hierarchy)

    def makers(self) -> set[int]:
        """Returns its shim, which starts processes in it, and containerd, which restarts it.

        podman's monitor is returned, too, but another process starts further processes.
        """
        if self._shim is None:
            return set()
        daemon = containerd.of_shim(self._shim)
        return {self._shim} if daemon is None else {self._shim, daemon}

    def describe(self) -> TargetFacts:
        """Returns the target's description for the manifest."""
        return {
            **super().describe(),
            "container": self.facts["id"],
            "engine": self.facts["engine"],
            "image": self.facts["image"],
            "cgroups": [cgroup.facts() for cgroup in self.cgroups],
            "makers": [] if self._shim is None else [self._shim],
        }


class AwaitedContainer(ContainerTarget):
    """Docker's first container that is made or started by this name; it need not exist yet.

    Until then it has no process. Its processes are recorded from their first one on, because
    containerd, which makes it, is followed (`makers`).
    """

    def __init__(self, name: str, since_s: float, containerd_pid: int | None) -> None:
        Target.__init__(self, name, "container")
        self.since_s = since_s
        """Time (s since 1970) from which on the daemon's events may tell of it."""
        self.identity: str | None = None
        self.cgroups: list[Cgroup] = []
        self.environment: dict[str, str] = {}
        """The environment variables that it was started with. They are not kept."""
        self.known: ContainerFacts | None = None
        """The facts of `docker inspect`, once it was started; None if it was removed before."""
        self.new = True
        """True until the recording has let it in."""
        self._wanted = name
        self._containerd = containerd_pid
        self._started = False
        self._next_look = 0.0
        self._shim: int | None = None
        self._asked = 0.0
        self._gone = False
        self._exists = self._in_docker

    def _in_docker(self) -> bool:
        return self.identity is not None and docker.exists(self.identity)

    def hear(self, event: str, identity: str, name: str) -> bool:
        """Takes in an event of a container. Returns whether it is this one's."""
        if self.identity is None:
            mine = name == self._wanted or is_id(self._wanted, identity)
            if not mine or event == "destroy":
                return False
            self.identity = identity
        if identity != self.identity:
            return False
        self._gone = event == "destroy"
        self._started = self._started or event == "start"
        return True

    def lies_in(self, paths: Mapping[int, str]) -> bool:
        """Notes its cgroups, path by hierarchy. Returns whether one of them was not known."""
        new = sorted(paths.keys() - {cgroup.hierarchy for cgroup in self.cgroups})
        mounts = {h.number: h for h in hierarchies()} if new else {}
        self.cgroups += [cgroup_at(mounts.get(number), number, paths[number]) for number in new]
        return bool(new)

    @property
    def unasked(self) -> bool:
        """True if it is time to `look`: it was started, and its facts are not known."""
        wanted = self._started and self.known is None and not self._gone
        return wanted and time.monotonic() >= self._next_look

    def look(self) -> None:
        """Asks the daemon for its facts, once it was started. Raises the errors of `Engine`."""
        assert self.identity is not None
        begun = time.monotonic()
        try:
            inspected = docker.inspect(self.identity)
        finally:
            ended = time.monotonic()
            self._next_look = ended + max(_ASK_AGAIN_S, _SHARE * (ended - begun))
        if inspected is None:
            return
        self.known = docker.facts(inspected)
        entries = (str(e).partition("=") for e in inspected.get("Config", {}).get("Env") or [])
        self.environment = {name: value for name, _, value in entries}
        if pid := self.known["pid"]:
            self.pid = pid
            self._shim = _parent(pid)
            self.lies_in({c.hierarchy: c.path for c in docker.cgroups(self.identity, pid)})

    @property
    def alive(self) -> bool:
        """True until the container is removed, also before it is made."""
        return not self._gone and (self.identity is None or super().alive)

    def members(self, tree: ProcessTree | None = None) -> dict[int, int]:
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
            found |= {"container": self.identity, "engine": DOCKER}
        if self.known is not None:
            found["image"] = self.known["image"]
        return found


def _parent(pid: int) -> int | None:
    try:
        parent = psutil.Process(pid).ppid()
    except psutil.NoSuchProcess:
        return None
    return parent if parent > 1 else None


def from_names(names: list[str], wait: bool = False, engine: str = AUTO) -> list[Target]:
    """Returns targets from `--container NAME` (names or ids), each container once.

    With `wait`, a container that does not run now is awaited, from Docker. Raises UsageError,
    TargetGone if a container does not exist or does not run, and the errors of engines.
    """
    engines = chosen(engine)
    if wait and engine not in (AUTO, DOCKER):
        raise UsageError(
            f"--wait awaits containers of Docker, and --engine is {engine}",
            "leave out --wait, and start the container first",
        )
    found: dict[str, Target] = {}
    asked_s = time.time()
    for name in names:
        if not name:
            raise UsageError("--container needs a name or an id", "see: docker ps, podman ps")
        container = _find_now(name, engines, wait)
        if container is None:
            found.setdefault(name, AwaitedContainer(name, asked_s, _containerd()))
        else:
            found.setdefault(container.facts["id"], _target(container))
    return list(found.values())


def _find_now(wanted: str, engines: list[Engine], wait: bool) -> Container | None:
    """Returns the answer of `_find`, and asks again while its process has ended.

    An engine tells of a process for some milliseconds after its end. A process that is not visible
    here looks the same, so only some time tells them apart.
    """
    deadline = time.monotonic() + _NOTICE_S
    while True:
        found = _find(wanted, engines, wait)
        if found is None or not found.facts["pid"] or time.monotonic() >= deadline:
            return found
        stat = read_stat(found.facts["pid"])
        if stat is not None and not stat.ended:
            return found
        time.sleep(_AGAIN_S)


def _find(wanted: str, engines: list[Engine], wait: bool) -> Container | None:
    """Returns the container of this name; None if it is awaited from Docker."""
    every: list[Container] = []
    refusals: dict[str, TracerError] = {}
    for engine in engines:
        try:
            every += engine.find(wanted)
        except TracerError as error:
            refusals[engine.name] = error
    known: dict[str, Container] = {}
    for container in [c for c in every if c.proven] or every:
        known.setdefault(container.facts["id"], container)  # Docker's are containerd's, too
    found = list(known.values())
    running = [container for container in found if container.facts["pid"]]
    found = running or found
    if wait and not running:
        if (refused := refusals.get(DOCKER)) is not None:
            what = f"--wait awaits containers of Docker, and {refused.what}"
            raise type(refused)(what, refused.mend)
        return None
    if not found:
        # A Docker daemon need not be there if another engine is.
        others = [e for e in engines if e.name not in refusals and e.found()]
        if refusals and not others:
            raise next(iter(refusals.values()))
        names = sorted({name for engine in others for name in engine.names()})
        unasked = [refusals[e.name].what for e in engines if e.name in refusals and e.found()]
        raise TargetGone(f"there is no container {wanted!r}", "; ".join([_which(names), *unasked]))
    if len(found) > 1:
        raise _ambiguous(wanted, found)
    return found[0]


def _ambiguous(wanted: str, found: list[Container]) -> UsageError:
    engines = list(dict.fromkeys(container.engine for container in found))
    if len(engines) == len(found):
        return UsageError(
            f"several engines have a container {wanted!r}: {', '.join(engines)}",
            f"name one of them: --engine {engines[0]}",
        )
    which = [f"{c.facts['name']} ({c.engine}, {c.facts['id']})" for c in found]
    return UsageError(f"several containers are called {wanted!r}", f"give the id: {_some(which)}")


def _containerd() -> int | None:
    """Returns the pid of the Docker daemon's containerd; None if it is not visible here."""
    try:
        return containerd.of_dockerd(dockerd_pid())
    except (FeatureMissing, PermissionMissing):
        return None


def _which(names: list[str]) -> str:
    if not names:
        return "there are no containers: docker run ..., podman run ..."
    return f"there are: {_some(names)}"


def _some(names: list[str]) -> str:
    return ", ".join(names[:_NAMES_SHOWN]) + (", ..." if len(names) > _NAMES_SHOWN else "")


def _target(container: Container) -> ContainerTarget:
    name, pid = container.facts["name"], container.facts["pid"]
    if not pid:
        raise TargetGone(f"container {name} is not running ({container.state})", container.start)
    if container.engine == PODMAN and not container.cgroups:  # podman's processes are visible
        raise FeatureMissing(
            f"container {name} has no cgroup of its own (podman makes none for a user without "
            "delegated cgroups of version 2, or with --cgroups=disabled)",
            f"record its first process with its children: -p {pid}",
        )
    if not any(cgroup.exists() for cgroup in container.cgroups):
        raise FeatureMissing(
            f"no cgroup of container {name} is visible here",
            "record on the engine's machine (from a container: with --pid=host and its "
            f"/sys/fs/cgroup), or record its first process: -p {pid}",
        )
    return ContainerTarget(container)


def seen_since(
    begun_s: float, before: dict[str, ContainerFacts] | None
) -> dict[str, ContainerFacts] | None:
    """Returns `before`, the running containers, and those started since `begun_s` (s since 1970).

    Returns only `before` if no engine answers, or none is there.
    """
    found = dict(before or {})
    told: set[str] = set()
    answered = before is not None
    for engine in chosen(AUTO):
        try:
            if engine.found():
                for facts in engine.seen_since(begun_s):
                    identity = facts["id"]
                    # Docker's containers are containerd's, too. One that has ended since keeps
                    # the facts of its time.
                    if identity not in told and (facts["pid"] or identity not in found):
                        found[identity] = facts
                    told.add(identity)
                answered = True
        except TracerError:
            continue
    return found if answered else None
