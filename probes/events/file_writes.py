"""The files of write-outs, as the file systems themselves report them.

The flusher's brackets (`inode_writeback`) name the inode of the writes that the flusher makes. Only
the events here name the file of writes that a process makes itself (fsync, O_SYNC, O_DIRECT, a
close after a truncation), and of writes that btrfs's workers submit for others.

Kernel: include/trace/events/{ext4,iomap,btrfs}.h, fs/xfs/xfs_trace.h. A file system that the
kernel lacks has no events; the probe then works without them.
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
    uuid,
)

TABLE = Table(
    "file_writes",
    "One row per event of a file system that writes a file out.",
    (
        TS,
        CPU,
        PID,
        TID,
        EVENT,
        DEV,
        Column("fsid", Type.TEXT, "btrfs: UUID of the file system, in place of the device"),
        Column("root", Type.UINT64, "btrfs: subvolume that `ino` belongs to"),
        INO,
        Column("offset", Type.INT64, "first byte in the file", "bytes"),
        Column("length", Type.INT64, "length of that part of the file", "bytes"),
        Column("last", Type.INT64, "writepages_start: last byte to write", "bytes"),
        Column("nr_to_write", Type.INT64, "writepages_start: most pages to write", "pages"),
        Column("sync_mode", Type.INT32, "writepages_start: 1 for data integrity, else 0"),
        Column("work", Type.UINT64, "btrfs: address of the work item; addresses are reused"),
    ),
    example="SELECT dev, ino, count(*) FROM file_writes WHERE event = 'fsync_start' GROUP BY ALL",
)

_EXT4 = {"dev": device("dev"), "ino": number("ino")}
_XFS = {**_EXT4, "offset": number("offset"), "length": number("count")}
_DIRECT = {**_EXT4, "offset": number("pos"), "length": number("count")}
_BTRFS = {"fsid": uuid("fsid"), "root": number("root_objectid"), "ino": number("ino")}
_WORK = {"fsid": uuid("fsid"), "work": number("work")}

PROBE = Probe(
    "file_writes",
    "files that ext4, xfs and btrfs write out, with process and cause; machine-wide",
    TABLE,
    (
        Event(
            "ext4:ext4_writepages",
            "writepages_start",
            {
                **_EXT4,
                "offset": number("range_start"),
                "last": number("range_end"),
                "nr_to_write": number("nr_to_write"),
                "sync_mode": number("sync_mode"),
            },
        ),
        Event("ext4:ext4_writepages_result", "writepages_end", _EXT4),
        Event("ext4:ext4_sync_file_enter", "fsync_start", _EXT4),
        Event("ext4:ext4_sync_file_exit", "fsync_end", _EXT4),
        # The process that requests a fast commit writes it; jbd2's own thread writes a full one.
        Event("ext4:ext4_fc_commit_start", "fast_commit_start", {"dev": device("dev")}),
        Event("ext4:ext4_fc_commit_stop", "fast_commit_end", {"dev": device("dev")}),
        Event("ext4:ext4_free_inode", "free_inode", _EXT4),
        # Of the file that a rename puts in the place of another one; also of a file that was
        # truncated and is closed. ext4 then writes out the blocks that it has not allocated yet.
        Event("ext4:ext4_alloc_da_blocks", "alloc_da_blocks", _EXT4),
        # One event per extent of a write-out; an event never covers two files.
        Event("xfs:xfs_map_blocks_found", "map_blocks", _XFS),
        Event("xfs:xfs_map_blocks_alloc", "map_blocks", _XFS),
        Event("xfs:xfs_zoned_map_blocks", "map_blocks", _XFS),
        Event("xfs:xfs_file_fsync", "fsync", _EXT4),
        Event("xfs:xfs_dir_fsync", "fsync", _EXT4),
        Event("xfs:xlog_iclog_write", "log", {"dev": device("dev")}),
        # Also logged for files that live on and lose the blocks beyond their end.
        Event("xfs:xfs_inode_inactivating", "free_inode", _EXT4),
        Event("iomap:iomap_dio_rw_begin", "direct_start", _DIRECT),
        Event("iomap:iomap_dio_rw_queued", "direct_end", _EXT4),
        Event("iomap:iomap_dio_complete", "direct_end", _EXT4, interrupts=True),
        Event(
            "btrfs:btrfs_ordered_extent_add",
            "ordered_extent",
            {**_BTRFS, "offset": number("file_offset"), "length": number("len")},
        ),
        Event("btrfs:btrfs_sync_file", "fsync", _BTRFS),
        # Workers compute slow checksums and compress, and then submit the bios. The process that
        # needs the work queues it; the ordered part of the work submits.
        Event("btrfs:btrfs_work_queued", "work_queued", _WORK),
        Event("btrfs:btrfs_ordered_sched", "work_start", _WORK),
        Event(
            "btrfs:btrfs_all_work_done",
            "work_end",
            {"fsid": uuid("fsid"), "work": number("wtag")},
        ),
    ),
    Scope.MACHINE,
    rate="two to seven events per file written out, one per extent, two per direct read or write",
    optional=True,
)
