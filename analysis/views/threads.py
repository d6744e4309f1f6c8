"""Threads: the kernel gives the numbers of dead threads to new ones, so a number has several lives.

A life lasts from its thread's start until the next thread of that number starts. The first life
also takes the events before it, since its start need not have been recorded.
"""

from __future__ import annotations

from tracer.analysis.views.calls_around import EARLIEST, LATEST
from tracer.analysis.views.view import View, make_once
from tracer.probes.proc import KTHREADD
from tracer.probes.schema import Column, Type
from tracer.store.trace import Trace

_SQL = f"""
CREATE OR REPLACE TEMP TABLE threads AS
WITH lives AS (
    SELECT *, coalesce(start_ns, -{LATEST}) AS start FROM processes WHERE tid IS NOT NULL
), named AS (
    SELECT tid, start,
        -- A value that is alone: its smallest and its largest are the same.
        CASE WHEN min(pid) = max(pid) THEN min(pid) END AS pid,
        any_value(comm) AS comm,
        CASE WHEN min(role) = max(role) THEN min(role) END AS role,
        CASE WHEN min(coalesce(target, '')) = max(coalesce(target, ''))
            THEN any_value(target) END AS target,
        CASE WHEN min(coalesce(container_id, '')) = max(coalesce(container_id, ''))
            THEN any_value(container_id) END AS container,
        -- A flusher is a kernel thread even if its parent is not known.
        bool_and(ppid IS NOT DISTINCT FROM {KTHREADD} OR role IN ('flusher', 'journal')) AS kernel,
        bool_or(role IN ('target', 'child')) AS job,
        bool_or(start_ns IS NULL) AS was_there,
        CASE WHEN count(end_ns) = count(*) THEN max(end_ns) END AS ended
    FROM lives GROUP BY tid, start
)
SELECT tid, CASE WHEN row_number() OVER by_number = 1 THEN {EARLIEST} ELSE start END AS begun,
    coalesce(lead(start) OVER by_number, {LATEST}) AS until,
    row_number() OVER (ORDER BY tid, start) AS life, * EXCLUDE (tid, start) REPLACE (
        job OR ($everybody AND NOT coalesce(kernel, false) AND role IS DISTINCT FROM 'daemon')
            AS job),
    nullif(start, -{LATEST}) AS started
FROM named WINDOW by_number AS (PARTITION BY tid ORDER BY start)
"""


def _build(trace: Trace) -> None:
    trace.execute(_SQL.replace("$everybody", str(of_everybody(trace))))


THREADS = View(
    "threads",
    "One row per thread: a number that several threads had, one after the other, has several rows.",
    (
        Column("tid", Type.INT32, "number of the thread"),
        Column("begun", Type.INT64, "first time at which the number is this thread's", "ns"),
        Column("until", Type.INT64, "first time at which it is another thread's", "ns"),
        Column("life", Type.INT64, "number of the row, from 1"),
        Column("pid", Type.INT32, "process (thread group)"),
        Column("comm", Type.TEXT, "last known name"),
        Column("role", Type.TEXT, "as in processes; null: processes has several"),
        Column("target", Type.TEXT, "name of its target; null: none, or several"),
        Column("container", Type.TEXT, "its container, by id; null: none, or several"),
        Column("kernel", Type.BOOL, "a kernel thread"),
        Column(
            "job",
            Type.BOOL,
            "belongs to a target that is no Docker daemon, or to any program if the whole machine "
            "was recorded or the trace names no target",
        ),
        Column("was_there", Type.BOOL, "lived when the recording began"),
        Column("ended", Type.INT64, "when it exited; null: not known to have", "ns"),
        Column("started", Type.INT64, "when it was created; null: before the recording", "ns"),
    ),
    needs=("processes",),
    build=_build,
    example="SELECT t.comm, count(*) FROM dirty d JOIN threads t ON d.tid = t.tid"
    " AND d.ts >= t.begun AND d.ts < t.until GROUP BY ALL",
)


