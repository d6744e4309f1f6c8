"""Counters of the targets by `perf stat`: the rows of Park & Bahn 2023, Table 5.

They are recorded only with `tracer record --perf-stat`, because each counter of each thread costs
an open file and some time at every context switch.
"""

from __future__ import annotations

from dataclasses import dataclass

from tracer.probes.schema import Column, Table, Type

OPTION = "--perf-stat"
NS = "ns"
"""The unit of clocks."""

TABLE = Table(
    "counters",
    "One row per event and target: the count by `perf stat` in the target's own context.",
    (
        Column("target", Type.TEXT, "name of the target", nullable=False),
        Column("event", Type.TEXT, "the event as perf names it", nullable=False),
        Column("value", Type.INT64, "the count; null: not counted or not supported"),
        Column("unit", Type.TEXT, "unit of value: events or ns", nullable=False),
        Column("state", Type.TEXT, "counted, not counted or not supported", nullable=False),
        Column(
            "running_ns",
            Type.INT64,
            "time during which the counter ran, summed over threads or CPUs",
            NS,
        ),
        Column(
            "enabled_ns",
            Type.INT64,
            "time during which the counter should have run, to 0.01 %; if this is more than "
            "running_ns, value is scaled up",
            NS,
        ),
    ),
    example="SELECT target, event, value, state FROM counters ORDER BY ALL",
    option=OPTION,
)

COUNTED = "counted"
NOT_COUNTED = "not counted"
NOT_SUPPORTED = "not supported"


@dataclass(frozen=True)
class Counter:
    """An event that is counted."""

    event: str
    group: str
    """Group in Park & Bahn 2023, Table 5: cpu, memory or block; scheduler for our own
    counters."""
    described: bool = False
    """True for a hardware event that exists only if one of the CPU's PMUs names it in sysfs."""


COUNTERS: tuple[Counter, ...] = (
    Counter("cycles", "cpu"),
    Counter("instructions", "cpu"),
    Counter("cache-misses", "cpu"),
    Counter("task-clock", "scheduler"),
    Counter("context-switches", "scheduler"),
    Counter("cpu-migrations", "scheduler"),
    Counter("page-faults", "memory"),
    Counter("minor-faults", "memory"),
    Counter("major-faults", "memory"),
    Counter("mem-loads", "memory", described=True),
    Counter("mem-stores", "memory", described=True),
    Counter("block:block_touch_buffer", "block"),
    Counter("block:block_dirty_buffer", "block"),
    Counter("block:block_rq_complete", "block"),
    Counter("block:block_rq_insert", "block"),
    Counter("block:block_rq_issue", "block"),
    Counter("block:block_bio_backmerge", "block"),
    Counter("block:block_bio_frontmerge", "block"),
    Counter("block:block_bio_queue", "block"),
)
"""The counters, in the order in which they are shown."""
