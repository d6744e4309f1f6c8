"""Processes and threads: parents, names and lifetimes."""

from __future__ import annotations

from typing import Any

from tracer.probes.schema import AssemblyContext, Column, Event, Probe, Scope, Table, Type

TABLE = Table(
    "processes",
    "One row per thread that is alive at the start or is created during the recording.",
    (
        Column("pid", Type.INT32, "process (thread group)", nullable=False),
        Column("ppid", Type.INT32, "parent: the process that created it; null: unknown"),
        Column("tid", Type.INT32, "thread; equal to pid for the first one", nullable=False),
        Column("comm", Type.TEXT, "its last known name; null: unknown"),
        Column("start_ns", Type.INT64, "when it was created; null: before the recording", "ns"),
        Column("end_ns", Type.INT64, "when it exited; null: after the recording", "ns"),
        Column("role", Type.TEXT, "target, daemon, child, flusher, journal, other", nullable=False),
        Column(
            "target",
            Type.TEXT,
            "name of the target that it belongs to, or whose cgroup it was in last",
        ),
        Column("container_id", Type.TEXT, "container, by its cgroup path"),
        Column("container_name", Type.TEXT, "name of the container, if its engine knows it"),
        Column("cgroup", Type.TEXT, "path of its cgroup, or of its last one"),
    ),
    example="SELECT role, pid, any_value(comm), count(*) threads FROM processes GROUP BY ALL",
)


def _assembler(context: AssemblyContext) -> Any:
    from tracer.probes.rows.process_rows import ProcessRows

    return ProcessRows(context)


PROBE = Probe(
    "processes",
    "forks, execs, renames and exits, machine-wide; always recorded",
    TABLE,
    (
        Event("task:task_newtask", "newtask", reads=("pid", "clone_flags", "comm")),
        Event("task:task_rename", "rename", reads=("pid", "newcomm")),
        Event("sched:sched_process_exec", "exec", reads=("pid", "old_pid")),
        Event("sched:sched_process_exit", "exit", reads=("comm",)),
        Event(
            "cgroup:cgroup_attach_task",
            "attach",
            reads=("dst_root", "pid", "dst_path"),
            text_bytes=1024,
        ),
    ),
    Scope.MACHINE,
    rate="a few events per thread",
    assembler=_assembler,
)
