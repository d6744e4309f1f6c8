"""Maps files to their places on the device, through the file system's FIEMAP.

Kernel: Documentation/filesystems/fiemap.rst; fs/xfs/libxfs/xfs_fs.h.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import struct
from collections.abc import Collection, Iterator

from tracer.probes.proc import read_mounts
from tracer.session.mount_tree import reachable
from tracer.store.manifest_parts import FileSystem

_FIEMAP = 0xC020660B
"""_IOWR('f', 11, struct fiemap)."""
_HEAD = struct.Struct("=QQIIII")
_EXTENT = struct.Struct("=QQQ16xI12x")
_AT_ONCE = 256
_LAST = 0x1
_NOWHERE = 0x2 | 0x4 | 0x8 | 0x80 | 0x100 | 0x200
"""Flags: unknown, not yet allocated, encoded, encrypted, not aligned, or inline in metadata."""

_XFS_GEOMETRY = 0x8100587E
"""_IOR('X', 126, struct xfs_fsop_geom)."""
_XFS_GEOMETRY_BYTES = 256
_XFS_GEOMETRY_HEAD = struct.Struct("=IIII")
"""blocksize, rtextsize, agblocks, agcount."""

_KINDS = (b"ext2", b"ext3", b"ext4", b"xfs")


def extents(fd: int, most: int) -> Iterator[tuple[int, int, int]]:
    """Yields at most `most` extents of a regular file: (byte in file, byte on device, length).

    `fd` may be an O_PATH descriptor. Extents without a usable place on the device are left out:
    inline, compressed, not yet allocated. OSError if the file cannot be read or the file system
    does not support FIEMAP.
    """
    flags = os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC
    file = os.open(f"/proc/self/fd/{fd}", flags)
    try:
        start = 0
        while most > 0:
            asked = min(_AT_ONCE, most)
            reply = bytearray(_HEAD.size + asked * _EXTENT.size)
            _HEAD.pack_into(reply, 0, start, (1 << 64) - 1 - start, 0, 0, asked, 0)
            fcntl.ioctl(file, _FIEMAP, reply)
            given = min(_HEAD.unpack_from(reply)[3], asked)
            for number in range(given):
                at = _HEAD.size + number * _EXTENT.size
                in_file, on_disk, length, how = _EXTENT.unpack_from(reply, at)
                if not how & _NOWHERE:
                    yield in_file, on_disk, length
                if how & _LAST or in_file + length <= start:
                    return
                start = in_file + length
            if not given:
                return
            most -= given
    finally:
        os.close(file)


def file_systems(but: Collection[str] = ()) -> list[FileSystem]:
    """Returns the block sizes of mounted ext and xfs file systems, except for devices in `but`."""
    found: dict[str, FileSystem] = {}
    mounts = read_mounts()
    for mount in mounts:
        if mount.kind not in _KINDS or mount.dev in found or mount.dev in but:
            continue
        for place in reachable(mounts, mount.dev)[:1]:
            with contextlib.suppress(OSError):
                found[mount.dev] = _counted(place.path, mount.dev, mount.kind)
    return list(found.values())


def _counted(path: bytes, dev: str, kind: bytes) -> FileSystem:
    fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        system: FileSystem = {"dev": dev, "block_bytes": os.fstatvfs(fd).f_bsize}
        if kind == b"xfs":
            reply = bytearray(_XFS_GEOMETRY_BYTES)
            fcntl.ioctl(fd, _XFS_GEOMETRY, reply)
            system["group_blocks"] = _XFS_GEOMETRY_HEAD.unpack_from(reply)[2]
        return system
    finally:
        os.close(fd)
