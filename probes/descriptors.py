"""The files that targets have open when the recording begins, with the position of each."""

from __future__ import annotations

from tracer.probes.schema import Column, Table, Type

TABLE = Table(
    "descriptors",
    "One row per descriptor of a file that a process of a target had open when the recording of "
    "the probe opens began. A command starts in the recording, and has none.",
    (
        Column("ts", Type.INT64, "begin of the look at it", "ns", nullable=False),
        Column(
            "dur_ns",
            Type.INT64,
            "length of the look; a process that uses the file meanwhile may move the position",
            "ns",
            nullable=False,
        ),
        Column("pid", Type.INT32, "process", nullable=False),
        Column("fd", Type.INT64, "number of the descriptor", nullable=False),
        Column(
            "description",
            Type.INT64,
            "rows with the same number share a position (dup, fork); null: the kernel did not tell",
        ),
        Column("position", Type.INT64, "where the next read or write begins", "bytes"),
        Column("flags", Type.INT64, "flags of open(2)"),
        Column("path", Type.TEXT, "name as the process sees it", nullable=False),
    ),
    example="SELECT pid, fd, path, position FROM descriptors ORDER BY ALL",
)
