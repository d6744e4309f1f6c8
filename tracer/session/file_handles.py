"""Opens files by inode number and reads their birth time: system calls that Python lacks."""

from __future__ import annotations

import ctypes
import errno
import fcntl
import os
import struct

from tracer.probes.libc import checked, libc, os_error

_AT_EMPTY_PATH = 0x1000
_STATX_BTIME = 0x800
_STATX_BYTES, _BTIME_AT = 256, 80
_HANDLE_BYTES = 128

# Kinds of handles (include/linux/exportfs.h, fs/xfs/xfs_export.h, fs/btrfs/export.h).
_INO32_GEN, _XFS_INO64_GEN, _BTRFS = 1, 0x81, 0x4D

_XFS_IOC_BULKSTAT = 0x8040587F
"""_IOR('X', 127, struct xfs_bulkstat_req): fs/xfs/libxfs/xfs_fs.h."""
_BULKSTAT_HEAD = struct.Struct("=QIII I40x")
_BULKSTAT_BYTES, _BULKSTAT_GEN_AT = 256, 64

_BTRFS_IOC_TREE_SEARCH = 0xD0009411
"""_IOWR(0x94, 17, struct btrfs_ioctl_search_args): include/uapi/linux/btrfs.h. Subvolumes other
than the one at the top are items of the tree of roots (include/uapi/linux/btrfs_tree.h)."""
_SEARCH = struct.Struct("=7Q3I")
_SEARCH_BYTES = 4096
_ROOT_TREE, _TOP_SUBVOLUME, _FIRST_SUBVOLUME, _ROOT_ITEM = 1, 5, 256, 132


def open_inode(mount_fd: int, kind: bytes, ino: int, root: int | None = None) -> int:
    """Returns a descriptor (O_PATH) of inode `ino` in the file system of the folder `mount_fd`.

    `kind` is the file system's type, `root` the subvolume on btrfs. Nothing is opened for reading,
    so devices and FIFOs are not affected. OSError: ESTALE if the inode does not exist, EOPNOTSUPP
    if the file system has no handles, EPERM without CAP_DAC_READ_SEARCH.
    """
    # Generation 0 matches any generation, except on xfs.
    if kind == b"xfs":
        what, handle = _XFS_INO64_GEN, struct.pack("=QI", ino, _xfs_generation(mount_fd, ino))
    elif kind == b"btrfs" and root is not None:
        what, handle = _BTRFS, struct.pack("=QQI", ino, root, 0)
    elif kind in (b"ext2", b"ext3", b"ext4") and ino < 1 << 32:
        what, handle = _INO32_GEN, struct.pack("=II", ino, 0)
    else:
        raise os_error(errno.EOPNOTSUPP)
    packed = ctypes.create_string_buffer(
        struct.pack("=Ii", len(handle), what) + handle, 8 + _HANDLE_BYTES
    )
    flags = os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC
    return checked(libc().open_by_handle_at(mount_fd, packed, flags))


def sole_subvolume(mount_fd: int) -> int | None:
    """Returns the number of a btrfs file system's subvolume; None if it has several.

    Raises OSError without CAP_SYS_ADMIN.
    """
    asked = bytearray(_SEARCH_BYTES)
    objects, everything = (_FIRST_SUBVOLUME, (1 << 64) - 256), (0, (1 << 64) - 1)
    _SEARCH.pack_into(
        asked, 0, _ROOT_TREE, *objects, *everything, *everything, _ROOT_ITEM, _ROOT_ITEM, 1
    )
    fcntl.ioctl(mount_fd, _BTRFS_IOC_TREE_SEARCH, asked)
    return None if _SEARCH.unpack_from(asked)[-1] else _TOP_SUBVOLUME


def _xfs_generation(mount_fd: int, ino: int) -> int:
    reply = bytearray(_BULKSTAT_HEAD.size + _BULKSTAT_BYTES)
    _BULKSTAT_HEAD.pack_into(reply, 0, ino, 0, 1, 0, 0)
    fcntl.ioctl(mount_fd, _XFS_IOC_BULKSTAT, reply)
    found = struct.unpack_from("=Q", reply, _BULKSTAT_HEAD.size)[0]
    if _BULKSTAT_HEAD.unpack_from(reply)[3] != 1 or found != ino:
        # The reply describes the next existing inode.
        raise os_error(errno.ESTALE)
    generation: int = struct.unpack_from("=I", reply, _BULKSTAT_HEAD.size + _BULKSTAT_GEN_AT)[0]
    return generation


def birth_ns(fd: int) -> int | None:
    """Returns a file's birth time in ns of CLOCK_REALTIME; None if it is unknown."""
    statx = getattr(libc(), "statx", None)
    if statx is None:
        return None
    reply = ctypes.create_string_buffer(_STATX_BYTES)
    if statx(fd, b"", _AT_EMPTY_PATH, _STATX_BTIME, reply) != 0:
        return None
    if not struct.unpack_from("=I", reply)[0] & _STATX_BTIME:
        return None
    seconds, ns = struct.unpack_from("=qI", reply, _BTIME_AT)
    return int(seconds) * 1_000_000_000 + int(ns)
