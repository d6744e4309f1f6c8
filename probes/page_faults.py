"""Page faults of the targets.

The tracepoints give address, instruction and access; whether a fault was minor or major they
do not say, so `kind` is "unknown" where only they were recorded.
"""

from __future__ import annotations

from typing import Any

from probes.schema import (
    CPU,
    PID,
    TID,
    TS,
    AssemblyContext,
    Column,
    Event,
    Probe,
    Scope,
    Table,
    Type,
)

TABLE = Table(
    "page_faults",
    "One row a page fault taken in a target's context.",
    (
        TS,
        CPU,
        PID,
        TID,
        Column("address", Type.UINT64, "address that faulted", nullable=False),
        Column("ip", Type.UINT64, "instruction that faulted", nullable=False),
        Column("kind", Type.TEXT, "minor, major or unknown", nullable=False),
        Column("access", Type.TEXT, "read, write or exec; null: not known on this architecture"),
        Column("user", Type.BOOL, "taken in user mode", nullable=False),
        Column("file", Type.TEXT, "file behind the address; null: not resolved"),
        Column("file_offset", Type.INT64, "offset in that file; null: not resolved", "bytes"),
        Column("ip_file", Type.TEXT, "file of the instruction; null: not resolved"),
        Column("symbol", Type.TEXT, "function of the instruction; null: not resolved"),
    ),
    example="SELECT pid, access, count(*) FROM page_faults GROUP BY ALL ORDER BY 3 DESC",
)


def _assembler(context: AssemblyContext) -> Any:
    from probes.backends.ftrace.fault_rows import FaultRows

    return FaultRows(context)


PROBE = Probe(
    "page_faults",
    "page faults of the targets: address, instruction, access",
    TABLE,
    (
        Event("exceptions:page_fault_user", "user"),
        Event("exceptions:page_fault_kernel", "kernel"),
    ),
    Scope.TARGET,
    rate="one event a fault",
    assembler=_assembler,
)
