"""The folder that a data set lies in: where it is, one job at a time in it, no file but files."""

from __future__ import annotations

import fcntl
import os
import shutil
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from workloads.data.sets import DataRequest
from workloads.errors import JobError

MEND = "get the file again, or name an empty --data folder to have a set made there"
UNFINISHED = ".part"
"""What the names of files and folders end in until all of a set is written."""


def choose(request: DataRequest, kind: str, samples: int) -> Path:
    """The folder asked for; else one beside the output, named for what is drawn into it."""
    if request.folder is not None:
        return request.folder.absolute()
    return request.output.absolute().parent / f"{kind}-seed{request.seed}-{samples}"


@contextmanager
def alone(folder: Path) -> Iterator[None]:
    """Keep other jobs from writing into the same folder; the lock ends with the process."""
    fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX)
        yield
    finally:
        os.close(fd)


def check_space(folder: Path, needed: int) -> None:
    """Raise JobError unless `needed` bytes are free at `folder`."""
    free = shutil.disk_usage(folder).free
    if needed > free:
        raise JobError(
            f"the set needs {needed} bytes in {folder}, where {free} are free",
            "ask for fewer --samples, or name another folder",
        )


def open_regular(path: Path) -> int:
    """A descriptor to read the file by. Raises JobError where it is none, and OSError."""
    # Without O_NONBLOCK, a named pipe in the place of a file would hang the job.
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    if not stat.S_ISREG(os.fstat(fd).st_mode):
        os.close(fd)
        raise JobError(f"{path} is not a regular file", MEND)
    return fd
