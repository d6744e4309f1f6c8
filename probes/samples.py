"""The samples: processor, memory, disks, GPU and power over time."""

from __future__ import annotations

from probes.schema import Column, Table, Type

OPTION = "--sample-hz"

TABLE = Table(
    "samples",
    "One row a value that was read: at the begin of the capture, at its end, and at a rate.",
    (
        Column("ts", Type.INT64, "when it was read", "ns", nullable=False),
        Column("target", Type.TEXT, "name of the target; null: the machine"),
        Column("name", Type.TEXT, "the series (docs/samples.md)", nullable=False),
        Column(
            "instance",
            Type.TEXT,
            "which of several: disk, GPU, power domain, folder; null: there is one",
        ),
        Column("value", Type.FLOAT64, "what was read; of a rate, since the reading before"),
        Column("unit", Type.TEXT, "unit of value", nullable=False),
    ),
    example="SELECT target, name, instance, avg(value), unit FROM samples GROUP BY ALL",
    option=OPTION,
)
