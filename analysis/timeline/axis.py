"""The time that is drawn, and its bins."""

from __future__ import annotations

from dataclasses import dataclass

from tracer.store.trace import Trace

MOST_BINS = 2000
_NICE = (1, 2, 5)
_EVENT_TABLES = ("syscalls", "page_faults", "writeback", "dirty", "block", "phases", "samples")
_LONGEST_NS = 1 << 60
"""No interval is longer: sums of times do not overflow."""


@dataclass(frozen=True)
class Axis:
    """A recording's time in bins of equal width. Times are ns of the trace's clock."""

    start_ns: int
    end_ns: int
    width_ns: int

    @property
    def bins(self) -> int:
        """Number of bins."""
        return (self.end_ns - self.start_ns) // self.width_ns + 1

    @property
    def width_s(self) -> float:
        """Width of a bin in s."""
        return self.width_ns / 1e9

    @property
    def length_s(self) -> float:
        """Length in s of the time that is drawn."""
        return (self.end_ns - self.start_ns) / 1e9

    def coarser(self, most: int) -> Axis:
        """Returns the same time in at most `most` bins, which are at least as wide as these."""
        width = max(self.width_ns, _width(self.end_ns - self.start_ns, most))
        return Axis(self.start_ns, self.end_ns, width)

    def within(self, column: str) -> str:
        """Returns an SQL condition: a time lies on the axis."""
        return f"{column} BETWEEN {self.start_ns} AND {self.end_ns}"

    def ended(self, start: str, ns: str) -> str:
        """Returns SQL for the end of an interval, at most that of the axis."""
        return f"{start} + least({ns}, {self.end_ns} - {start})"

    def overlaps(self, start: str, ns: str) -> str:
        """Returns an SQL condition: a part of an interval lies on the axis; it may begin before."""
        earliest = self.start_ns - _LONGEST_NS
        begun = f"{start} BETWEEN {earliest} AND {self.end_ns} AND {ns} >= 0"
        return f"{begun} AND {self.ended(start, ns)} >= {self.start_ns}"

    def bin(self, column: str) -> str:
        """Returns SQL for the number of the bin of a time on the axis."""
        return f"(({column} - {self.start_ns}) // {self.width_ns})"

    def span(self, column: str) -> str:
        """Returns SQL for from_s and to_s: the bounds in s of the bin with that number."""
        width = f"{self.width_s!r}::DOUBLE"
        return f"{column} * {width} AS from_s, ({column} + 1) * {width} AS to_s"

    def second(self, column: str) -> str:
        """Returns SQL for a time on the axis, in s since the start of the recording."""
        return f"(({column} - {self.start_ns}) / 1e9)"


def axis(trace: Trace, most: int = MOST_BINS) -> Axis:
    """Returns the recording's time in at most `most` bins of 1, 2 or 5 times a power of ten ns.

    The start and the end are those of the manifest. Events outside of them (for example after a
    jump of the clock) are in no bin. If the manifest has no end, the time of the last event is the
    end.
    """
    start = int(trace.manifest["clock"]["start_ns"])
    end = trace.manifest["clock"]["end_ns"]
    last = int(end) if end is not None else _last(trace)
    last = max(last, start + 1)
    return Axis(start, last, _width(last - start, most))


def _width(length_ns: int, most: int) -> int:
    least = length_ns // most + 1
    power = 1
    while True:
        for nice in _NICE:
            if nice * power >= least:
                return nice * power
        power *= 10


def _last(trace: Trace) -> int:
    """Returns the time of the last event; 0 without events."""
    found = [0]
    for name in _EVENT_TABLES:
        if name in trace.tables:
            column = "start" if name == "phases" else "ts"
            last = trace.sql(f'SELECT coalesce(max("{column}"), 0) AS last FROM "{name}"')
            found.append(int(last["last"].iloc[0]))
    return max(found)


def outside(trace: Trace, axis: Axis) -> dict[str, int]:
    """Returns the number of rows outside of the recording's time, for tables that have such rows.

    A phase that began before the recording and reached into it is not outside.
    """
    found = {}
    for name in _EVENT_TABLES:
        if name not in trace.tables:
            continue
        column = "start" if name == "phases" else "ts"
        # A phase that reached into the recording is drawn from the recording's start.
        early = '("end" IS NULL OR "end" >= {0})' if name == "phases" else "false"
        rows = trace.sql(
            f'SELECT count(*) AS n FROM "{name}" WHERE "{column}" > {axis.end_ns} OR '
            f'("{column}" < {axis.start_ns} AND NOT {early.format(axis.start_ns)})'
        )
        if n := int(rows["n"].iloc[0]):
            found[name] = n
    return found


def show_width(axis: Axis) -> str:
    """Formats a bin's width, for example "20 ms"."""
    for unit, ns in (("s", 10**9), ("ms", 10**6), ("µs", 10**3)):
        if axis.width_ns >= ns:
            return f"{axis.width_ns // ns:,} {unit}"
    return f"{axis.width_ns} ns"
