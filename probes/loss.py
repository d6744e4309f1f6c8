"""Gaps in a recording: loss is data, with a place and a time."""

from __future__ import annotations

from dataclasses import dataclass

from probes.limits import CPU_LIMIT, TIME_LIMIT
from probes.schema import Column, Scope, Table, Type

_MOST = (1 << 63) - 1
COUNT_LIMIT = 1 << 48
"""A gap has fewer events: a CPU takes years to log as many."""


def fitting(number: int) -> int:
    """The number, or the nearest one that a column of 64 bits holds.

    Sums of counters, which a kernel or a stranger's file gives, may have more.
    """
    return max(-_MOST - 1, min(number, _MOST))


@dataclass(frozen=True)
class Gap:
    """Events that a stream lacks: between `start` and `end`, `count` of them or unknown.

    A damaged stream may name a time, CPU or count that cannot be. It becomes unknown.
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

    def of_scope(self, scope: Scope) -> bool:
        """Returns whether the gap is in events of this scope; a stream's name contains its
        instance."""
        return scope.value in self.stream


TABLE = Table(
    "loss",
    "One row a gap: events that the kernel logged and this trace lacks.",
    (
        Column("stream", Type.TEXT, "which raw stream", nullable=False),
        Column("cpu", Type.INT16, "which CPU's buffer; -1: of no one CPU", nullable=False),
        Column("from", Type.INT64, "no event is missing before; null: from the start", "ns"),
        Column("to", Type.INT64, "no event is missing after; null: to the end", "ns"),
        Column("count", Type.INT64, "events missing; null: the kernel did not say", "events"),
        Column("cause", Type.TEXT, "what made the gap", nullable=False),
    ),
    example='SELECT stream, cpu, "from", "to", count, cause FROM loss',
)
