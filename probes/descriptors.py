"""The files that targets' processes have open when they begin to be recorded, with positions."""

from __future__ import annotations

from tracer.probes.schema import Column, Table, Type

TABLE = Table(
    "descriptors",
    "One row per descriptor of a file that a process of a target had open when the recording began,"
    " or when the process joined the target. A command starts in the recording, and has none. "
    "Recorded with the probe opens.",
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
            "rows with the same number share a position (dup, fork); each look has its own numbers;"
            " null: nobody knows whether the position is shared",
        ),
        Column("position", Type.INT64, "where the next read or write begins", "bytes"),
        Column("flags", Type.INT64, "flags of open(2)"),
        Column("path", Type.TEXT, "name as the process sees it", nullable=False),
    ),
    example="SELECT pid, fd, path, position FROM descriptors ORDER BY ALL",
)
