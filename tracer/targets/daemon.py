"""The Docker daemon: dockerd, its containerd, the shims, and their helper processes."""

from __future__ import annotations

import os

from tracer.probes.cgroups import BY_DESCENT, container_id
from tracer.probes.errors import FeatureMissing
from tracer.probes.kernel import process_start_time
from tracer.probes.proc import processes_called
from tracer.store.manifest_parts import TargetFacts
from tracer.targets import containerd, docker_api
from tracer.targets.cgroups import of_process
from tracer.targets.containerd import name_of, sockets_of
from tracer.targets.target import Target
from tracer.targets.tree import ProcessTree


class DaemonTarget(Target):
    """dockerd, containerd and the shims, and their descendants except the containers' processes.

    A process that the daemon runs to make a container (runc, docker-proxy, hooks) belongs to the
    daemon until it enters the container's cgroup.
    """

    def __init__(self, dockerd: int, others: list[int]) -> None:
        name = name_of(dockerd) or "dockerd"
        super().__init__(name, "daemon", dockerd, process_start_time(dockerd), "daemon")
        self.roots = [dockerd, *others]
        self._own = _container(dockerd)

    def members(self, tree: ProcessTree | None = None) -> dict[int, int]:
        """Returns the daemon's processes now. A daemon in a container includes that container."""
        tree = tree or ProcessTree()
        found = tree.descendants(self.roots, lambda pid: _container(pid) not in (None, self._own))
        return dict.fromkeys(found, BY_DESCENT)

    def describe(self) -> TargetFacts:
        """Returns the target's description for the manifest."""
        return {**super().describe(), "processes": self.roots}


def from_socket() -> Target:
    """Returns the daemon that DOCKER_HOST names. Raises as `docker_api.listener` does."""
    dockerd = dockerd_pid()
    own = containerd.of_dockerd(dockerd)
    others = [] if own is None else [own, *containerd.shims_of(own)]
    return DaemonTarget(dockerd, others)


def dockerd_pid() -> int:
    """Returns the dockerd that DOCKER_HOST names. Raises as `docker_api.listener` does."""
    docker_api.listener()
    with docker_api.Engine():
        pass  # with systemd socket activation, this connection starts the daemon
    dockerd = docker_api.listener()
    if name_of(dockerd) in ("systemd", "init", None):
        dockerd = _holder(docker_api.socket_path() or "")
    return dockerd


def _holder(path: str) -> int:
    """Returns the dockerd that holds a socket which systemd opened for it."""
    real = os.path.realpath(path)
    for pid in processes_called("dockerd"):
        if name_of(pid) == "dockerd" and real in sockets_of(pid):
            return pid
    raise FeatureMissing(
        f"the process that listens on {path} is not visible here",
        "record in the Docker daemon's pid namespace and as its user",
    )


def _container(pid: int) -> str | None:
    """Returns the container whose cgroup holds a process; None if there is none."""
    return next(filter(None, map(container_id, of_process(pid).values())), None)
