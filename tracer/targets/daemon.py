"""The Docker daemon: dockerd, its containerd, the shims, and what they run for themselves."""

from __future__ import annotations

import os

import psutil

from probes.cgroups import BY_DESCENT, container_id
from probes.errors import FeatureMissing
from probes.kernel import process_start_time
from tracer.store.manifest import TargetFacts
from tracer.targets import containerd, engine
from tracer.targets.cgroups import of_process
from tracer.targets.containerd import name_of, sockets_of
from tracer.targets.processes import with_descendants
from tracer.targets.target import Target


class DaemonTarget(Target):
    """dockerd, containerd and the shims, and their descendants but for those of containers.

    What a daemon runs to make a container (runc, docker-proxy, hooks) is the daemon's until it
    enters the container's cgroup.
    """

    def __init__(self, dockerd: int, others: list[int]) -> None:
        name = name_of(dockerd) or "dockerd"
        super().__init__(name, "daemon", dockerd, process_start_time(dockerd), "daemon")
        self.roots = [dockerd, *others]
        self._own = _container(dockerd)

    def members(self) -> dict[int, int]:
        """The daemon's processes, now. A daemon that itself runs in a container has its own."""
        found = with_descendants(self.roots, lambda pid: _container(pid) not in (None, self._own))
        return dict.fromkeys(found, BY_DESCENT)

    def describe(self) -> TargetFacts:
        """For the manifest."""
        return {**super().describe(), "processes": self.roots}


def from_socket() -> Target:
    """The daemon that DOCKER_HOST names. Raises what `engine.Engine` and `listener` raise."""
    engine.listener()
    with engine.Engine():
        pass  # where systemd listens for it, this starts it
    dockerd = engine.listener()
    if name_of(dockerd) in ("systemd", "init", None):
        dockerd = _holder(engine.socket_path() or "")
    own = containerd.of_dockerd(dockerd)
    others = [] if own is None else [own, *containerd.shims_of(own)]
    return DaemonTarget(dockerd, others)


def _holder(path: str) -> int:
    """The dockerd that has a socket which systemd has opened for it."""
    real = os.path.realpath(path)
    for process in psutil.process_iter(["name"]):
        if process.info["name"] == "dockerd" and real in sockets_of(process.pid):
            return process.pid
    raise FeatureMissing(
        f"the process behind {path} is not to be found here",
        "record in the process namespace (and as the user) of the Docker daemon",
    )


def _container(pid: int) -> str | None:
    """The container in whose cgroup a process is."""
    return next(filter(None, map(container_id, of_process(pid).values())), None)
