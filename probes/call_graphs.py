"""Call graphs: through which functions the kernel and its callers came to an event.

Only asked for (`tracer record --callgraph EVENT`), by `perf record`: every context of the machine,
since write-back happens in kernel threads, without the recorder and perf.
"""

from __future__ import annotations

from probes.schema import Column, Table, Type

OPTION = "--callgraph EVENT"

KERNEL = "_[k]"
"""Ends the name of a kernel function in a stack; the name of no other frame ends so."""
UNKNOWN = "[unknown]"
"""A frame whose function and file are not known."""
TRUNCATED = "[truncated]"
"""The root of a stack that was deeper than is kept."""

TABLE = Table(
    "call_graphs",
    "One row an event, process and stack. A stack of several rows counts with their sum.",
    (
        Column("event", Type.TEXT, "SYSTEM:EVENT, or perf's name of it", nullable=False),
        Column("comm", Type.TEXT, "name of the thread at that time; null: not known"),
        Column("pid", Type.INT32, "process; null: of another pid namespace"),
        Column(
            "stack",
            Type.TEXT,
            "functions from the root to the event, joined by ;. Kernel functions end in _[k]; "
            "a file in [] where its function is not known",
            nullable=False,
            longest=4 << 20,
        ),
        Column(
            "count",
            Type.INT64,
            "times the event came this way; of a clock or a hardware event: samples",
            "events",
            nullable=False,
        ),
    ),
    example="SELECT stack, sum(count) n FROM call_graphs GROUP BY 1 ORDER BY 2 DESC LIMIT 5",
    option=OPTION,
)
