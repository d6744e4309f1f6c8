"""Files opened and read as hostile input.

They are read with `pread`, not mapped: if a mapped file is truncated, access to the mapping kills
the reader with SIGBUS. Besides, only some sections of a large library are needed.
"""

from __future__ import annotations

import os
import stat

from tracer.probes.errors import TracerError
from tracer.probes.symbols.budget import Reason
from tracer.probes.text import printable

PathOrFd = str | bytes | os.PathLike[str] | int


class UnreadableSymbols(TracerError):
    """A file whose symbols cannot be read: it is gone, refused, or of another kind.

    reason  limit that the file exceeds, or None
    """

    def __init__(self, what: str, mend: str = "", reason: Reason | None = None) -> None:
        super().__init__(what, mend)
        self.reason = reason


def shown(source: PathOrFd) -> str:
    """Returns the name of `source` for messages."""
    if isinstance(source, int):
        return f"file descriptor {source}"
    return printable(os.fsdecode(source))


def open_regular(source: PathOrFd) -> tuple[int, os.stat_result]:
    """Opens a regular file; returns a new descriptor, which the caller owns, and its `fstat`.

    `source` is a path or a descriptor; a descriptor stays open and keeps its position. Pipes and
    devices are refused before they are opened, because opening some of them has effects. Raises
    UnreadableSymbols.
    """
    try:
        if isinstance(source, int):
            fd = os.dup(source)
        else:
            fd = for_reading(os.open(source, os.O_PATH | os.O_CLOEXEC))
    except (OSError, ValueError, OverflowError) as error:
        raise UnreadableSymbols(f"{shown(source)} cannot be opened: {error}") from error
    try:
        status = os.fstat(fd)
        if not stat.S_ISREG(status.st_mode):
            raise UnreadableSymbols(f"{shown(source)} is not a regular file")
    except BaseException:
        os.close(fd)
        raise
    return fd, status


def for_reading(place: int) -> int:
    """Opens the regular file at `place`, an O_PATH descriptor, for reading; closes `place`.

    For anything but a regular file, returns a copy of the O_PATH descriptor. Raises OSError.
    """
    try:
        if not stat.S_ISREG(os.fstat(place).st_mode):
            return os.dup(place)
        flags = os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY
        return os.open(f"/proc/self/fd/{place}", flags)
    finally:
        os.close(place)


def read_at(fd: int, offset: int, size: int) -> bytes:
    """Returns `size` bytes from `offset`; fewer if the file ends. Raises UnreadableSymbols.

    The caller must limit `size`.
    """
    parts = []
    try:
        while size > 0:
            part = os.pread(fd, size, offset)
            if not part:
                break
            parts.append(part)
            offset += len(part)
            size -= len(part)
    except (OSError, OverflowError) as error:
        raise UnreadableSymbols(f"reading symbols failed: {error}") from error
    return parts[0] if len(parts) == 1 else b"".join(parts)


def read_whole(fd: int, limit: int) -> bytes | None:
    """Returns a whole file; None if it has more than `limit` bytes.

    The size from `fstat` is not used, because it is 0 for files of /proc. Raises
    UnreadableSymbols.
    """
    parts = []
    size = 0
    while part := read_at(fd, size, min(1 << 20, limit + 1 - size)):
        parts.append(part)
        size += len(part)
        if size > limit:
            return None
    return b"".join(parts)
