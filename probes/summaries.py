"""Sums and histograms that the kernel kept instead of events (`tracer record --summary`)."""

from __future__ import annotations

from probes.schema import Column, Table, Type

OPTION = "--summary"

SUMS = Table(
    "summaries",
    "One row an interval, process and thing counted in the kernel.",
    (
        Column("start", Type.INT64, "the interval's begin", "ns", nullable=False),
        Column("end", Type.INT64, "the interval's end", "ns", nullable=False),
        Column("kind", Type.TEXT, "syscall, fault, request or writeback", nullable=False),
        Column("name", Type.TEXT, "call; minor or major; operation; reason", nullable=False),
        Column("dev", Type.TEXT, "device of a request, MAJOR:MINOR"),
        Column("pid", Type.INT32, "process in whose context it was counted", nullable=False),
        Column("count", Type.INT64, "how many ended in the interval", nullable=False),
        Column("errors", Type.INT64, "of them failed; null: not known of this kind"),
        Column("total_ns", Type.INT64, "time in them; null: not measured for this kind", "ns"),
        Column("bytes", Type.INT64, "of requests, and of pages written back", "bytes"),
    ),
    example="SELECT kind, name, sum(count) n FROM summaries GROUP BY ALL ORDER BY 3 DESC",
    option=OPTION,
)

HISTOGRAMS = Table(
    "histograms",
    "One row a power of two of the time that calls or requests took, over the whole recording.",
    (
        Column("kind", Type.TEXT, "syscall or request", nullable=False),
        Column("name", Type.TEXT, "call; operation", nullable=False),
        Column("dev", Type.TEXT, "device of a request, MAJOR:MINOR"),
        Column("low_ns", Type.INT64, "times from here on", "ns", nullable=False),
        Column("high_ns", Type.INT64, "and below this", "ns", nullable=False),
        Column("count", Type.INT64, "how many took so long", nullable=False),
    ),
    example="SELECT name, low_ns, count FROM histograms WHERE kind = 'request' ORDER BY 1, 2",
    option=OPTION,
)

PROBES = ("syscalls", "page_faults", "block", "writeback")
"""Probes that can be summed up; `inode_writeback` tells the pages of write-back."""
