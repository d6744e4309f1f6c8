"""Docker: the daemon that DOCKER_HOST names is asked through Docker's own SDK."""

from __future__ import annotations

import time
from functools import partial
from typing import Any

from tracer.probes.errors import TracerError
from tracer.probes.text import shell_word
from tracer.store.manifest_parts import ContainerFacts
from tracer.targets import docker_api as api
from tracer.targets.cgroups import Cgroup, of_container
from tracer.targets.engines.engine import Container

_QUICK_S = 3.0
"""Timeout in s of a question to the daemon that a recording can do without."""


class Docker:
    """The containers of the Docker daemon."""

    name = "docker"

    def found(self) -> bool:
        """Returns whether a daemon may exist: its socket exists, or DOCKER_HOST names a network."""
        return api.expected()

    def find(self, wanted: str) -> list[Container]:
        """Returns the container of this name or id. Raises the errors of `api.Engine`."""
        with api.Engine() as docker:
            inspected = docker.inspect(wanted)
        return [] if inspected is None else [container(inspected)]

    def names(self) -> list[str]:
        """Returns the names of all containers. Raises the errors of `api.Engine`."""
        with api.Engine() as docker:
            return docker.names()

    def seen_since(self, begun_s: float) -> list[ContainerFacts]:
        """Returns the running containers and those started since `begun_s` (s since 1970)."""
        with api.Engine(_QUICK_S) as docker:
            found = {str(given["Id"]): facts(given) for given in docker.running()}
            started = docker.started_between(begun_s, time.time())
        for identity, (name, image) in started.items():
            found.setdefault(identity, {"id": identity, "name": name, "image": image, "pid": 0})
        return list(found.values())

    def present(self) -> list[ContainerFacts]:
        """Returns nothing: the daemon remembers."""
        return []

    def folders(self) -> list[int]:
        """Returns nothing: the daemon remembers."""
        return []


def container(inspected: dict[str, Any]) -> Container:
    """Returns a container by the data of `docker inspect`."""
    known = facts(inspected)
    return Container(
        Docker.name,
        known,
        cgroups(known["id"], known["pid"]),
        partial(exists, known["id"]),
        str(inspected.get("State", {}).get("Status", "stopped")),
        f"docker start {shell_word(known['name'])}",
    )


def inspect(identity: str) -> dict[str, Any] | None:
    """Returns the data of `docker inspect`, soon. Raises the errors of `api.Engine`."""
    with api.Engine(_QUICK_S) as docker:
        return docker.inspect(identity)


def exists(identity: str) -> bool:
    """Returns False once a container is removed, True if it exists or the daemon is silent."""
    try:
        return inspect(identity) is not None
    except TracerError:
        return True


def cgroups(identity: str, pid: int) -> list[Cgroup]:
    """Returns the container's cgroup in each hierarchy; empty if it does not run."""
    return of_container(pid, lambda path: identity in path) if pid else []


def facts(inspected: dict[str, Any]) -> ContainerFacts:
    """Returns the container's facts for the manifest, without its environment variables."""
    layers = inspected.get("GraphDriver", {}).get("Data") or {}
    pid = int(inspected.get("State", {}).get("Pid") or 0)
    identity = str(inspected["Id"])
    own = cgroups(identity, pid)
    return {
        "id": identity,
        "name": str(inspected.get("Name", "")).lstrip("/"),
        "image": str(inspected.get("Config", {}).get("Image", "")),
        "pid": pid,
        "engine": Docker.name,
        "cgroup": own[0].facts()["path"] if own else None,
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
