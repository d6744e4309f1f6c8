"""Files opened without leaving a folder, and facts about open files: openat2(2), statx(2)."""

from __future__ import annotations

import ctypes
import errno
import os
import stat
import struct
from dataclasses import dataclass

from tracer.probes.libc import checked, libc, os_error

_OPENAT2 = 437
"""Number of the call on every architecture except alpha."""
_NO_XDEV, _NO_MAGICLINKS, _NO_SYMLINKS, _BENEATH, _IN_ROOT = 1, 2, 4, 8, 16
_AT_EMPTY_PATH, _DONT_SYNC, _BASIC = 0x1000, 0x4000, 0x7FF
_STATX_BYTES, _MODE_AT, _DEVICE_AT = 256, 28, 136
"""struct statx: include/uapi/linux/stat.h."""


@dataclass(frozen=True)
class Known:
    """Facts about an open file that the kernel knows without asking a server."""

    mode: int
    device: int
    inode: int


def known(fd: int) -> Known:
    """Returns the kernel's facts about an open file or an O_PATH descriptor. Raises OSError.

    `fstat` would ask the server of a network file system and wait for its answer.
    """
    reply = ctypes.create_string_buffer(_STATX_BYTES)
    checked(libc().statx(fd, b"", _AT_EMPTY_PATH | _DONT_SYNC, _BASIC, reply))
    mode, inode = struct.unpack_from("=H2xQ", reply, _MODE_AT)
    major, minor = struct.unpack_from("=II", reply, _DEVICE_AT)
    return Known(mode, os.makedev(major, minor), inode)


def open_regular(
    path: str | os.PathLike[str], dir_fd: int | None = None, follow: bool = False
) -> int:
    """Opens a regular file for reading; `follow` follows a link.

    ValueError for a link, a folder, a FIFO or a device. It is not opened: that may have an effect.
    """
    flags = os.O_PATH | os.O_CLOEXEC | (0 if follow else os.O_NOFOLLOW)
    found = os.open(path, flags, dir_fd=dir_fd)
    try:
        if not stat.S_ISREG(os.fstat(found).st_mode):
            raise ValueError("not a regular file")
        return os.open(f"/proc/self/fd/{found}", os.O_RDONLY | os.O_CLOEXEC)
    finally:
        os.close(found)


def open_beneath(mount_fd: int, name: bytes, flags: int = os.O_PATH) -> int:
    """Opens `name` below the folder; follows no link and enters no other mount.

    Raises the OSErrors of openat2(2), e.g. EXDEV and ELOOP; ENOSYS before kernel 5.6.
    """
    how = struct.pack(
        "=QQQ",
        flags | os.O_NOFOLLOW | os.O_CLOEXEC,
        0,
        _NO_XDEV | _NO_MAGICLINKS | _NO_SYMLINKS | _BENEATH,
    )
    return checked(libc().syscall(_OPENAT2, mount_fd, name, how, ctypes.c_size_t(len(how))))


def open_in_root(pid: int, path: str, flags: int) -> int:
    """Opens a path as a process would, but never outside the process's root folder.

    A relative path must stay below the process's working folder. Links are followed as the process
    would follow them, except the magic links of /proc, which can lead anywhere. Raises the OSErrors
    of openat2(2).
    """
    absolute = path.startswith("/")
    base = os.open(f"/proc/{pid}/{'root' if absolute else 'cwd'}", os.O_PATH | os.O_CLOEXEC)
    try:
        resolve = _NO_MAGICLINKS | (_IN_ROOT if absolute else _BENEATH)
        how = struct.pack("=QQQ", flags | os.O_CLOEXEC, 0, resolve)
        name = os.fsencode(path)
        found = libc().syscall(_OPENAT2, base, name, how, ctypes.c_size_t(len(how)))
        try:
            return checked(found)
        except OSError as error:
            if error.errno != errno.ENOSYS:
                raise
        return _open_step_by_step(base, name, flags)  # before kernel 5.6 (fddb5d430ad9)
    finally:
        os.close(base)


def open_folder(path: str) -> int:
    """Opens a folder by its absolute path without following any link. Raises OSError."""
    here = os.open("/", os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    for part in path.split("/"):
        if part:
            try:
                step = os.O_PATH | os.O_NOFOLLOW | os.O_DIRECTORY | os.O_CLOEXEC
                below = os.open(part, step, dir_fd=here)
            finally:
                os.close(here)
            here = below
    try:
        return os.open(".", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC, dir_fd=here)
    finally:
        os.close(here)


def _open_step_by_step(base: int, path: bytes, flags: int) -> int:
    """Opens a path below `base` without openat2; follows no link at all."""
    here = os.dup(base)
    try:
        for part in [part for part in path.split(b"/") if part not in (b"", b".")]:
            if part == b"..":
                raise os_error(errno.EXDEV)
            step = os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC
            below = os.open(part, step, dir_fd=here)
            os.close(here)
            here = below
        if stat.S_ISLNK(os.fstat(here).st_mode):
            raise os_error(errno.ELOOP)
        return os.open(f"/proc/self/fd/{here}", flags | os.O_CLOEXEC)
    finally:
        os.close(here)
