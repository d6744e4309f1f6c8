"""The folder of a data set: its path, its lock for one job at a time, and checks of its files."""

from __future__ import annotations

import fcntl
import os
import stat
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from tracer.free_space import room_bytes
from tracer.workloads.data.sets import DataRequest
from tracer.workloads.errors import JobError

MEND = "get the file again, or name an empty --data folder to have a set made there"
UNFINISHED = ".part"
"""Suffix of the names of files and folders until the whole set is written."""


def choose(request: DataRequest, kind: str, samples: int) -> Path:
    """Returns the requested folder; else one beside the output, named for the set drawn there."""
    if request.folder is not None:
        return request.folder.absolute()
    return request.output.absolute().parent / f"{kind}-seed{request.seed}-{samples}"


@contextmanager
def alone(folder: Path) -> Iterator[None]:
    """Locks a folder against other jobs while the block runs; the lock ends with the process."""
    fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX)
        yield
    finally:
        os.close(fd)


def finish(folder: Path, names: Sequence[str]) -> None:
    """Finishes the renames of a job that was killed after it had written all files of a set.

    `names`: the final names of the files, in the order of the renames.
    """
    if _unfinished(folder, names):
        with alone(folder):
            for name in _unfinished(folder, names):  # another job may have been about to do so
                (folder / (name + UNFINISHED)).rename(folder / name)


def _unfinished(folder: Path, names: Sequence[str]) -> list[str]:
    """Returns the names that are still missing, if some are not and each has its file."""
    found = {path.name for path in folder.iterdir()}
    missing = [name for name in names if name not in found]
    begun = missing == list(names[-len(missing) :]) and len(missing) < len(names)
    return missing if begun and {name + UNFINISHED for name in missing} <= found else []


def check_space(folder: Path, needed: int) -> None:
    """Raises JobError unless `folder` has room for `needed` bytes, and some for others."""
    room = room_bytes(folder)
    if needed > room:
        raise JobError(
            f"the set needs {needed} bytes in {folder}, which has room for {room}",
            "use fewer --samples, or name another folder",
        )


def open_regular(path: Path) -> int:
    """Opens a file to read and returns its descriptor.

    Raises JobError if it is not a regular file, and OSError if the system refuses.
    """
    # Without O_NONBLOCK, opening a named pipe would block the job.
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    if not stat.S_ISREG(os.fstat(fd).st_mode):
        os.close(fd)
        raise JobError(f"{path} is not a regular file", MEND)
    return fd
