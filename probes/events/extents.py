"""The places of pieces of files on the device, as file systems look them up or choose them.

A write bio names a sector; only the file system knows the file and page behind it. ext4 and xfs log
each extent when they read it from the disk or allocate it. Extents that they knew before the
recording are requested at its end (`extent_map`).

Kernel: include/trace/events/ext4.h, class ext4__es_extent; fs/xfs/xfs_trace.h, class
xfs_bmap_class.
"""

from __future__ import annotations

from tracer.probes.schema import (
    CPU,
    DEV,
    EVENT,
    INO,
    PID,
    TID,
    TS,
    Column,
    Event,
    Probe,
    Scope,
    Table,
    Type,
    device,
    number,
)

TABLE = Table(
    "extents",
    "One row per extent of a file that its file system has read or allocated.",
    (
        TS,
        CPU,
        PID,
        TID,
        EVENT,
        DEV,
        INO,
        Column("file_block", Type.UINT64, "first block in the file", "blocks"),
        Column(
            "disk_block",
            Type.UINT64,
            "first block on the device: ext4's block number, or xfs's, which has the allocation "
            "group in its high bits. Beyond the device: a hole, or not yet allocated",
            "blocks",
        ),
        Column("blocks", Type.UINT64, "length, in blocks of the file system", "blocks"),
    ),
    example="SELECT dev, ino, count(*), max(blocks) FROM extents GROUP BY ALL ORDER BY 3 DESC",
)

_EXT4 = {
    "dev": device("dev"),
    "ino": number("ino"),
    "file_block": number("lblk"),
    "disk_block": number("pblk"),
    "blocks": number("len"),
}
_XFS = {
    "dev": device("dev"),
    "ino": number("ino"),
    "file_block": number("startoff"),
    "disk_block": number("startblock"),
    "blocks": number("blockcount"),
}

PROBE = Probe(
    "extents",
    "extents of files on the device, as ext4 and xfs read or allocate them; machine-wide",
    TABLE,
    (
        Event("ext4:ext4_es_insert_extent", "known", _EXT4),
        Event("xfs:xfs_iext_insert", "inserted", _XFS),
        Event("xfs:xfs_bmap_post_update", "updated", _XFS),
    ),
    Scope.MACHINE,
    rate="one event per extent that is allocated, or read for the first time",
    optional=True,
)

EXTENT_MAP = Table(
    "extent_map",
    "One row per extent, at the end of the recording, of each file that was written to, "
    "or whose pages were used or brought in (probe page_cache).",
    (
        Column("dev", Type.TEXT, "file system: MAJOR:MINOR of its block device", nullable=False),
        INO,
        Column("file_byte", Type.UINT64, "first byte in the file", "bytes"),
        Column("disk_byte", Type.UINT64, "first byte on the device", "bytes"),
        Column("bytes", Type.UINT64, "length", "bytes"),
    ),
    example="SELECT dev, ino, count(*) extents, sum(bytes) FROM extent_map GROUP BY ALL",
)
