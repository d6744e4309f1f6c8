"""Cgroup hierarchies by their numbers, and what a cgroup's path tells of a container."""

from __future__ import annotations

import re

UNIFIED = 0
"""The hierarchy of version 2, as /proc/PID/cgroup and cgroup events number it."""
BY_DESCENT = -1
"""A value in place of a hierarchy: a process belongs to a target because its parent does."""

_ID = re.compile(r"(?:^|[/:-])([0-9a-f]{64})(?:\.scope)?(?=/|$)")


def container_id(path: str | None) -> str | None:
    """The container that a cgroup belongs to, by its path; None: to none.

    Docker, containerd and Podman name a container's cgroup by its id of 64 hexadecimal digits:
    /docker/ID, /system.slice/docker-ID.scope. Of containers within containers it is the
    innermost.
    """
    found = _ID.findall(path or "")
    return found[-1] if found else None
