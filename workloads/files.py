"""Files that a job writes: new or truncated, never through a symbolic link.

A job may run as root in a folder that another user can write into. A link there could redirect its
writes to any file. `tracer.store.files` does the same for the tracer; jobs also run where the
tracer is not installed.
"""

from __future__ import annotations

import errno
import os
import stat
from io import FileIO
from pathlib import Path
from typing import BinaryIO

_FLAGS = os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


def open_anew(path: Path) -> BinaryIO:
    """Opens a new or truncated file for buffered writes.

    Raises OSError for a symbolic link, a file with several hard links, and anything but a regular
    file.
    """
    return os.fdopen(_anew(path), "wb")


def open_unbuffered(path: Path) -> FileIO:
    """Opens a file as `open_anew` does, unbuffered: each write reaches the kernel at once."""
    return os.fdopen(_anew(path), "wb", buffering=0)


def open_in_place(path: Path) -> FileIO:
    """Opens a new or existing file from its beginning, without truncating it; unbuffered.

    Raises the same OSError.
    """
    return os.fdopen(_regular(path), "wb", buffering=0)


def write_anew(path: Path, data: bytes | memoryview) -> None:
    """Writes `data` as the whole content of a new or existing file. Raises the same OSError."""
    with open_anew(path) as file:
        file.write(data)


def _anew(path: Path) -> int:
    fd = _regular(path)
    try:
        os.ftruncate(fd, 0)
    except BaseException:
        os.close(fd)
        raise
    return fd


def _regular(path: Path) -> int:
    fd = os.open(path, _FLAGS, 0o666)
    try:
        status = os.fstat(fd)
        if not stat.S_ISREG(status.st_mode) or status.st_nlink > 1:
            raise OSError(errno.EEXIST, "it is not a regular file with a single link", str(path))
    except BaseException:
        os.close(fd)
        raise
    return fd
