"""The numbers of cgroup hierarchies, and the container id in a cgroup's path."""

from __future__ import annotations

import re

UNIFIED = 0
"""Number of the version 2 hierarchy in /proc/PID/cgroup and in cgroup events."""
BY_DESCENT = -1
"""A value in place of a hierarchy: a process belongs to a target because its parent does."""

_ID = re.compile(r"(?:^|[/:-])([0-9a-f]{64})(?:\.scope)?(?=/|$)")


def container_id(path: str | None) -> str | None:
    """Returns the id of the container that a cgroup belongs to, from its path; None if none.

    Docker, containerd and Podman name a container's cgroup by its id of 64 hexadecimal digits:
    /docker/ID, /system.slice/docker-ID.scope. If containers are nested, the id is that of the
    innermost one.
    """
    found = _ID.findall(path or "")
    return found[-1] if found else None
