"""The samples: processor, memory, disks, GPU and power over time."""

from __future__ import annotations

from tracer.probes.schema import Column, Table, Type

OPTION = "--sample-hz"

TABLE = Table(
    "samples",
    "One row per value read: at the begin and the end of the capture, and at a rate in between.",
    (
        Column("ts", Type.INT64, "when it was read", "ns", nullable=False),
        Column("target", Type.TEXT, "name of the target; null: the machine"),
        Column("name", Type.TEXT, "the series (docs/samples.md)", nullable=False),
        Column(
            "instance",
            Type.TEXT,
            "disk, GPU, power domain or folder that the value belongs to; null: there is only one",
        ),
        Column(
            "value", Type.FLOAT64, "the value; for a rate: over the time since the previous reading"
        ),
        Column("unit", Type.TEXT, "unit of value", nullable=False),
    ),
    example="SELECT target, name, instance, avg(value), unit FROM samples GROUP BY ALL",
    option=OPTION,
)
