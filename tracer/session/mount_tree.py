"""Mount points, and the mounts that a path still reaches."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterable
from itertools import islice

from tracer.probes.openat import open_beneath
from tracer.probes.proc import MountPoint

_MOST_LISTED = 2_000_000
"""Entries of one folder read in search of a name, at most."""


def reachable(mounts: Iterable[MountPoint], dev: str) -> list[MountPoint]:
    """Returns the reachable mounts of file system `dev`, whole file systems and short paths first.

    Mounts below a file system that may never answer, or hidden by another mount, are left out.
    """
    known = {mount.number: mount for mount in mounts}
    children: dict[int, list[MountPoint]] = {}
    for mount in known.values():
        if mount.parent != mount.number:
            children.setdefault(mount.parent, []).append(mount)
    found = [m for m in known.values() if m.dev == dev and _leads_to(m, known, children)]
    return sorted(found, key=lambda m: (m.root != b"/", len(m.root), len(m.path), m.path))


def _leads_to(
    mount: MountPoint, known: dict[int, MountPoint], children: dict[int, list[MountPoint]]
) -> bool:
    """Returns whether a look-up of the mount's path ends in this mount."""
    seen = set()
    if any(child.path == mount.path for child in children.get(mount.number, [])):
        return False
    while mount.number not in seen:
        seen.add(mount.number)
        parent = known.get(mount.parent)
        if parent is None or parent is mount:
            return True
        if parent.answered_by_others:
            return False
        for other in children[parent.number]:
            # Another mount covers a folder on the way, or the parent's own mount point.
            if other is not mount and other.holds(mount.path) and other.path != mount.path:
                return False
        mount = parent
    return False


def leads_back(mount: MountPoint, mount_fd: int, path: bytes, facts: os.stat_result) -> bool | None:
    """Returns whether a path from the kernel leads to that inode in the open mount.

    A file that is itself a mount point keeps its name, as `/run/docker/netns/ID` does. Returns None
    if another mount covers one of its folders.
    """
    start = mount.path.rstrip(b"/") + b"/"
    if not path.startswith(start) or len(path) == len(start):
        return False
    below = path[len(start) :]
    try:
        fd = open_beneath(mount_fd, below)
    except OSError as error:
        return error.errno == errno.EXDEV and _is_listed(mount_fd, below, facts.st_ino)
    try:
        there = os.fstat(fd)
    finally:
        os.close(fd)
    return (there.st_dev, there.st_ino) == (facts.st_dev, facts.st_ino)


def _is_listed(mount_fd: int, path: bytes, ino: int) -> bool | None:
    """Returns whether a folder lists the inode under that name; None if a mount covers the folder.

    A folder lists the inodes of its own file system, also those that are mount points.
    """
    folder, _, name = path.rpartition(b"/")
    try:
        fd = open_beneath(mount_fd, folder or b".", os.O_RDONLY | os.O_DIRECTORY)
    except OSError as error:
        return None if error.errno == errno.EXDEV else False
    try:
        with os.scandir(fd) as listed:
            entries = islice(listed, _MOST_LISTED)
            return any(e.inode() == ino and os.fsencode(e.name) == name for e in entries)
    except OSError:
        return False
    finally:
        os.close(fd)


def device_of(mounts: Iterable[MountPoint], path: bytes) -> str | None:
    """Returns the device of a path that lies below a file system that may never answer; else None.

    The path is the kernel's own, without links.
    """
    mounts = list(mounts)
    if not any(m.answered_by_others for m in mounts if m.holds(path)):
        return None
    mount = mount_of(mounts, path)
    return None if mount is None else mount.dev


def mount_of(mounts: Iterable[MountPoint], path: bytes) -> MountPoint | None:
    """Returns the mount that holds a path. The path is the kernel's own, without links."""
    on_the_way = [mount for mount in mounts if mount.holds(path)]
    # Among mounts on the same place, the last one counts.
    found = max(enumerate(on_the_way), key=lambda each: (len(each[1].path), each[0]), default=None)
    return None if found is None else found[1]
