"""The numbers of cgroup hierarchies, and the container id in a cgroup's path."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

UNIFIED = 0
"""Number of the version 2 hierarchy in /proc/PID/cgroup and in cgroup events."""
BY_DESCENT = -1
"""A value in place of a hierarchy: a process belongs to a target because its parent does."""

_ID = re.compile(r"(?:^|[/:]|(?<!-conmon)-)([0-9a-f]{64})(?:\.scope)?(?=/|$)")


def container_id(path: str | None) -> str | None:
    """Returns the id of the container that a cgroup belongs to, from its path; None if none.

    Docker, podman and Kubernetes name a container's cgroup by its id of 64 hexadecimal digits:
    /docker/ID, /system.slice/docker-ID.scope. If containers are nested, the id is that of the
    innermost one. A cgroup of podman's monitor (libpod-conmon-ID.scope) is no container's.
    """
    found = _ID.findall(path or "")
    return found[-1] if found else None


class Containers:
    """The containers of a recording, by their cgroups: also those with other names than an id."""

    def __init__(self, containers: Iterable[Mapping[str, Any]]) -> None:
        """`containers` of the manifest."""
        self._names: dict[str, str] = {}
        self._places: dict[str, str] = {}
        for facts in containers:
            self._names[facts["id"]] = facts["name"]
            for path in (facts.get("cgroup"), *facts.get("cgroups", ())):
                if path and path != "/":
                    self._places[path] = facts["id"]

    def of(self, path: str | None) -> str | None:
        """Returns the id of the innermost container that a cgroup belongs to; None if none."""
        place = path or ""
        while place and place != "/":
            found = self._places.get(place) or container_id(f"/{place.rpartition('/')[2]}")
            if found is not None:
                return found
            place = place.rpartition("/")[0]
        return None

    def name(self, identity: str | None) -> str | None:
        """Returns the name of a container; None if it is not known."""
        return self._names.get(identity or "")
