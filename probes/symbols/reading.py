"""Files opened and read as if an enemy had made them.

Read by `pread` and not mapped: a mapping of a file that is cut short while one looks at it kills
the reader with SIGBUS, and only some sections of a large library are needed anyway.
"""

from __future__ import annotations

import os
import stat
from pathlib import Path

from probes.errors import TracerError

PathOrFd = str | bytes | os.PathLike[str] | int


class UnreadableSymbols(TracerError):
    """A file whose symbols cannot be read: gone, refused, or not what it should be."""


def printable(text: str) -> str:
    """`text` with everything that could move a terminal's cursor as `\\x..` escapes."""
    if text.isprintable():
        return text
    return "".join(
        c if c.isprintable() else c.encode("unicode_escape", "backslashreplace").decode()
        for c in text
    )


def shown(source: PathOrFd) -> str:
    """What a message calls `source`."""
    if isinstance(source, int):
        return f"file descriptor {source}"
    return printable(os.fsdecode(source))


def open_regular(source: PathOrFd, follow: bool = True) -> tuple[int, os.stat_result]:
    """A descriptor of the caller's own for a regular file, and what `fstat` says of it.

    `source` is a path or a descriptor, which stays open and keeps its position. Pipes and
    devices are refused before they are opened, since opening some of them does something. With
    `follow` False a link is refused, too. Raises UnreadableSymbols.
    """
    try:
        if isinstance(source, int):
            fd = os.dup(source)
        else:
            if not stat.S_ISREG(Path(os.fsdecode(source)).stat(follow_symlinks=follow).st_mode):
                raise UnreadableSymbols(f"{shown(source)} is no regular file")
            flags = os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY
            fd = os.open(source, flags if follow else flags | os.O_NOFOLLOW)
    except (OSError, ValueError, OverflowError) as error:
        raise UnreadableSymbols(f"{shown(source)} cannot be opened: {error}") from error
    try:
        status = os.fstat(fd)
        if not stat.S_ISREG(status.st_mode):
            raise UnreadableSymbols(f"{shown(source)} is no regular file")
    except BaseException:
        os.close(fd)
        raise
    return fd, status


def read_at(fd: int, offset: int, size: int) -> bytes:
    """`size` bytes from `offset` on, fewer where the file ends. Raises UnreadableSymbols.

    The caller bounds `size`.
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
    """A whole file, whatever its size is said to be; None where it has more than `limit` bytes.

    Files of /proc say that they are empty. Raises UnreadableSymbols.
    """
    parts = []
    size = 0
    while part := read_at(fd, size, min(1 << 20, limit + 1 - size)):
        parts.append(part)
        size += len(part)
        if size > limit:
            return None
    return b"".join(parts)
