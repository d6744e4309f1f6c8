"""Files: written completely or not at all, mode 0600, no symbolic links, reads with a limit."""

from __future__ import annotations

import contextlib
import ctypes
import errno
import fcntl
import itertools
import os
import platform
import pwd
import resource
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import BinaryIO

from tracer.probes import openat
from tracer.probes.errors import PermissionMissing, TracerError
from tracer.probes.libc import libc
from tracer.probes.rights import caller_of_sudo

_OTHER_FILES = 256
_AT_ONCE = 10_000
_SYS_SETGROUPS = {"x86_64": 116, "aarch64": 159}
"""The call itself changes one thread; setgroups(3) changes all threads of the process."""
_ID = 0xFFFFFFFF
"""The bits of a user or group id."""


def invoking_user() -> tuple[int, int] | None:
    """Returns (uid, gid) of the caller of sudo; None without sudo: files are this process's own."""
    return caller_of_sudo()


@contextlib.contextmanager
def as_invoking_user() -> Iterator[None]:
    """Accesses files with the rights of the caller of sudo, in this thread and threads it starts.

    The rights are those of the user's id, group and further groups. Files made in the `with` block
    belong to that user and lie where that user may write, so root lends its rights to nobody.
    Import modules before the block: the user need not be able to read them. Without sudo nothing
    changes. Raises PermissionMissing if this process has given up the right to change (CAP_SETUID,
    CAP_SETGID).
    """
    user = invoking_user()
    if user is None:
        yield
        return
    theirs, before = _Rights(*user, _groups_of(*user)), _Rights.of_this_thread()
    try:
        theirs.adopt()
        yield
    finally:
        before.adopt()


_ELSEWHERE = "name another place with -o"
MENDS = {
    errno.ENOSPC: f"free space, or {_ELSEWHERE}",
    errno.EDQUOT: f"free space, or {_ELSEWHERE}",
    errno.EFBIG: "allow longer files (ulimit -f unlimited)",
    errno.EROFS: _ELSEWHERE,
    errno.EACCES: f"{_ELSEWHERE}, where you may write",
    errno.EPERM: f"{_ELSEWHERE}, where you may write",
}
"""Mends of errors of writing a file or folder."""


@contextlib.contextmanager
def writing(output: Path) -> Iterator[None]:
    """Writes the file or folder `output` with the rights of the caller of sudo.

    Errors are those of `explained`. Raises PermissionMissing if Python has to import a module that
    the caller of sudo may not read.
    """
    try:
        with explained(output), as_invoking_user():
            yield
    except ModuleNotFoundError as error:
        user = invoking_user()
        if user is None:
            raise
        raise PermissionMissing(
            f"user {user[0]} may not read the Python module {error.name}, or it is missing",
            "run this without sudo, with a Python that the user may read",
        ) from None


@contextlib.contextmanager
def explained(output: Path) -> Iterator[None]:
    """Names the file or folder `output` in errors of writing it.

    Raises TracerError with the mend if there is no room for it, PermissionMissing if it may not be
    written. Errors of files outside its folder are raised as they are.
    """
    try:
        yield
    except OSError as error:
        folder = output.absolute().parent
        named = error.filename
        if error.errno not in MENDS or (named and folder not in Path(named).absolute().parents):
            raise
        raise unwritable(output, error, MENDS[error.errno]) from None


def unwritable(output: Path | str, error: OSError, mend: str) -> TracerError:
    """Returns the error for the user if a file or folder is not written.

    It is PermissionMissing if it may not be, else TracerError: the name was no mistake.
    """
    kind = PermissionMissing if isinstance(error, PermissionError) else TracerError
    why = os.strerror(error.errno) if error.errno else error
    return kind(f"cannot write {output}: {why}", mend)


