"""Lanes of events: write-backs, data written back, faults, dirtying, system calls, stalls."""

from __future__ import annotations

from tracer.analysis.timeline.axis import Axis, show_width
from tracer.analysis.timeline.binned import count_query, counted, cover_query, covered
from tracer.analysis.timeline.lane import Kind, Lane
from tracer.analysis.views.threads import make_threads, owns
from tracer.analysis.views.waiting.stalls import STALLS
from tracer.analysis.views.waiting.steps import steps
from tracer.analysis.views.writing.flushes import flushes
from tracer.probes.events.block import SECTOR_BYTES
from tracer.store.trace import Trace

MIB = 1 << 20

_STARTS = "SELECT ts, reason AS series, 1 AS amount FROM writeback WHERE event = 'start'"
_FAULTS = (
    "SELECT ts, CASE kind WHEN 'unknown' THEN 'neither minor nor major, or not known'"
    " ELSE kind END AS series, 1 AS amount FROM page_faults"
)
_FOLIOS = (
    "SELECT d.ts, coalesce(t.role, 'other') AS series, 1 AS amount"
    f" FROM dirty d LEFT JOIN threads t ON {owns('t', 'd')}"
    " WHERE d.event = 'dirty_folio'"
)
_STALLS = {"throttle": "dirty throttling", "direct": "direct transfer"}
"""Longer names for kinds of stalls whose own names are too short to be understood."""
_CALLS = "SELECT name AS series, ts AS start, dur_ns AS ns FROM syscalls"


def writebacks(trace: Trace, axis: Axis) -> Lane:
    """Returns the write-backs by reason: the number of `writeback_start` events in each bin.

    The frame is that of `counted`. Needs the table writeback.
    """
    trace.require("writeback")
    return Lane(
        "Write-back",
        "Write-backs started, by reason",
        f"write-backs in {show_width(axis)}",
        Kind.AREAS,
        counted(trace, axis, _STARTS),
        "writeback_start events of the flusher. An fsync raises no such event.",
        count_query(axis, _STARTS),
    )


def written(trace: Trace, axis: Axis) -> Lane:
    """Returns the data written back by reason, in MiB/s, without the recorder's own files.

    The data are those of the view `flushes`; the frame is that of `counted`. Needs the table block.
    """
    rows = (
        f"SELECT ts, reason AS series, nr_sector::DOUBLE * {SECTOR_BYTES} AS amount"
        f" FROM {flushes(trace)} WHERE NOT own AND NOT below"
    )
    return Lane(
        "Write-back",
        "Written back, by reason",
        "MiB/s",
        Kind.AREAS,
        counted(trace, axis, rows, a_second=1 / MIB),
        "Write bios by time of queueing, without the recorder's own files.",
        count_query(axis, rows),
    )


def dirtied(trace: Trace, axis: Axis) -> Lane:
    """Returns the folios dirtied per second, by the role of the thread.

    The frame is that of `counted`. Needs the tables dirty and processes.
    """
    trace.require("dirty", "processes")
    make_threads(trace)
    return Lane(
        "Write-back",
        "Folios dirtied, by role",
        "folios/s",
        Kind.AREAS,
        counted(trace, axis, _FOLIOS, a_second=1),
        "A large folio counts once, even if only a part of it is written.",
        count_query(axis, _FOLIOS),
    )


def faults(trace: Trace, axis: Axis) -> Lane:
    """Returns the page faults per second, by kind.

    The frame is that of `counted`. Needs the table page_faults.
    """
    trace.require("page_faults")
    return Lane(
        "Memory",
        "Page faults, by kind",
        "faults/s",
        Kind.AREAS,
        counted(trace, axis, _FAULTS, a_second=1),
        "Faults of the targets.",
        count_query(axis, _FAULTS),
    )


def calls(trace: Trace, axis: Axis) -> Lane:
    """Returns the mean number of the targets' threads in each system call in a bin.

    The frame is that of `covered`. Needs the table syscalls.
    """
    trace.require("syscalls")
    return Lane(
        "System calls",
        "Threads in a system call",
        "threads",
        Kind.AREAS,
        covered(trace, axis, _CALLS),
        "Calls of the targets, including the time in which they wait. Calls that did not return are"
        " left out.",
        cover_query(axis, _CALLS),
    )


def stalls(trace: Trace, axis: Axis) -> Lane | None:
    """Returns the mean number of threads that wait for storage or data in a bin, by kind of wait.

    The waits are those of the view `stalls`, by kind, if the trace has the tables that the view
    needs, and those in which a step's own thread waits for its next batch. A thread counts once at
    a time: a wait within another counts as the outer one. Stalls without a duration, such as major
    faults, are left out. The frame is that of `covered`. Returns None if the trace has no table for
    either.
    """
    parts, notes = [], []
    if all(need in trace.tables for need in STALLS.needs):
        kinds = " ".join(f"WHEN '{kind}' THEN '{name}'" for kind, name in _STALLS.items())
        parts.append(
            f"SELECT CASE kind {kinds} ELSE kind END AS series, pid, tid, ts AS start,"
            f" dur_ns AS ns FROM {STALLS.make(trace)} WHERE dur_ns IS NOT NULL"
        )
        notes.append(
            "Dirty throttling: the kernel put the thread to sleep because it dirtied pages. Sync,"
            " direct transfer, read: the whole call counts, so the waits are at most that long."
        )
    else:
        notes.append(f"Waiting for storage needs the tables {' and '.join(STALLS.needs)}.")
    if "phases" in trace.tables:
        # In the view, a step begins with its fetch.
        parts.append(
            "SELECT 'fetch' AS series, pid, tid, start, fetch_stall_ns AS ns"
            f" FROM {steps(trace)} WHERE fetch_stall_ns > 0"
        )
        notes.append("Fetch: a step's thread waits for its next batch.")
    if not parts:
        return None
    notes.append("A wait within another of its thread counts as the outer one.")
    intervals = _once_a_thread(axis, " UNION ALL ".join(parts))
    return Lane(
        "Stalls",
        "Threads that wait for storage or data",
        "threads",
        Kind.AREAS,
        covered(trace, axis, intervals),
        " ".join(notes),
        cover_query(axis, intervals),
    )


def _once_a_thread(axis: Axis, intervals: str) -> str:
    """Returns SQL for intervals without the parts in earlier, or outer, ones of their thread.

    `intervals`: a query for series, pid, tid, start and ns. Columns: series, start, ns.
    """
    return (
        "SELECT series, greatest(start, before) AS start, until - greatest(start, before) AS ns"
        " FROM (SELECT *, max(until) OVER ("
        "PARTITION BY tid, CASE WHEN tid IS NULL THEN pid END"
        " ORDER BY start, until DESC, series = 'fetch' DESC, series"
        " ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING) AS before"
        f" FROM (SELECT *, {axis.ended('start', 'ns')} AS until FROM ({intervals})"
        f" WHERE {axis.overlaps('start', 'ns')})) WHERE until > coalesce(before, start)"
    )
