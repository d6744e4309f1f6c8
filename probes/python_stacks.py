"""Python stacks: the lines of Python code that threads are in, looked at from outside.

Each look is at all Python threads of a process (`py-spy dump`). The process goes on meanwhile, so
the stack of a thread is certain only if the thread waited during the whole look.
"""

from __future__ import annotations

from tracer.probes.schema import Column, Table, Type

OPTION = "--stacks"

TABLE = Table(
    "python_stacks",
    "One row per look at a Python thread of a target.",
    (
        Column("ts", Type.INT64, "begin of the look", "ns", nullable=False),
        Column("until_ns", Type.INT64, "end of the look", "ns", nullable=False),
        Column("pid", Type.INT32, "process of the thread", nullable=False),
        Column("tid", Type.INT32, "thread that was looked at", nullable=False),
        Column(
            "stack",
            Type.TEXT,
            "functions from the root to the innermost, joined by ;, each as NAME (FILE:LINE)",
            nullable=False,
            longest=4 << 20,
        ),
    ),
    example="SELECT pid, tid, stack, count(*) n FROM python_stacks GROUP BY ALL ORDER BY n DESC",
    option=OPTION,
)
