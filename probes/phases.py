"""Phases of the training job, from the marks that the job wrote (`tracer.phases`)."""

from __future__ import annotations

from tracer.probes.schema import SHORT, Column, Table, Type

TABLE = Table(
    "phases",
    "One row per phase, from the marks of the traced processes.",
    (
        Column("start", Type.INT64, "when it began", "ns", nullable=False),
        Column("end", Type.INT64, "when it ended; null: its process did not mark an end", "ns"),
        Column("pid", Type.INT32, "process that marked it; null: in a container, not identified"),
        Column("tid", Type.INT32, "thread that marked it; null: in a container, not identified"),
        Column("name", Type.TEXT, "data_load, train, forward, ...", nullable=False, longest=SHORT),
        Column("epoch", Type.INT64, "epoch, from 0; its own or that of the enclosing phase"),
        Column("step", Type.INT64, "step, from 0; its own or that of the enclosing phase"),
        Column(
            "source",
            Type.TEXT,
            "origin of the mark. script: the script's own; automatic: from hooks in PyTorch; "
            "uprobe: seen from outside; inferred: derived from the others",
            longest=SHORT,
        ),
        Column(
            "gpu_ns",
            Type.INT64,
            "time between CUDA events on the stream that was current at its begin and its end; "
            "null: not measured, e.g. without CUDA",
            "ns",
        ),
    ),
    example='SELECT name, count(*), sum("end"-start)/1e9 s FROM phases GROUP BY 1 ORDER BY 3 DESC',
)
