"""Calls into PyTorch's engine, seen from outside: uprobes on libtorch.

A process that was started without us does not mark its phases. libtorch exports what tells of
some of them: the autograd engine's entry is a backward; and the names that PyTorch gives to its
profiler are those of a DataLoader's fetch and an optimizer's step. It exports nothing that tells
of a forward: that is inferred, as what lies between (`tracer.store.training`).
"""

from __future__ import annotations

from dataclasses import dataclass

from probes.schema import (
    CPU,
    EVENT,
    PID,
    TID,
    TS,
    Column,
    Event,
    Feed,
    Probe,
    Scope,
    Source,
    Table,
    Type,
    characters,
    number,
)

LIBRARY = "libtorch_cpu.so"
GROUP = "torch"

BACKWARD_BEGIN, BACKWARD_END = "backward_begin", "backward_end"
RECORD_BEGIN, RECORD_END = "record_begin", "record_end"


@dataclass(frozen=True)
class Place:
    """The place of an event: a function's entry, its returns, or calls of it."""

    symbol: str
    """The begin of the function's mangled name."""
    returns: bool = False
    called_near: str = ""
    """Only where it is called from the code around this function."""
    arguments: tuple[tuple[str, str], ...] = ()
    """The arguments to fetch, as tracefs writes them, by machine: the ABI assigns the registers."""


_EXECUTE = "_ZN5torch8autograd6Engine7executeE"
_RECORD = "_ZN5torch8autograd8profiler25record_function_enter_newE"

PLACES = {
    BACKWARD_BEGIN: Place(_EXECUTE),
    BACKWARD_END: Place(_EXECUTE, returns=True),
    # What it returns takes the first register on x86-64 and one of its own on AArch64; then
    # comes a std::string, which begins with a pointer to its characters.
    RECORD_BEGIN: Place(
        _RECORD,
        arguments=(("x86_64", "name=+0(+0(%si)):ustring"), ("aarch64", "name=+0(+0(%x0)):ustring")),
    ),
    # Every operator of a backward ends one, too, that nobody has asked for: those are elsewhere.
    # A destructor ends what was ended once more.
    RECORD_END: Place(
        "_ZN2at14RecordFunction3endEv",
        called_near=_RECORD,
        arguments=(("x86_64", "object=%di:x64"), ("aarch64", "object=%x0:x64")),
    ),
}
"""Places by the event's name."""

TABLE = Table(
    "torch_calls",
    "One row a call into PyTorch's engine that tells of a phase, seen from outside.",
    (
        TS,
        CPU,
        PID,
        TID,
        EVENT,
        Column("name", Type.TEXT, "of record_begin: what is recorded"),
        Column("object", Type.UINT64, "of record_end: address of the record"),
    ),
    example="SELECT event, name, count(*) FROM torch_calls GROUP BY ALL ORDER BY 3 DESC",
)

_COLUMNS: dict[str, dict[str, Source]] = {
    RECORD_BEGIN: {"name": characters("name")},
    RECORD_END: {"object": number("object")},
}

PROBE = Probe(
    "torch_calls",
    "PyTorch's backward, fetches and optimizer steps in processes that do not mark them",
    TABLE,
    tuple(
        Event(f"{GROUP}:{label}", label, _COLUMNS.get(label, {}), feed=Feed.UPROBE)
        for label in PLACES
    ),
    Scope.TARGET,
    rate="eight events a training step, of some 2 us each: for the caller a dear kind",
    optional=True,
)
