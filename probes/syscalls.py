"""System calls: one row per call, made of its entry and exit."""

from __future__ import annotations

from typing import Any

from tracer.probes.schema import (
    CPU,
    PID,
    TID,
    AssemblyContext,
    Column,
    Event,
    Probe,
    Scope,
    Table,
    Type,
)

TABLE = Table(
    "syscalls",
    "One row per system call, in the order in which calls ended.",
    (
        Column("ts", Type.INT64, "when the call was entered", "ns", nullable=False),
        CPU,
        PID,
        TID,
        Column(
            "nr",
            Type.INT32,
            "number of the call, in the numbering of 64-bit or of 32-bit programs",
            nullable=False,
        ),
        Column(
            "name",
            Type.TEXT,
            "name of the call; syscall_NR or compat_syscall_NR (32-bit program) if it is unknown",
        ),
        Column(
            "dur_ns",
            Type.INT64,
            "time in the call; null: it did not return, or its return was lost",
            "ns",
        ),
        Column("ret", Type.INT64, "return value, -errno for an error; null if dur_ns is null"),
    ),
    example="SELECT name, count(*) calls, sum(dur_ns)/1e9 s FROM syscalls GROUP BY 1 ORDER BY 3",
)


def _assembler(context: AssemblyContext) -> Any:
    from tracer.probes.rows.syscall_pairing import SyscallPairing

    return SyscallPairing(context)


PROBE = Probe(
    "syscalls",
    "system calls of the targets, with time and result",
    TABLE,
    (
        Event("raw_syscalls:sys_enter", "enter", reads=("id",)),
        Event("raw_syscalls:sys_exit", "exit", reads=("id", "ret")),
    ),
    Scope.TARGET,
    rate="two events per call",
    assembler=_assembler,
)
