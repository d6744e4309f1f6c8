"""Calls into PyTorch's engine, seen from outside: uprobes on libtorch.

A process that `tracer` did not start does not mark its phases. Some exported functions of libtorch
show them: a call of the autograd engine is a backward, and the names that PyTorch passes to its
profiler include a DataLoader's fetch and an optimizer's step. No exported function shows a forward;
forwards are inferred as the time in between (`tracer.store.training`).
"""

from __future__ import annotations

from tracer.probes.schema import (
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
from tracer.probes.uprobe_place import Place

LIBRARY = "libtorch_cpu.so"
PATH = rb"/libtorch_cpu\.so$"
"""Regular expression for its path."""
GROUP = "torch"

BACKWARD_BEGIN, BACKWARD_END = "backward_begin", "backward_end"
RECORD_BEGIN, RECORD_END = "record_begin", "record_end"


_EXECUTE = "_ZN5torch8autograd6Engine7executeE"
_RECORD = "_ZN5torch8autograd8profiler25record_function_enter_newE"

PLACES = {
    BACKWARD_BEGIN: Place(_EXECUTE),
    BACKWARD_END: Place(_EXECUTE, returns=True),
    # The hidden pointer to the returned object takes the first argument register on x86-64, and a
    # register of its own on AArch64. The next argument is a std::string, which begins with a
    # pointer to its characters.
    RECORD_BEGIN: Place(
        _RECORD,
        arguments=(("x86_64", "name=+0(+0(%si)):ustring"), ("aarch64", "name=+0(+0(%x0)):ustring")),
    ),
    # Every operator of a backward also ends a record, unrelated to these: `called_near` leaves such
    # calls out. A destructor ends an ended record once more.
    RECORD_END: Place(
        "_ZN2at14RecordFunction3endEv",
        called_near=_RECORD,
        arguments=(("x86_64", "object=%di:x64"), ("aarch64", "object=%x0:x64")),
    ),
}
"""Places by the event's name."""

TABLE = Table(
    "torch_calls",
    "One row per call into PyTorch's engine that shows a phase, seen from outside.",
    (
        TS,
        CPU,
        PID,
        TID,
        EVENT,
        Column("name", Type.TEXT, "record_begin: name of the record"),
        Column("object", Type.UINT64, "record_end: address of the record"),
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
    rate="eight events per training step; each costs the caller some 2 us",
    optional=True,
)
