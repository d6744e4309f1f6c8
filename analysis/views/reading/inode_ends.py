"""The ends of inodes: a file system gives the number of a removed file to a new one.

ext4 gives a freed number to one of its next new files, often to the very next one. Its event
`free_inode` comes after the last write-back of the old file and before the number is free
(fs/ext4/ialloc.c, ext4_free_inode()). xfs reports files that live on and lose the blocks beyond
their end with the same event, so its files are told apart by their numbers alone. btrfs gives no
number again.
"""

from __future__ import annotations

import pyarrow as pa

from tracer.analysis.views.view import make_once
from tracer.store.trace import Trace

_TABLE = "inode_ends"
_XFS_EVENTS = ("map_blocks", "log")
"""Events of the table file_writes that only xfs logs."""
_MADE = f"""
CREATE OR REPLACE TEMP TABLE {_TABLE} AS
SELECT ts, dev, fsid, ino, dev NOT IN (SELECT dev FROM xfs_devices) AS ends,
    row_number() OVER (PARTITION BY dev, ino ORDER BY ts, row) AS n
FROM file_writes_rows WHERE event = 'free_inode' AND dev IS NOT NULL AND ino IS NOT NULL
"""


def make_inode_ends(trace: Trace) -> None:
    """Makes the table `inode_ends`, a row per event `free_inode`, unless it exists.

    Columns: ts, dev, fsid and ino as in the table file_writes; ends (false: on xfs, where the file
    may live on); n (the number of such events of this inode so far, with this one). From `ts` on,
    the number belongs to the file that has `n` ended ones before it.
    """
    trace.empty_if_missing("file_writes")
    make_once(trace, _TABLE, _build)


def _build(trace: Trace) -> None:
    devices = pa.array(_xfs_devices(trace), pa.string())
    trace.keep("xfs_devices", pa.table({"dev": devices}))
    trace.execute(_MADE)
    trace.drop("xfs_devices")


def _xfs_devices(trace: Trace) -> list[str]:
    """Returns the devices with an xfs, by the manifest, or else by events that only xfs logs."""
    is_xfs = {
        system["dev"]: "group_blocks" in system for system in trace.manifest.get("file_systems", [])
    }
    for mount in trace.manifest.get("mounts", []):
        is_xfs.setdefault(mount["dev"], mount["type"] == "xfs")
    logged = f"SELECT DISTINCT dev FROM file_writes WHERE event IN {_XFS_EVENTS}"
    for (dev,) in trace.rows(logged):
        if dev is not None:
            is_xfs.setdefault(dev, True)
    return [dev for dev, found in is_xfs.items() if found]
