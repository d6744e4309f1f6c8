"""Any table with the phase that each of its rows fell in."""

from __future__ import annotations

from dataclasses import dataclass

from analysis.views.flushes import flushes
from analysis.views.requests import requests
from analysis.views.segments import make_segments
from probes.catalogue import PROBES
from tracer.store.trace import Trace

SUFFIX = "_in_phase"


@dataclass(frozen=True)
class _Where:
    """The columns that say when and in whose context a row was."""

    ts: str = "ts"
    pid: str = "pid"
    tid: str = "tid"


_WHERE = {
    **{name: _Where() for name in PROBES if name != "processes"},
    "requests": _Where(ts="issue_ns"),
    # Whoever made the pages dirty, not who wrote them back.
    "flushes": _Where(pid="dirtier", tid="dirtier"),
    "stall_events": _Where(),
}

IN_PHASE = tuple(name for name in _WHERE if name != "stall_events")
"""Tables and views whose rows have a time and a thread."""

# Rows come and go one vector after another: nothing of the table is sorted or kept.
_VIEW = """
CREATE OR REPLACE TEMP VIEW "{view}" AS
SELECT w.* EXCLUDE ("marking lane"{shadowed}), n.name AS phase, s.name AS stage, g.epoch, g.step
FROM (
    SELECT t.*, coalesce(l.lane, p.lane, (SELECT lane FROM sole_marking)) AS "marking lane"
    FROM "{table}" t LEFT JOIN phase_lanes l ON t."{pid}" = l.pid AND t."{tid}" = l.tid
    LEFT JOIN marking p ON t."{pid}" = p.pid
) w
LEFT JOIN phase_segments g ON g.segment = phase_segment(w."marking lane", w."{ts}")
LEFT JOIN phase_names n ON g.name = n.code
LEFT JOIN phase_names s ON g.stage = s.code
"""


def in_phase(trace: Trace, table: str) -> str:
    """Make the view `TABLE_in_phase` of a table, or of requests or flushes; returns its name.

    Columns: those of the table, and phase (the innermost that the row's time lies in), stage
    (data_load, model_load, train or inference around it), epoch, step. The phase is that of the
    row's own thread or, where that marks none, of the thread of its process that marks longest;
    else, as for kernel threads, of the only process that marks a job's phases, if it is the
    only one. A flush's is that of its dirtier, at the time of the flush. Null: outside of
    phases, or not known whose.

    Needs the table and table phases. Raises KeyError for a table that has no phases.
    """
    trace.require("phases")
    return with_phase(trace, table)


def with_phase(trace: Trace, table: str) -> str:
    """As `in_phase`; where the trace lacks the table phases, every phase is null."""
    where = _WHERE[table]
    if table == "requests":
        requests(trace)
    elif table == "flushes":
        flushes(trace)
    elif table in PROBES:
        trace.require(table)
    make_segments(trace)
    view = f"{table}{SUFFIX}"
    trace.execute(
        _VIEW.format(
            view=view, table=table, ts=where.ts, pid=where.pid, tid=where.tid,
            shadowed=", phase" if table == "flushes" else "",
        )
    )  # fmt: skip
    return view
