"""Write-back work: the flusher's tasks, who requested them, and for which reason.

Kernel: include/trace/events/writeback.h, class writeback_work_class.
"""

from __future__ import annotations

from typing import Any

from tracer.probes.schema import (
    CPU,
    EVENT,
    PID,
    SHORT,
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
    device,
    named,
    number,
)

TABLE = Table(
    "writeback",
    "One row per write-back event. A pass of the flusher is a start .. written bracket; the passes"
    " up to pages_written are one run of its work.",
    (
        TS,
        CPU,
        PID,
        TID,
        EVENT,
        Column("reason", Type.TEXT, "why: periodic, background, sync, vmscan, ...", longest=SHORT),
        Column("bdi", Type.TEXT, "backing device: MAJOR:MINOR of the whole disk, or a name"),
        Column("dev", Type.TEXT, "device of the super block; 0:0 if the work names none"),
        Column("nr_pages", Type.INT64, "pages still to be written by this work", "pages"),
        Column("sync_mode", Type.INT32, "0: only start write-out, 1: wait for it"),
        Column("kupdate", Type.BOOL, "work of the periodic flush"),
        Column("background", Type.BOOL, "work of the background flush"),
        Column("cgroup_ino", Type.UINT64, "inode of the write-back cgroup"),
    ),
    example="SELECT reason, count(*) FROM writeback WHERE event='start' GROUP BY 1 ORDER BY 2 DESC",
)

_WORK = {
    "reason": named("reason"),
    "bdi": characters("name"),
    "dev": device("sb_dev"),
    "nr_pages": number("nr_pages"),
    "sync_mode": number("sync_mode"),
    "kupdate": number("for_kupdate", mask=~0),
    "background": number("for_background", mask=~0),
    "cgroup_ino": number("cgroup_ino"),
}


def _assembler(context: AssemblyContext) -> Any:
    from tracer.probes.rows.event_rows import WritebackRows

    return WritebackRows(context)


PROBE = Probe(
    "writeback",
    "write-back work and its reason, machine-wide",
    TABLE,
    (
        Event("writeback:writeback_queue", "queue", _WORK),
        Event("writeback:writeback_exec", "exec", _WORK),
        Event("writeback:writeback_start", "start", _WORK),
        Event("writeback:writeback_written", "written", _WORK),
        Event("writeback:writeback_wait", "wait", _WORK),
        # It names no device: the thread ran for the device of its last pass.
        Event("writeback:writeback_pages_written", "pages_written", {}),
        Event(
            "writeback:writeback_wake_background",
            "wake_background",
            {"bdi": characters("name"), "cgroup_ino": number("cgroup_ino")},
        ),
    ),
    Scope.MACHINE,
    rate="a few events per second",
    assembler=_assembler,
)
