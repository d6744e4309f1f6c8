"""Sums and histograms that the kernel kept instead of events (`tracer record --summary`)."""

from __future__ import annotations

from tracer.probes.schema import Column, Table, Type

OPTION = "--summary"

SUMS = Table(
    "summaries",
    "One row per interval, process and thing counted in the kernel.",
    (
        Column("start", Type.INT64, "begin of the interval", "ns", nullable=False),
        Column("end", Type.INT64, "end of the interval", "ns", nullable=False),
        Column("kind", Type.TEXT, "syscall, fault, request or writeback", nullable=False),
        Column("name", Type.TEXT, "system call; minor or major; operation; reason", nullable=False),
        Column("dev", Type.TEXT, "device of a request, MAJOR:MINOR"),
        Column("pid", Type.INT32, "process in whose context it was counted", nullable=False),
        Column("count", Type.INT64, "number that ended in the interval", nullable=False),
        Column("errors", Type.INT64, "number that failed; null: not known for this kind"),
        Column(
            "total_ns", Type.INT64, "sum of their times; null: not measured for this kind", "ns"
        ),
        Column("bytes", Type.INT64, "size of requests, or of pages written back", "bytes"),
    ),
    example="SELECT kind, name, sum(count) n FROM summaries GROUP BY ALL ORDER BY 3 DESC",
    option=OPTION,
)

HISTOGRAMS = Table(
    "histograms",
    "One row per kind, name, device, and power of two of the time that calls or requests took.",
    (
        Column("kind", Type.TEXT, "syscall or request", nullable=False),
        Column("name", Type.TEXT, "system call; operation", nullable=False),
        Column("dev", Type.TEXT, "device of a request, MAJOR:MINOR"),
        Column("low_ns", Type.INT64, "shortest time counted here", "ns", nullable=False),
        Column(
            "high_ns", Type.INT64, "exclusive limit of the times counted here", "ns", nullable=False
        ),
        Column("count", Type.INT64, "number of calls or requests with such a time", nullable=False),
    ),
    example="SELECT name, low_ns, count FROM histograms WHERE kind = 'request' ORDER BY 1, 2",
    option=OPTION,
)

PROBES = ("syscalls", "page_faults", "block", "writeback")
"""Probes that can be summed up; `inode_writeback` adds the pages of write-back."""
