"""The names and sizes of files at the end of the recording."""

from __future__ import annotations

from tracer.probes.schema import INO, Column, Table, Type

TABLE = Table(
    "files",
    "One row per file that was written to, that the probe page_cache saw in use, or that was "
    "opened by a name which the probe opens has, and that still exists at the end, with its name "
    "and size then.",
    (
        Column(
            "dev",
            Type.TEXT,
            "file system: MAJOR:MINOR of its block device, partition or disk; btrfs: its bdi",
            nullable=False,
        ),
        Column("root", Type.UINT64, "btrfs: subvolume that `ino` belongs to"),
        INO,
        Column(
            "path",
            Type.TEXT,
            "one of its names at the end of the recording, in the recorder's mount namespace; "
            "bytes that are not UTF-8 are escaped",
            nullable=False,
        ),
        Column(
            "born_ns",
            Type.INT64,
            "when the file was created, at most a tick early (inode numbers are reused); null: "
            "the file system does not record it",
            "ns",
        ),
        Column("size", Type.INT64, "null: a recording of an older version", "bytes"),
        Column(
            "how",
            Type.TEXT,
            "handle (by inode number), walk (found in a folder) or name (opened by that name)",
        ),
    ),
    example="SELECT f.path, count(*) FROM file_writes w JOIN files f USING (dev, ino) GROUP BY 1",
)
