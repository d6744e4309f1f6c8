"""Lanes of events: write-backs, what is written back, faults, dirtying, system calls, stalls."""

from __future__ import annotations

from analysis.timeline.axis import Axis, show_width
from analysis.timeline.binned import count_query, counted, cover_query, covered
from analysis.timeline.lane import Kind, Lane
from analysis.views.flushes import flushes
from analysis.views.stalls import STALLS
from analysis.views.steps import steps
from analysis.views.threads import make_threads, owns
from tracer.store.trace import Trace

MIB = 1 << 20
PAGE_BYTES = 4096

_STARTS = "SELECT ts, reason AS series, 1 AS amount FROM writeback WHERE event = 'start'"
_FAULTS = (
    "SELECT ts, CASE kind WHEN 'unknown' THEN 'neither minor nor major, or not told'"
    " ELSE kind END AS series, 1 AS amount FROM page_faults"
)
_FOLIOS = (
    "SELECT d.ts, coalesce(t.role, 'other') AS series, 1 AS amount"
    f" FROM dirty d LEFT JOIN threads t ON {owns('t', 'd')}"
    " WHERE d.event = 'dirty_folio'"
)
_STALLS = {"throttle": "dirty throttling", "direct": "direct transfer"}
"""Kinds of stalls whose names say too little on their own."""
_CALLS = "SELECT name AS series, ts AS start, dur_ns AS ns FROM syscalls"


def writebacks(trace: Trace, axis: Axis) -> Lane:
    """Write-backs by reason: `writeback_start` events in each bin. Needs table writeback.

    The frame is that of `counted`.
    """
    trace.require("writeback")
    return Lane(
        "Write-back",
        "Write-backs begun, by reason",
        f"write-backs in {show_width(axis)}",
        Kind.AREAS,
        counted(trace, axis, _STARTS),
        "writeback_start events of the flusher; an fsync writes without any.",
        count_query(axis, _STARTS),
    )


def written(trace: Trace, axis: Axis) -> Lane:
    """What is written back, by reason, in MiB/s; without the recorder's own files.

    The frame is that of `counted`, of the view `flushes`. Needs table block.
    """
    rows = (
        f"SELECT ts, reason AS series, pages::DOUBLE * {PAGE_BYTES} AS amount"
        f" FROM {flushes(trace)} WHERE NOT own AND pages > 0"
    )
    return Lane(
        "Write-back",
        "Written back, by reason",
        "MiB/s",
        Kind.AREAS,
        counted(trace, axis, rows, a_second=1 / MIB),
        "Write bios as they are queued, without the recorder's own files.",
        count_query(axis, rows),
    )


def dirtied(trace: Trace, axis: Axis) -> Lane:
    """Folios made dirty a second, by the role of the thread. Needs tables dirty and processes.

    The frame is that of `counted`.
    """
    trace.require("dirty", "processes")
    make_threads(trace)
    return Lane(
        "Write-back",
        "Folios made dirty, by role",
        "folios/s",
        Kind.AREAS,
        counted(trace, axis, _FOLIOS, a_second=1),
        "A large folio counts once, whatever of it is written.",
        count_query(axis, _FOLIOS),
    )


def faults(trace: Trace, axis: Axis) -> Lane:
    """Page faults a second, by kind. Needs table page_faults. The frame is that of `counted`."""
    trace.require("page_faults")
    return Lane(
        "Memory",
        "Page faults, by kind",
        "faults/s",
        Kind.AREAS,
        counted(trace, axis, _FAULTS, a_second=1),
        "Of the targets.",
        count_query(axis, _FAULTS),
    )


def calls(trace: Trace, axis: Axis) -> Lane:
    """How many threads of the targets are in each system call, on average over a bin.

    The frame is that of `covered`. Needs table syscalls.
    """
    trace.require("syscalls")
    return Lane(
        "System calls",
        "Threads in a system call",
        "threads",
        Kind.AREAS,
        covered(trace, axis, _CALLS),
        "Of the targets; waiting counts. A call that did not return does not count.",
        cover_query(axis, _CALLS),
    )


def stalls(trace: Trace, axis: Axis) -> Lane | None:
    """How many threads wait for storage or data, on average over a bin, by what holds them.

    The times of the view `stalls`, by its kinds, where the trace has the tables that it needs; and
    those in which a step's own thread waits for its next batch. What has no time, as a major
    fault, does not count. The frame is that of `covered`. None where no table tells of any.
    """
    parts, notes = [], []
    if all(need in trace.tables for need in STALLS.needs):
        kinds = " ".join(f"WHEN '{kind}' THEN '{name}'" for kind, name in _STALLS.items())
        parts.append(
            f"SELECT CASE kind {kinds} ELSE kind END AS series, ts AS start, dur_ns AS ns"
            f" FROM {STALLS.make(trace)} WHERE dur_ns IS NOT NULL"
        )
        notes.append(
            "Dirty throttling: put to sleep for dirtying pages. Sync, direct transfer, read: the"
            " whole call, so at most so long."
        )
    else:
        notes.append(f"Waiting for storage needs the tables {' and '.join(STALLS.needs)}.")
    if "phases" in trace.tables:
        # A fetch lies at the begin of its step, as the view has it.
        parts.append(
            "SELECT 'fetch' AS series, start, fetch_stall_ns AS ns"
            f" FROM {steps(trace)} WHERE fetch_stall_ns > 0"
        )
        notes.append("Fetch: a step's thread waits for its next batch.")
    if not parts:
        return None
    intervals = " UNION ALL ".join(parts)
    return Lane(
        "Stalls",
        "Threads that wait for storage or data",
        "threads",
        Kind.AREAS,
        covered(trace, axis, intervals),
        " ".join(notes),
        cover_query(axis, intervals),
    )
