"""Tables, columns and probes. Each fact about an event is declared once, with these classes.

A probe's file declares its table and the kernel events that feed it. The mapping from an event's
fields to columns is data (`Source`), so that one declaration serves every backend and every kernel
version: a field is looked up by name in the event's own format, and a column whose field this
kernel lacks is null, never 0.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pyarrow as pa


SHORT = 1 << 10
"""Most bytes of a text that the kernel or the recorder chooses: the name of an event, a call, a
thread; 256 bytes, all escaped. A compressed file of 1 MB can repeat one text 200,000 times."""


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
    """One column. Its unit is "" if it has none."""

    name: str
    type: Type
    doc: str
    unit: str = ""
    nullable: bool = True
    longest: int = 1 << 16
    """Most bytes in a text of this column: enough for a path of 4,096 bytes, all escaped."""


@dataclass(frozen=True)
class Table:
    """One table of a trace, in `events/NAME.parquet`."""

    name: str
    doc: str
    columns: tuple[Column, ...]
    example: str
    """One useful SQL query, shown by `tracer query --help`."""
    option: str = ""
    """The option of `tracer record` that makes this table; "": option -e with its probe."""

    def column(self, name: str) -> Column:
        """Returns the column called `name`. Raises KeyError if there is none."""
        for column in self.columns:
            if column.name == name:
                return column
        raise KeyError(name)

    def arrow_schema(self) -> pa.Schema:
        """Returns the schema of the Parquet file."""
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
PID = Column("pid", Type.INT32, "process (thread group) in whose context the event happened")
TID = Column("tid", Type.INT32, "thread in whose context the event happened", nullable=False)
EVENT = Column("event", Type.TEXT, "name of the event", nullable=False, longest=SHORT)
DEV = Column("dev", Type.TEXT, "block device, MAJOR:MINOR")
INO = Column("ino", Type.UINT64, "inode number on that device")


@dataclass(frozen=True)
class Source:
    """An event field that fills a column.

    `fields` are the names of the field in different kernels, newest first. `scale` multiplies
    an integer (e.g. ms to ns).
    """

    fields: tuple[str, ...]
    scale: int = 1


@dataclass(frozen=True)
class Number(Source):
    """An integer field, or some bits of it."""

    mask: int = 0
    """If not 0, the column is true if any of these bits is set."""


@dataclass(frozen=True)
class Characters(Source):
    """A fixed or `__data_loc` character array. Bytes that are not UTF-8 are escaped."""

    most: int = 256
    """Bytes at which the text is cut."""


@dataclass(frozen=True)
class DeviceNumber(Source):
    """The kernel's dev_t, shown as MAJOR:MINOR."""


@dataclass(frozen=True)
class Named(Source):
    """An integer whose values have names in the event's own print format."""


@dataclass(frozen=True)
class Uuid(Source):
    """A UUID of 16 bytes."""


def number(*fields: str, scale: int = 1, mask: int = 0) -> Number:
    """Makes the source of an integer field from its names, newest first."""
    return Number(fields, scale, mask)


def characters(*fields: str, most: int = 256) -> Characters:
    """Makes the source of a character-array field, cut at `most` bytes."""
    return Characters(fields, most=most)


def device(*fields: str) -> DeviceNumber:
    """Makes the source of a dev_t field."""
    return DeviceNumber(fields)


def named(*fields: str) -> Named:
    """Makes the source of an integer field with names in the print format."""
    return Named(fields)


def uuid(*fields: str) -> Uuid:
    """Makes the source of a UUID field."""
    return Uuid(fields)


class Feed(Enum):
    """The kernel interface that an event comes from."""

    TRACEPOINT = "tracepoint"
    PERF = "perf"
    """A software event or a record of perf_event. A probe also works without it."""
    UPROBE = "uprobe"
    """A place in a library. The event exists only while a target that uses the library is
    recorded."""
    STACK = "stack"
    """The kernel stack of another event. A probe also works without it."""


@dataclass(frozen=True)
class Event:
    """A kernel event that feeds a table."""

    name: str
    """SYSTEM:EVENT as in tracefs, or perf:RECORD."""
    label: str
    """The event's name in the table's column `event`."""
    columns: Mapping[str, Source] = field(default_factory=dict)
    feed: Feed = Feed.TRACEPOINT
    reads: tuple[str, ...] = ()
    """Fields that the probe's assembler reads, beyond those of `columns`."""
    text_bytes: int = 256
    """Most bytes that BPF programs copy of the texts behind the event's other fields."""
    threads: tuple[str, ...] = ()
    """At most two fields with the threads that the event is about, if these may be others than the
    one in whose context it happens. A target's event is then one about a target's thread."""
    stack_of: str = ""
    """The event whose kernel stack it holds, which is logged just before it on the same CPU."""
    interrupts: bool = False
    """True if it may happen in an interrupt: whatever thread runs on the CPU has no part in it."""


class Scope(Enum):
    """The processes whose events a probe needs."""

    TARGET = "target"
    """The targets' own threads, filtered in the kernel."""
    MACHINE = "machine"
    """All threads, because write-back for a target happens in kernel threads."""


@dataclass(frozen=True)
class Probe:
    """A subject that can be recorded: its table, the events that feed it, and their rate."""

    name: str
    doc: str
    table: Table
    events: tuple[Event, ...]
    scope: Scope
    rate: str
    """The rate of its events, for people who choose probes by cost."""
    assembler: Callable[[AssemblyContext], Any] | None = None
    """Maker of the object that turns batches of events into rows, if a row is more than the fields
    of one event. None: one row per event, by `Event.columns`."""
    by_default: bool = True
    """False if it is recorded only if the user names it, because of its cost."""
    optional: bool = False
    """True if a kernel may lack all of its events, because their subject is not built in."""


@dataclass(frozen=True)
class AssemblyContext:
    """The facts about the recording that an assembler may need."""

    probe: Probe
    formats: Mapping[str, Any]
    """Event name to its parsed format (`tracer.probes.backends.event_format.EventFormat`)."""
    manifest: Mapping[str, Any]
    """The trace's manifest, checked (`tracer.store.manifest.Manifest`), with `threads`: every
    thread at the start as (tid, pid, ppid, comm, cgroup); `maps`, an iterable: each target's
    mappings at the start (`tracer.store.maps.Maps`); and `compat`: its pids of 32-bit programs."""
    flushers: set[int] = field(default_factory=set)
    """Threads that did write-back work; the probe `writeback` adds them."""
    membership: Any = None
    """The target of each process (`tracer.probes.rows.membership.Membership`)."""
    blind: Mapping[str, list[tuple[int, int]]] = field(default_factory=dict)
    """Event name to spans (ns, both ends included) in which such events may be lost."""
    symbols: Any = None
    """Resolver that names instructions (`tracer.probes.symbols.resolver.Resolver`), or None."""
    gaps: list[Any] = field(default_factory=list)
    """Gaps (`tracer.probes.loss.Gap`) for events that an assembler could not keep."""
    kernel: Any = None
    """Names of the kernel's functions (`tracer.probes.symbols.kernel.KernelSymbols`), or None."""
