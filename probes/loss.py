"""Gaps in a recording: loss is data, with a place and a time."""

from __future__ import annotations

from dataclasses import dataclass

from probes.schema import Column, Scope, Table, Type

_MOST = (1 << 63) - 1
_MOST_CPU = (1 << 15) - 1


def fitting(number: int) -> int:
    """The number, or the nearest one that a column of 64 bits holds.

    Counters of a kernel or of a stranger's file have 64 bits without a sign, and sums have more.
    """
    return max(-_MOST - 1, min(number, _MOST))


@dataclass(frozen=True)
class Gap:
    """Events that a stream lacks: between `start` and `end`, `count` of them or unknown.

    Numbers that no column holds become the nearest that one does.
    """

    stream: str
    cpu: int
    start: int | None
    end: int | None
    count: int | None
    cause: str

    def __post_init__(self) -> None:
        for name in ("start", "end", "count"):
            if (number := getattr(self, name)) is not None:
                object.__setattr__(self, name, fitting(number))
        object.__setattr__(self, "cpu", max(-1, min(self.cpu, _MOST_CPU)))

    def of_scope(self, scope: Scope) -> bool:
        """Whether it is a gap in the events of this scope: a stream's name tells its instance."""
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
