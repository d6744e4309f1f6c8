"""Where file systems are mounted, and which of the mounts a path still leads to."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from probes.proc import MountPoint, lines, read_mounts

ANSWERED_BY_OTHERS = (b"fuse", b"nfs", b"cifs", b"smb", b"autofs", b"9p", b"ceph", b"afs")
"""Types (their beginnings) whose answers come from elsewhere, and may never come."""


def reachable(mounts: Iterable[MountPoint], dev: str) -> list[MountPoint]:
    """Mounts of file system `dev` that their paths lead to: whole ones and short paths first.

    Left out is what lies below a file system that might not answer, or under another mount.
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
    """Whether a look-up of the mount's path ends in it."""
    seen = set()
    if any(child.path == mount.path for child in children.get(mount.number, [])):
        return False
    while mount.number not in seen:
        seen.add(mount.number)
        parent = known.get(mount.parent)
        if parent is None or parent is mount:
            return True
        if parent.kind.startswith(ANSWERED_BY_OTHERS):
            return False
        for other in children[parent.number]:
            # A folder on the way, or the parent's own place, has something else mounted on it.
            if other is not mount and _holds(other.path, mount.path) and other.path != mount.path:
                return False
        mount = parent
    return False


def _holds(folder: bytes, path: bytes) -> bool:
    return path == folder or path.startswith(folder.rstrip(b"/") + b"/")


def in_user_space(fd: int, pid: int) -> bool:
    """Whether another process answers for an open file, or place, that process `pid` can see.

    Also where its mount is neither among those that the process sees nor among ours: of a process
    that has changed its root, the kernel tells only those below that. OSError where it is gone.
    """
    told = next(line for line in lines(f"/proc/self/fdinfo/{fd}") if line.startswith("mnt_id:"))
    number = int(told.partition(":")[2])
    mounts = read_mounts(Path(f"/proc/{pid}/mountinfo")) + read_mounts()
    kinds = [mount.kind for mount in mounts if mount.number == number]
    return not kinds or kinds[0].startswith(b"fuse")


def device_of(mounts: Iterable[MountPoint], path: bytes) -> str | None:
    """The file system that a path leads to through one that might not answer; None: through none.

    The path is the kernel's own, without links.
    """
    mounts = list(mounts)
    if not any(m.kind.startswith(ANSWERED_BY_OTHERS) for m in mounts if _holds(m.path, path)):
        return None
    mount = mount_of(mounts, path)
    return None if mount is None else mount.dev


def mount_of(mounts: Iterable[MountPoint], path: bytes) -> MountPoint | None:
    """The mount that a path, which is the kernel's own and without links, lies in."""
    on_the_way = [mount for mount in mounts if _holds(mount.path, path)]
    # Of those mounted on one place the last one counts.
    found = max(enumerate(on_the_way), key=lambda each: (len(each[1].path), each[0]), default=None)
    return None if found is None else found[1]
