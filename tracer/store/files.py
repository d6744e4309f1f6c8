"""Files: made whole or not at all, mode 0600, through no symbolic link, read up to a limit."""

from __future__ import annotations

import contextlib
import ctypes
import fcntl
import itertools
import os
import resource
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

from probes.errors import PermissionMissing

_OTHER_FILES = 256
_AT_ONCE = 10_000


def invoking_user() -> tuple[int, int] | None:
    """(uid, gid) of who called sudo, or None: then files are the process's own anyway."""
    try:
        uid, gid = int(os.environ["SUDO_UID"]), int(os.environ["SUDO_GID"])
    except (KeyError, ValueError):
        return None
    return (uid, gid) if os.geteuid() == 0 else None


@contextlib.contextmanager
def as_invoking_user() -> Iterator[None]:
    """Reach files with the rights of who called sudo, in this thread and those it starts.

    What is made in the `with` block is that user's, and lies where that user may write: root lends
    nobody its rights. Without sudo nothing changes. Raises PermissionMissing where this process
    has given up the right to change (CAP_SETUID, CAP_SETGID).
    """
    user = invoking_user()
    if user is None:
        yield
        return
    uid, gid = user
    own_uid, own_gid = os.geteuid(), os.getegid()
    try:
        _set_file_ids(uid, gid)
        yield
    finally:
        _set_file_ids(own_uid, own_gid)


def _set_file_ids(uid: int, gid: int) -> None:
    """Set the ids that file systems check for this thread: setfsuid(2), setfsgid(2)."""
    libc = ctypes.CDLL(None)
    # Each call returns the id before it, whether or not it changes anything.
    for change, number in ((libc.setfsgid, gid), (libc.setfsuid, uid)):
        change(number)
        if change(-1) != number:
            raise PermissionMissing(
                f"the rights of user {uid} cannot be taken on", "run as that user, without sudo"
            )


def give_to_user(fd: int) -> None:
    """Make the open file the invoking user's."""
    user = invoking_user()
    if user is not None:
        os.fchown(fd, *user)


def hand_over(folder: int, but: str) -> None:
    """Give an open folder, and all that is in it, to the invoking user: mode 0700, files 0600.

    Nobody else may be able to change what is in it until this ends, except in folders called
    `but`, which are left alone. The folder itself comes last.
    """
    with os.scandir(folder) as entries:
        for entry in entries:
            if entry.name == but:
                continue
            kind = os.O_DIRECTORY if entry.is_dir(follow_symlinks=False) else os.O_NONBLOCK
            fd = os.open(
                entry.name, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | kind, dir_fd=folder
            )
            try:
                if kind == os.O_DIRECTORY:
                    hand_over(fd, but)
                else:
                    os.fchmod(fd, 0o600)
                    give_to_user(fd)
            finally:
                os.close(fd)
    os.fchmod(folder, 0o700)
    give_to_user(folder)


def empty(folder: int, most: int) -> None:
    """Remove what is in an open folder, however deep it lies, after at most `most` names.

    Others may add to it meanwhile. What lies in a folder in it is first moved up, so that no path
    gets longer; through no link. OSError where something cannot be removed.
    """
    number = itertools.count()
    left = most
    while left > 0 and (names := _some_of(folder, left)):
        left -= len(names)
        for name, is_folder in names.items():
            if not is_folder:
                os.unlink(name, dir_fd=folder)
                continue
            below = os.open(
                name, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=folder
            )
            try:
                for inner in _some_of(below, left):
                    os.rename(inner, f".moved-{next(number)}", src_dir_fd=below, dst_dir_fd=folder)
            finally:
                os.close(below)
            with contextlib.suppress(OSError):  # there is more in it, for the next round
                os.rmdir(name, dir_fd=folder)


def _some_of(folder: int, most: int) -> dict[str, bool]:
    """The first names in an open folder, and whether each is a folder."""
    with os.scandir(folder) as entries:
        some = itertools.islice(entries, min(most, _AT_ONCE))
        return {entry.name: entry.is_dir(follow_symlinks=False) for entry in some}


def hold(folder: int) -> None:
    """Lock an open folder, for as long as this process or one forked from it has it open.

    A file system without locks goes without.
    """
    with contextlib.suppress(OSError):
        fcntl.flock(folder, fcntl.LOCK_EX | fcntl.LOCK_NB)


def is_held(path: Path) -> bool | None:
    """Whether a process holds a folder by `hold`; None: its file system has no locks."""
    folder = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        fcntl.flock(folder, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:
        return None
    finally:
        os.close(folder)
    return False


def make_folder(path: Path) -> None:
    """Make a folder of mode 0700; FileExistsError where there is one."""
    path.mkdir(mode=0o700)


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
    return os.fdopen(os.open(path, flags, 0o600), "wb")


def write_whole(path: Path, data: bytes) -> None:
    """Put `data` in place of `path`, whole or not at all; a link there is replaced, not followed.

    The folder is looked up once: it may be renamed meanwhile, or another put in its place.
    """
    temporary = f".{path.name}.{os.getpid()}"
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    folder = os.open(path.parent, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(temporary, dir_fd=folder)
        try:
            with os.fdopen(os.open(temporary, flags, 0o600, dir_fd=folder), "wb") as out:
                out.write(data)
                out.flush()
                os.fsync(out.fileno())
            os.replace(temporary, path.name, src_dir_fd=folder, dst_dir_fd=folder)
        except OSError as error:
            with contextlib.suppress(OSError):
                os.unlink(temporary, dir_fd=folder)
            error.filename = str(path)
            raise
    finally:
        os.close(folder)


def open_regular(path: Path | str, dir_fd: int | None = None, follow: bool = False) -> BinaryIO:
    """A regular file, open for reading. ValueError for a link, a folder, a FIFO or a device.

    `follow`: follow a link; for files that the user names.
    """
    flags = os.O_PATH | os.O_CLOEXEC | (0 if follow else os.O_NOFOLLOW)
    found = os.open(path, flags, dir_fd=dir_fd)
    try:
        # Looked at before it is opened: to open a device may do something.
        if not stat.S_ISREG(os.fstat(found).st_mode):
            raise ValueError("no regular file")
        return os.fdopen(os.open(f"/proc/self/fd/{found}", os.O_RDONLY | os.O_CLOEXEC), "rb")
    finally:
        os.close(found)


def read_bounded(path: Path, limit: int, follow: bool = False) -> bytes:
    """The bytes of a regular file; ValueError where it is none or longer than `limit`."""
    with open_regular(path, follow=follow) as file:
        size = os.fstat(file.fileno()).st_size
        if size > limit:
            raise ValueError(f"longer than {limit} bytes")
        data = file.read(size + 1)  # memory is taken for as much as is asked for
        if len(data) > size:  # it has grown
            data += file.read(limit + 1 - len(data))
    if len(data) > limit:
        raise ValueError(f"longer than {limit} bytes")
    return data
