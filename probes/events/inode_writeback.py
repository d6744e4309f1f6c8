"""The inode that the flusher writes: the bracket that gives a bio its inode.

Kernel: include/trace/events/writeback.h, class writeback_single_inode_template.
"""

from __future__ import annotations

from typing import Any

from tracer.probes.schema import (
    CPU,
    EVENT,
    INO,
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
    characters,
    number,
)

TABLE = Table(
    "inode_writeback",
    "One row per inode event of the flusher. Writing an inode is a start .. end bracket.",
    (
        TS,
        CPU,
        PID,
        TID,
        EVENT,
        Column("dev", Type.TEXT, "backing device: MAJOR:MINOR of the whole disk, or a name"),
        INO,
        Column("nr_to_write", Type.INT64, "pages that may still be written", "pages"),
        Column("wrote", Type.INT64, "pages written by this call", "pages"),
        Column("dirtied_when", Type.INT64, "when the inode became dirty", "jiffies"),
        Column(
            "age",
            Type.INT64,
            "time since the inode became dirty; null: jiffies of this kernel unknown",
            "ns",
        ),
        Column("state", Type.UINT64, "the inode's state: I_... bits of this kernel"),
    ),
    example="SELECT ino, sum(wrote) pages FROM inode_writeback GROUP BY 1 ORDER BY 2 DESC",
)

_SINGLE = {
    "dev": characters("name"),
    "ino": number("ino"),
    "nr_to_write": number("nr_to_write"),
    "wrote": number("wrote"),
    "dirtied_when": number("dirtied_when"),
    "state": number("state"),
}


def _assembler(context: AssemblyContext) -> Any:
    from tracer.probes.rows.event_rows import InodeRows

    return InodeRows(context)


PROBE = Probe(
    "inode_writeback",
    "inodes as the flusher writes them, machine-wide",
    TABLE,
    (
        Event("writeback:writeback_single_inode_start", "start", _SINGLE),
        Event("writeback:writeback_single_inode", "end", _SINGLE),
        Event(
            "writeback:writeback_write_inode",
            "write_inode",
            {"dev": characters("name"), "ino": number("ino")},
        ),
    ),
    Scope.MACHINE,
    rate="a few events per inode written",
    assembler=_assembler,
)
