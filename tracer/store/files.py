"""Files of a trace: the invoking user's, mode 0600, following no symbolic link."""

from __future__ import annotations

import contextlib
import os
import resource
from pathlib import Path
from typing import BinaryIO

_OTHER_FILES = 256


def invoking_user() -> tuple[int, int] | None:
    """(uid, gid) of who called sudo, or None: then files are the process's own anyway."""
    try:
        uid, gid = int(os.environ["SUDO_UID"]), int(os.environ["SUDO_GID"])
    except (KeyError, ValueError):
        return None
    return (uid, gid) if os.geteuid() == 0 else None


def give_to_user(fd: int) -> None:
    """Make the open file the invoking user's."""
    user = invoking_user()
    if user is not None:
        os.fchown(fd, *user)


def make_folder(path: Path) -> None:
    """Make a folder of mode 0700; FileExistsError where there is one."""
    path.mkdir(mode=0o700)
    fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        give_to_user(fd)
    finally:
        os.close(fd)


def allow_open_files(count: int) -> None:
    """Raise the soft limit of open files to hold `count` more, as far as the hard one lets."""
    wanted = count + _OTHER_FILES
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft < wanted:
        most = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))


def create(path: Path) -> BinaryIO:
    """A new file, open for writing; FileExistsError where there is one."""
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    fd = os.open(path, flags, 0o600)
    give_to_user(fd)
    return os.fdopen(fd, "wb")


def write_whole(path: Path, data: bytes) -> None:
    """Put `data` in place of `path`, whole or not at all."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    with contextlib.suppress(FileNotFoundError):
        temporary.unlink()
    try:
        with create(temporary) as out:
            out.write(data)
            out.flush()
            os.fsync(out.fileno())
        temporary.replace(path)
    except OSError:
        with contextlib.suppress(OSError):
            temporary.unlink()
        raise


def read_bounded(path: Path, limit: int) -> bytes:
    """The bytes of a file that follows no link; ValueError where it is longer than `limit`."""
    fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK)
    with os.fdopen(fd, "rb") as file:
        data = file.read(limit + 1)
    if len(data) > limit:
        raise ValueError(f"longer than {limit} bytes")
    return data
