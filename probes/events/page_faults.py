"""Page faults of the targets.

The tracepoints give the address, the instruction and the access. perf's software events mark major
faults, and faults in kernel mode. A signal marks a fault that failed. perf's records of mappings
give the file behind an address. If perf events cannot be opened, `kind` is "unknown" and the files
are null.

Kernels of some architectures, such as AArch64, have no such tracepoints. There, perf's software
events give the address and the instruction of every fault that did not fail; `access` is null.
"""

from __future__ import annotations

from typing import Any

from tracer.probes.schema import (
    CPU,
    PID,
    SHORT,
    TID,
    TS,
    AssemblyContext,
    Column,
    Event,
    Feed,
    Probe,
    Scope,
    Table,
    Type,
)

TABLE = Table(
    "page_faults",
    "One row per page fault taken in a target's context.",
    (
        TS,
        CPU,
        PID,
        TID,
        Column("address", Type.UINT64, "address that faulted", nullable=False),
        Column("ip", Type.UINT64, "instruction that faulted", nullable=False),
        Column("kind", Type.TEXT, "minor, major or unknown", nullable=False, longest=SHORT),
        Column(
            "access",
            Type.TEXT,
            "read, write or exec; null: not known on this architecture",
            longest=SHORT,
        ),
        Column("user", Type.BOOL, "taken in user mode", nullable=False),
        Column("file", Type.TEXT, "mapping behind the address: a file, [anon], [heap], ..."),
        Column("file_offset", Type.INT64, "offset of the address in that file", "bytes"),
        Column("ip_file", Type.TEXT, "file of the instruction; [kernel]: kernel code"),
        Column("symbol", Type.TEXT, "function of the instruction; null: not resolved"),
    ),
    example="SELECT kind, file, count(*) FROM page_faults GROUP BY ALL ORDER BY 3 DESC LIMIT 9",
)

KERNEL_FAULT = "exceptions:page_fault_kernel"
TRACEPOINTS = ("exceptions:page_fault_user", KERNEL_FAULT)
_FAULT = ("address", "ip", "error_code")


def _assembler(context: AssemblyContext) -> Any:
    from tracer.probes.rows.fault_rows import FaultRows

    return FaultRows(context)


PROBE = Probe(
    "page_faults",
    "page faults of the targets: minor or major, file, instruction, access",
    TABLE,
    (
        *(
            Event(name, label, reads=_FAULT)
            for name, label in zip(TRACEPOINTS, ("user", "kernel"), strict=True)
        ),
        Event("signal:signal_generate", "signal", reads=("sig", "code")),
        *(
            Event(f"perf:{name}", label, feed=Feed.PERF)
            for name, label in (
                ("minor-faults", "minor"),
                ("major-faults", "major"),
                ("mmap", "mmap"),
                ("exec", "exec"),
                ("fork", "fork"),
                ("exit", "exit"),
            )
        ),
    ),
    Scope.TARGET,
    rate="one event per fault, two per major or kernel-mode fault, one per mapping",
    assembler=_assembler,
)
