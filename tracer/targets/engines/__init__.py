"""The engines whose containers can be recorded: Docker, podman, containerd (also Kubernetes).

Docker's daemon is asked by its own SDK. podman and containerd are not asked: a monitor process of
each running container (conmon, containerd-shim) leads to the engine's files about it.
"""

from __future__ import annotations

from tracer.probes.errors import UsageError
from tracer.targets.engines.engine import Container, Engine

AUTO = "auto"
DOCKER, PODMAN, CONTAINERD = "docker", "podman", "containerd"
ABOUT = {
    AUTO: "all that are found",
    DOCKER: "the daemon at DOCKER_HOST",
    PODMAN: "of all users, also CRI-O",
    CONTAINERD: "ctr, nerdctl, Kubernetes",
}
"""The names that a user can choose, each with what it stands for."""

__all__ = ["ABOUT", "AUTO", "CONTAINERD", "DOCKER", "PODMAN", "Container", "Engine", "chosen"]


def chosen(name: str) -> list[Engine]:
    """Returns the engines that a name stands for. Raises UsageError for an unknown name."""
    if name not in ABOUT:
        raise UsageError(f"there is no engine {name!r}", f"choose from {', '.join(ABOUT)}")
    from tracer.targets.engines.containerd import Containerd
    from tracer.targets.engines.docker import Docker
    from tracer.targets.engines.podman import Podman

    engines: list[Engine] = [Docker(), Podman(), Containerd()]
    return [engine for engine in engines if name in (AUTO, engine.name)]