def make_threads(trace: Trace) -> None:
    """Makes the view `threads`, which is empty for a trace without the table processes."""
    trace.empty_if_missing("processes")
    make_once(trace, THREADS.name, _build)


def whole_machine(trace: Trace) -> bool:
    """Returns whether the whole machine was recorded, so that everybody is a target."""
    return any(target["kind"] == "machine" for target in trace.manifest["targets"])


def of_everybody(trace: Trace) -> bool:
    """Returns whether questions about targets are about all programs of a trace.

    They are if the whole machine was recorded, or if nothing names a target, as in imported traces.
    """
    if trace.manifest["targets"]:
        return whole_machine(trace)
    trace.empty_if_missing("processes")
    named = "target IS NOT NULL OR role IN ('target', 'child', 'daemon')"
    rows = f"SELECT 1 FROM processes WHERE {named} LIMIT 1"
    return trace.once("no process is of a target", lambda: not trace.rows(rows))


def of_targets(trace: Trace) -> str:
    """Returns the SQL condition that a row of `threads` belongs to a target.

    If the trace is everybody's, it is that of any program, or of a Docker daemon that is a target.
    """
    everybody = " OR coalesce(job, false)" if of_everybody(trace) else ""
    return f"(target IS NOT NULL{everybody})"


def name_of_others(trace: Trace) -> str:
    """Returns a name for the processes without a target, in a trace that is everybody's.

    It is that of the target that stands for the whole machine, and no name of another target.
    """
    targets = trace.manifest["targets"]
    found = next((one["name"] for one in targets if one["kind"] == "machine"), "all processes")
    taken = {one["name"] for one in targets if one["kind"] != "machine"}
    while found in taken:
        found += " (others)"
    return found


def owns(owner: str, row: str, tid: str = "tid", ts: str = "ts") -> str:
    """Returns the SQL condition that OWNER, a row of `threads`, is the life of ROW's thread."""
    moment = f"{row}.{ts}"
    return f"{owner}.tid = {row}.{tid} AND {moment} >= {owner}.begun AND {moment} < {owner}.until"


def life(owner: str, prefix: str = "") -> str:
    """Returns SQL for the first and the last time (ns) at which a number is that of OWNER.

    The columns are `begun` and `last`, after a prefix. OWNER is a row of `threads`; if there is
    none, the number has one life.
    """
    return (
        f"coalesce({owner}.begun, {EARLIEST}) AS {prefix}begun,"
        f" CASE WHEN {owner}.until < {LATEST} THEN {owner}.until - 1 ELSE {LATEST} END"
        f" AS {prefix}last"
    )


def moment(trace: Trace, tid: str = "tid", ts: str = "ts") -> str:
    """Returns SQL for the time of a row (ns), or the earliest time if its number has one life.

    `owns` finds the same life for both. Rows can be counted by it before they are joined, which is
    cheaper, since few numbers have several lives. Needs the table `threads`.
    """
    several = "SELECT tid FROM threads GROUP BY tid HAVING count(*) > 1"
    if not trace.once("several lives", lambda: trace.rows(f"{several} LIMIT 1")):
        return str(EARLIEST)
    return f"CASE WHEN {tid} IN ({several}) THEN {ts} ELSE {EARLIEST} END"


def same_work(comm: str) -> str:
    """Returns SQL for a thread's name without the number that tells it from others of its work.

    The kernel has a ksoftirqd and a migration thread per CPU, and any number of kworkers.
    """
    return f"regexp_replace({comm}, '^(kworker|ksoftirqd|migration)/.*$', '\\1')"


def of_threads(table: str, which: str, tid: str = "tid", ts: str = "ts") -> str:
    """Returns SQL for the rows of a table of threads for whose owner WHICH, a condition, holds.

    `which` names columns of `threads`.
    """
    return (
        f"(SELECT e.* FROM {table} e SEMI JOIN (SELECT * FROM threads WHERE {which}) o"
        f" ON {owns('o', 'e', tid, ts)})"
    )