@dataclass(frozen=True)
class _Rights:
    """The ids that file systems check for a thread."""

    uid: int
    gid: int
    groups: tuple[int, ...]

    @staticmethod
    def of_this_thread() -> _Rights:
        # An id that does not exist changes nothing; the call returns the present one.
        uid, gid = (call(-1) & _ID for call in (libc().setfsuid, libc().setfsgid))
        return _Rights(uid, gid, tuple(os.getgroups()))

    def adopt(self) -> None:
        """Gives this thread these rights: setfsuid(2), setfsgid(2), setgroups(2)."""
        if sorted(os.getgroups()) != sorted(self.groups):
            groups = (ctypes.c_uint32 * len(self.groups))(*self.groups)
            number = ctypes.c_long(_SYS_SETGROUPS.get(platform.machine(), -1))
            if libc().syscall(number, ctypes.c_long(len(groups)), groups) != 0:
                raise self._refused()
        # Each call returns the previous id, whether or not it changes anything.
        for change, its in ((libc().setfsgid, self.gid), (libc().setfsuid, self.uid)):
            change(its)
            if change(-1) & _ID != its:
                raise self._refused()

    def _refused(self) -> PermissionMissing:
        return PermissionMissing(
            f"the rights of user {self.uid} cannot be adopted", "run as that user, without sudo"
        )


@cache
def _groups_of(uid: int, gid: int) -> tuple[int, ...]:
    """Returns the groups of a user, with the group `gid`; only that if the user is unknown."""
    try:
        return tuple(sorted({gid, *os.getgrouplist(pwd.getpwuid(uid).pw_name, gid)}))
    except (KeyError, OverflowError):
        return (gid,)


def give_to_user(fd: int) -> None:
    """Gives the open file to the invoking user."""
    user = invoking_user()
    if user is not None:
        os.fchown(fd, *user)


def hand_over(folder: int, but: str) -> None:
    """Gives an open folder and its contents to the invoking user: mode 0700, files 0600.

    Until this returns, nobody else may be able to change the contents, except in folders named
    `but`, which are skipped. The folder itself comes last.
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
    """Removes the contents of an open folder at any depth, at most `most` names.

    Others may add files meanwhile. The contents of inner folders are first moved up, so that no
    path gets longer. Links are not followed. OSError if something cannot be removed.
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
            with contextlib.suppress(OSError):  # not empty yet; the next round continues
                os.rmdir(name, dir_fd=folder)


def _some_of(folder: int, most: int) -> dict[str, bool]:
    """Returns the first names in an open folder, and whether each is a folder."""
    with os.scandir(folder) as entries:
        some = itertools.islice(entries, min(most, _AT_ONCE))
        return {entry.name: entry.is_dir(follow_symlinks=False) for entry in some}


def hold(folder: int) -> None:
    """Locks an open folder as long as this process or a process forked from it has it open.

    Does nothing on a file system without locks.
    """
    with contextlib.suppress(OSError):
        fcntl.flock(folder, fcntl.LOCK_EX | fcntl.LOCK_NB)


def is_held(path: Path) -> bool | None:
    """Returns whether a process holds a folder with `hold`; None if there are no locks."""
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
    """Makes a folder of mode 0700. Raises FileExistsError if it exists."""
    path.mkdir(mode=0o700)


def allow_open_files(count: int) -> None:
    """Raises the soft limit of open files by `count`, up to the hard limit."""
    wanted = count + _OTHER_FILES
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft < wanted:
        most = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))


def create(path: Path) -> BinaryIO:
    """Returns a new file, open for writing. Raises FileExistsError if it exists."""
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    return os.fdopen(os.open(path, flags, 0o600), "wb")


def write_whole(path: Path, data: bytes) -> None:
    """Replaces the file `path` by `data`, completely or not at all. A link there is replaced, too.

    The folder is looked up once, because it may be renamed or replaced meanwhile.
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
    """Opens a regular file for reading. ValueError for a link, a folder, a FIFO or a device.

    `follow` follows a link; use it for files that the user names.
    """
    return os.fdopen(openat.open_regular(path, dir_fd, follow), "rb")


def read_bounded(path: Path, limit: int, follow: bool = False) -> bytes:
    """Returns the bytes of a regular file. ValueError if it is not regular or exceeds `limit`."""
    with open_regular(path, follow=follow) as file:
        size = os.fstat(file.fileno()).st_size
        if size > limit:
            raise ValueError(f"longer than {limit} bytes")
        data = file.read(size + 1)  # read() allocates as many bytes as requested
        if len(data) > size:  # the file has grown
            data += file.read(limit + 1 - len(data))
    if len(data) > limit:
        raise ValueError(f"longer than {limit} bytes")
    return data
