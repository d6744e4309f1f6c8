"""Phases of the training job, from the marks that it left (`tracer.phases`)."""

from __future__ import annotations

from probes.schema import Column, Table, Type

TABLE = Table(
    "phases",
    "One row a phase, from the marks of the traced processes.",
    (
        Column("start", Type.INT64, "when it began", "ns", nullable=False),
        Column("end", Type.INT64, "when it ended; null: its process had not ended it", "ns"),
        Column("pid", Type.INT32, "process that marked it; null: of a container, not found"),
        Column("tid", Type.INT32, "thread that marked it; null: of a container, not found"),
        Column("name", Type.TEXT, "data_load, train, forward, ...", nullable=False),
        Column("epoch", Type.INT64, "from 0; its own or that of the phase around it"),
        Column("step", Type.INT64, "from 0; its own or that of the phase around it"),
        Column(
            "source",
            Type.TEXT,
            "script: it says so; automatic: PyTorch was made to; uprobe: seen from outside; "
            "inferred from those",
        ),
        Column(
            "gpu_ns",
            Type.INT64,
            "between two CUDA events on the stream current where it began and ended; null: not "
            "measured, as without CUDA",
            "ns",
        ),
    ),
    example='SELECT name, count(*), sum("end"-start)/1e9 s FROM phases GROUP BY 1 ORDER BY 3 DESC',
)
