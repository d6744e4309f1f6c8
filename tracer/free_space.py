"""The free space of a disk. A part of it stays free, because a full disk stops other programs."""

from __future__ import annotations

import errno
import os
import sys
from pathlib import Path

MOST_SPARE_BYTES = 1 << 30
_SPARE_PARTS = 20


def free_bytes(place: Path | int) -> int:
    """Returns the bytes that this user may still write to the file system of a path or descriptor.

    `sys.maxsize` if the file system does not tell its size, as some in user space.
    """
    found = os.statvfs(place)
    return found.f_bavail * found.f_frsize if found.f_blocks else sys.maxsize


def spare_bytes(place: Path | int) -> int:
    """Returns the bytes that stay free: a twentieth of the file system, and 1 GiB at most."""
    found = os.statvfs(place)
    return min(MOST_SPARE_BYTES, found.f_blocks * found.f_frsize // _SPARE_PARTS)


def room_bytes(place: Path | int) -> int:
    """Returns the bytes that may be written so that the spare ones stay free."""
    return max(0, free_bytes(place) - spare_bytes(place))


def require_room(place: Path | int, size_bytes: int) -> None:
    """Raises OSError (ENOSPC) if `size_bytes` more would take of the spare bytes.

    Without it a large file would first take all that is left, and then fail.
    """
    if size_bytes > room_bytes(place):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
