"""The gaps in a recording. Each loss of events is recorded, with its stream and time."""

from __future__ import annotations

from dataclasses import dataclass

from tracer.probes.limits import CPU_LIMIT, TIME_LIMIT
from tracer.probes.schema import Column, Scope, Table, Type

_MOST = (1 << 63) - 1
COUNT_LIMIT = 1 << 48
"""Exclusive limit of the events in a gap: a CPU takes years to log as many."""

OF_NO_EVENTS = (
    *("files", "descriptors", "symbols", "maps", "containers"),
    *("kernel_stacks", "python_stacks", "samples"),
    # Phases whose ends are not known, and files of libraries without uprobes, by probe.
    *("phases", "torch_calls", "opens", "gpu_calls"),
)
OF_EVENTS = f"stream NOT IN {OF_NO_EVENTS}"
"""SQL for the gaps in which events are missing. Others lack names, stacks or samples: they are as
long as the recording, and all its events are there."""


def fitting(number: int) -> int:
    """Returns the number, or the nearest one that a 64-bit column holds.

    Sums of counters from a kernel or from a foreign file may need more than 64 bits.
    """
    return max(-_MOST - 1, min(number, _MOST))


@dataclass(frozen=True)
class Gap:
    """The events that a stream lacks between `start` and `end`: `count` of them; None: unknown.

    A damaged stream may give an impossible time, CPU or count. Such a value becomes unknown.
    """

    stream: str
    cpu: int
    start: int | None
    end: int | None
    count: int | None
    cause: str

    def __post_init__(self) -> None:
        for name, limit in (("start", TIME_LIMIT), ("end", TIME_LIMIT), ("count", COUNT_LIMIT)):
            value = getattr(self, name)
            if value is not None and not 0 <= value < limit:
                object.__setattr__(self, name, None)
        if not 0 <= self.cpu < CPU_LIMIT:
            object.__setattr__(self, "cpu", -1)

    @property
    def of_events(self) -> bool:
        """True if events are missing; otherwise names, stacks or samples are."""
        return self.stream not in OF_NO_EVENTS

    def of_scope(self, scope: Scope) -> bool:
        """Returns whether the gap is in events of this scope; a stream's name contains its
        instance."""
        return scope.value in self.stream


TABLE = Table(
    "loss",
    "One row per gap: events that the kernel logged and this trace lacks.",
    (
        Column("stream", Type.TEXT, "raw stream that has the gap", nullable=False),
        Column("cpu", Type.INT16, "CPU of the buffer; -1: not of a single CPU", nullable=False),
        Column("from", Type.INT64, "no event before this is missing; null: from the start", "ns"),
        Column("to", Type.INT64, "no event after this is missing; null: to the end", "ns"),
        Column(
            "count", Type.INT64, "events missing; null: the kernel did not count them", "events"
        ),
        Column("cause", Type.TEXT, "cause of the gap", nullable=False),
    ),
    example='SELECT stream, cpu, "from", "to", count, cause FROM loss ORDER BY 3',
)
