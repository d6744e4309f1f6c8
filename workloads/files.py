"""Files that a job writes: new, or cut to nothing, and through no symbolic link.

A job may run as root in a folder that another user can write into: a link there would have it
write anywhere. `tracer.store.files` does the same for the tracer; jobs run where no tracer is.
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
    """A file to write from its start, buffered. OSError for a link, and for what is no file."""
    return os.fdopen(_anew(path), "wb")


def open_unbuffered(path: Path) -> FileIO:
    """As `open_anew`; each write reaches the kernel at once."""
    return os.fdopen(_anew(path), "wb", buffering=0)


def write_anew(path: Path, data: bytes | memoryview) -> None:
    """Make a file of `data`, or put that in place of what a file holds; OSError as above."""
    with open_anew(path) as file:
        file.write(data)


def _anew(path: Path) -> int:
    fd = os.open(path, _FLAGS, 0o666)
    try:
        status = os.fstat(fd)
        if not stat.S_ISREG(status.st_mode) or status.st_nlink > 1:
            raise OSError(errno.EEXIST, "it is no file of one name", str(path))
        os.ftruncate(fd, 0)
    except BaseException:
        os.close(fd)
        raise
    return fd
