"""Call graphs: the functions of the kernel and its callers that led to an event.

`perf record` records them, only with `tracer record --callgraph EVENT`. They cover every process
and thread of the machine, because write-back happens in kernel threads; the recorder and perf are
left out.
"""

from __future__ import annotations

from tracer.probes.events.block import OPERATIONS, OTHER
from tracer.probes.schema import Column, Table, Type

OPTION = "--callgraph EVENT"

KERNEL = "_[k]"
"""Suffix of the names of kernel functions in a stack. No other frame's name ends with it."""
UNKNOWN = "[unknown]"
"""Name of a frame whose function and file are not known."""
TRUNCATED = "[truncated]"
"""Name of the root frame of a stack that was too deep to be kept whole."""

TABLE = Table(
    "call_graphs",
    "One row per event, process, device, operation and stack. If a stack has several rows, add up "
    "their counts.",
    (
        Column("event", Type.TEXT, "SYSTEM:EVENT, or the event's name in perf", nullable=False),
        Column("comm", Type.TEXT, "name of the thread at that time; null: not known"),
        Column("pid", Type.INT32, "process; null: it is in another pid namespace"),
        Column(
            "dev",
            Type.TEXT,
            "device that the event names, MAJOR:MINOR; block events name the whole disk of a "
            "partition; null: the event names none",
        ),
        Column(
            "operation",
            Type.TEXT,
            f"of the request or bio: {', '.join(OPERATIONS)} or {OTHER}; null: the event names "
            "none",
        ),
        Column(
            "stack",
            Type.TEXT,
            "functions from the root to the event, joined by ;. Kernel functions end in _[k]; "
            "a frame whose function is not known is shown as its file in []",
            nullable=False,
            longest=4 << 20,
        ),
        Column(
            "count",
            Type.INT64,
            "occurrences of the event with this stack; for a clock or a hardware event: samples",
            "events",
            nullable=False,
        ),
    ),
    example="SELECT stack, sum(count) n FROM call_graphs GROUP BY 1 ORDER BY 2 DESC LIMIT 5",
    option=OPTION,
)
