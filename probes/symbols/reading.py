"""Files opened and read as if an enemy had made them.

Read by `pread` and not mapped: a mapping of a file that is cut short while one looks at it kills
the reader with SIGBUS, and only some sections of a large library are needed anyway.
"""

from __future__ import annotations

import os
import stat

from probes.errors import TracerError
from probes.symbols.budget import Reason

PathOrFd = str | bytes | os.PathLike[str] | int


class UnreadableSymbols(TracerError):
    """A file whose symbols cannot be read: gone, refused, or not what it should be.

    reason  where it is left out because it asks for too much
    """

    def __init__(self, what: str, mend: str = "", reason: Reason | None = None) -> None:
        super().__init__(what, mend)
        self.reason = reason


def printable(text: str) -> str:
    """`text` with everything that could move a terminal's cursor as `\\x..` escapes."""
    if text.isprintable():
        return text
    return "".join(
        c if c.isprintable() else c.encode("unicode_escape", "backslashreplace").decode()
        for c in text
    )


def shown(source: PathOrFd) -> str:
    """Returns the name of `source` for messages."""
    if isinstance(source, int):
        return f"file descriptor {source}"
    return printable(os.fsdecode(source))


def open_regular(source: PathOrFd) -> tuple[int, os.stat_result]:
    """A descriptor of the caller's own for a regular file, and what `fstat` says of it.

    `source` is a path or a descriptor, which stays open and keeps its position. Pipes and
    devices are refused before they are opened, since opening some of them does something. Raises
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
    """The regular file at a place (a descriptor of O_PATH, which is taken), open to be read.

    What is not a regular file stays the place that it is. Raises OSError.
    """
    try:
        if not stat.S_ISREG(os.fstat(place).st_mode):
            return os.dup(place)
        flags = os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY
        return os.open(f"/proc/self/fd/{place}", flags)
    finally:
        os.close(place)


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
