"""Tables, columns and probes. Each fact about an event is declared once, with these classes.

A probe's file declares its table and the kernel events that feed it. How an event's fields
become columns is data (`Source`), so that every backend and every kernel version can be served
by the same declaration: a field is looked up by name in the event's own format, and a column
whose field this kernel lacks is null, never 0.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pyarrow as pa


class Type(Enum):
    """Column types, by their Arrow names."""

    INT16 = "int16"
    INT32 = "int32"
    INT64 = "int64"
    UINT64 = "uint64"
    FLOAT64 = "float64"
    BOOL = "bool"
    TEXT = "text"


@dataclass(frozen=True)
class Column:
    """One column: its unit is "" where it has none."""

    name: str
    type: Type
    doc: str
    unit: str = ""
    nullable: bool = True
    longest: int = 1 << 16
    """Bytes that a text of it may have: a path of 4,096, each of which was escaped, and more."""


@dataclass(frozen=True)
class Table:
    """One table of a trace; `events/NAME.parquet`."""

    name: str
    doc: str
    columns: tuple[Column, ...]
    example: str
    """One useful SQL query, shown by `tracer query --help`."""
    option: str = ""
    """The option of `tracer record` that it takes; "": the probe of its name, by -e."""

    def column(self, name: str) -> Column:
        """The column called `name`; KeyError where there is none."""
        for column in self.columns:
            if column.name == name:
                return column
        raise KeyError(name)

    def arrow_schema(self) -> pa.Schema:
        """The schema of the Parquet file."""
        import pyarrow as pa

        types = {
            Type.INT16: pa.int16(),
            Type.INT32: pa.int32(),
            Type.INT64: pa.int64(),
            Type.UINT64: pa.uint64(),
            Type.FLOAT64: pa.float64(),
            Type.BOOL: pa.bool_(),
            Type.TEXT: pa.dictionary(pa.int32(), pa.string()),
        }
        return pa.schema(
            [
                pa.field(c.name, types[c.type], c.nullable, {"doc": c.doc, "unit": c.unit})
                for c in self.columns
            ]
        )


TS = Column("ts", Type.INT64, "when the event was logged", "ns", nullable=False)
CPU = Column("cpu", Type.INT16, "CPU that logged the event", nullable=False)
PID = Column("pid", Type.INT32, "process (thread group) in whose context it happened")
TID = Column("tid", Type.INT32, "thread in whose context it happened", nullable=False)
EVENT = Column("event", Type.TEXT, "which of the probe's events", nullable=False)
DEV = Column("dev", Type.TEXT, "block device, MAJOR:MINOR")
INO = Column("ino", Type.UINT64, "inode number on that device")


@dataclass(frozen=True)
class Source:
    """An event field that fills a column.

    `fields` are the names that kernels have given it, newest first. `scale` multiplies an
    integer (e.g. ms to ns).
    """

    fields: tuple[str, ...]
    scale: int = 1


@dataclass(frozen=True)
class Number(Source):
    """An integer field, or one bit-mask of it."""

    mask: int = 0
    """If not 0, the column is true if any of these bits is set."""


@dataclass(frozen=True)
class Characters(Source):
    """A fixed or `__data_loc` character array. Bytes that are no UTF-8 are escaped."""


@dataclass(frozen=True)
class DeviceNumber(Source):
    """The kernel's dev_t, shown as MAJOR:MINOR."""


@dataclass(frozen=True)
class Named(Source):
    """An integer that the event's own print format gives names to."""


@dataclass(frozen=True)
class Uuid(Source):
    """A UUID of 16 bytes."""


def number(*fields: str, scale: int = 1, mask: int = 0) -> Number:
    """An integer field, by its names newest first."""
    return Number(fields, scale, mask)


def characters(*fields: str) -> Characters:
    """A character-array field."""
    return Characters(fields)


def device(*fields: str) -> DeviceNumber:
    """A dev_t field."""
    return DeviceNumber(fields)


def named(*fields: str) -> Named:
    """An integer field with names in the print format."""
    return Named(fields)


def uuid(*fields: str) -> Uuid:
    """A UUID field."""
    return Uuid(fields)


class Feed(Enum):
    """The kernel interface that an event comes from."""

    TRACEPOINT = "tracepoint"
    PERF = "perf"
    """A software event or a record of perf_event: a probe can do without."""
    UPROBE = "uprobe"
    """A place in a library that targets run: there where such a target is recorded."""


@dataclass(frozen=True)
class Event:
    """A kernel event that feeds a table."""

    name: str
    """SYSTEM:EVENT as tracefs has it, or perf:RECORD."""
    label: str
    """The event's name in the table's column `event`."""
    columns: Mapping[str, Source] = field(default_factory=dict)
    feed: Feed = Feed.TRACEPOINT
    reads: tuple[str, ...] = ()
    """Fields that the probe's assembler reads, beyond those of `columns`."""
    text_bytes: int = 256
    """Most bytes that BPF programs copy of the texts behind the event's other fields."""


class Scope(Enum):
    """The processes whose events a probe needs."""

    TARGET = "target"
    """The targets' own threads: filtered in the kernel."""
    MACHINE = "machine"
    """Every context: write-back for a target happens in kernel threads."""


@dataclass(frozen=True)
class Probe:
    """Something that can be observed: its table, the events that feed it, and its price."""

    name: str
    doc: str
    table: Table
    events: tuple[Event, ...]
    scope: Scope
    rate: str
    """The rate of its events, for people who choose probes by cost."""
    assembler: Callable[[AssemblyContext], Any] | None = None
    """Makes what turns a batch of events into rows, where a row is more than one event's
    fields. None: one row an event, by `Event.columns`."""
    optional: bool = False
    """A kernel may have none of its events and be none the worse: what they tell of may not be
    built in."""


@dataclass(frozen=True)
class AssemblyContext:
    """The facts about the recording that an assembler may need."""

    probe: Probe
    formats: Mapping[str, Any]
    """Event name to its parsed format (`probes.backends.event_format.EventFormat`)."""
    manifest: Mapping[str, Any]
    """The trace's manifest, checked (`tracer.store.manifest.Manifest`), with `threads`: every
    thread at the start as (tid, pid, ppid, comm, cgroup); `maps`, an iterable: each target's
    mappings at the start (`tracer.store.maps.Maps`); and `compat`: its pids of 32-bit programs."""
    flushers: set[int] = field(default_factory=set)
    """Threads seen doing write-back work; the probe `writeback` adds them."""
    membership: Any = None
    """The target of each process (`probes.rows.membership.Membership`)."""
    blind: Mapping[str, list[tuple[int, int]]] = field(default_factory=dict)
    """Event name to spans (ns, both ends within) in which such events may be lost."""
    symbols: Any = None
    """Names instructions (`probes.symbols.resolver.Resolver`); None: nothing here can."""
    gaps: list[Any] = field(default_factory=list)
    """Takes what an assembler could not keep (`probes.loss.Gap`)."""
