"""The names of files at the end of the recording."""

from __future__ import annotations

from probes.schema import INO, Column, Table, Type

TABLE = Table(
    "files",
    "One row a file that was written to and was still there at the end, with its name then.",
    (
        Column(
            "dev",
            Type.TEXT,
            "file system: MAJOR:MINOR of its block device, partition or disk; btrfs: its bdi",
            nullable=False,
        ),
        Column("root", Type.UINT64, "btrfs: the subvolume in which `ino` counts"),
        INO,
        Column(
            "path",
            Type.TEXT,
            "one name at the end of the recording, in the recorder's mount namespace; bytes that "
            "are no UTF-8 are escaped",
            nullable=False,
        ),
        Column(
            "born_ns",
            Type.INT64,
            "when the file was made, at most a tick early; inode numbers are used again. Null: "
            "the file system does not tell",
            "ns",
        ),
        Column("how", Type.TEXT, "handle (asked for by inode number) or walk (found in a folder)"),
    ),
    example="SELECT f.path, count(*) FROM file_writes w JOIN files f USING (dev, ino) GROUP BY 1",
)
