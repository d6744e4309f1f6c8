"""Any table with the phase of each of its rows."""

from __future__ import annotations

from dataclasses import dataclass

from tracer.analysis.views.disks.requests import requests
from tracer.analysis.views.phases.segments import make_segments
from tracer.analysis.views.writing.flushes import flushes
from tracer.probes.catalogue import PROBES
from tracer.store.trace import Trace

SUFFIX = "_in_phase"


@dataclass(frozen=True)
class _Where:
    """The columns with the time, process and thread of a row."""

    ts: str = "ts"
    pid: str = "pid"
    tid: str = "tid"
    lived: str = ""
    """The column with a time at which the numbers are this process's and thread's, if not `ts`."""


_TABLES = {probe.table.name for name, probe in PROBES.items() if name != "processes"}
_WHERE = {
    **{name: _Where() for name in sorted(_TABLES)},
    "requests": _Where(ts="issue_ns"),
    # The phase is that of the thread that dirtied the pages, not of the thread that wrote them.
    "flushes": _Where(pid="dirtier", tid="dirtier", lived="dirtied_ns"),
    "stall_events": _Where(),
    "wait_events": _Where(),
    "page_use_events": _Where(lived="used"),
    "gpu_wait_rows": _Where(),
    "block_rows": _Where(),
}

_INNER = ("stall_events", "wait_events", "page_use_events", "gpu_wait_rows", "block_rows")
"""Tables that views and other answers are made of."""

IN_PHASE = tuple(name for name in _WHERE if name not in _INNER)
"""Tables and views whose rows have a time and a thread."""

# The rows stream through: the table is neither sorted nor kept in memory.
_VIEW = """
CREATE OR REPLACE TEMP VIEW "{view}" AS
SELECT w.* EXCLUDE ({hidden}), n.name AS phase, {context}
FROM (
    SELECT t.*, {lanes}
    FROM "{table}" t
    LEFT JOIN phase_lanes l ON t."{pid}" = l.pid AND t."{tid}" = l.tid
        AND t."{lived}" BETWEEN l.begun AND l.last
    LEFT JOIN marking p ON t."{pid}" = p.pid AND t."{lived}" BETWEEN p.begun AND p.last
    LEFT JOIN strangers o ON t."{pid}" = o.pid AND t."{lived}" BETWEEN o.begun AND o.last {job}
) w
LEFT JOIN phase_segments g ON g.segment = phase_segment(w."marking lane", w."{ts}")
LEFT JOIN phase_names n ON g.name = n.code
LEFT JOIN phase_names s ON g.stage = s.code
{job_segment}
"""
_SOLE = "CASE WHEN o.pid IS NULL THEN (SELECT lane FROM sole_marking) END"
_PASS = "if({0}.epoch IS NULL, NULL, {0}.pass)"
_NO_NUMBER = "g.epoch IS NULL AND g.step IS NULL"
_LANE = f'coalesce(l.lane, p.lane, {_SOLE}) AS "marking lane"'
_OWN = {
    "lanes": _LANE,
    "context": f"s.name AS stage, g.epoch, {_PASS.format('g')} AS pass, g.step",
    "job": "",
    "job_segment": "",
}
_WORKERS = {
    "lanes": f'{_LANE}, j.lane AS "job lane"',
    "context": "coalesce(s.name, js.name) AS stage,"
    f" if({_NO_NUMBER}, jg.epoch, g.epoch) AS epoch,"
    f" if({_NO_NUMBER}, {_PASS.format('jg')}, {_PASS.format('g')}) AS pass,"
    f" if({_NO_NUMBER}, jg.step, g.step) AS step",
    "job": 'LEFT JOIN job_lanes j ON t."{pid}" = j.pid AND t."{lived}" BETWEEN j.begun AND j.last',
    "job_segment": "LEFT JOIN phase_segments jg"
    ' ON jg.segment = phase_segment(w."job lane", w."{ts}")'
    " LEFT JOIN phase_names js ON jg.stage = js.code",
}
"""Parts of the view: of a trace without workers that mark, and of one with them."""


def in_phase(trace: Trace, table: str) -> str:
    """Makes the view `TABLE_in_phase` of a table, or of requests or flushes; returns its name.

    Columns: those of the table, phase (the innermost phase at the row's time), stage (data_load,
    model_load, train or inference around it), epoch, pass (of the process that marks it, from 1:
    see `epoch_passes`), step. Null: the row lies outside of phases, or its thread is not known.

    The phase is that of the row's own thread. If that thread marks no phases, it is the phase of
    the thread of the same process whose phases last longest in total. If only one process marks a
    job's phases, it is also the phase of processes of its target, of its children, of kernel
    threads, and of processes that are not known, unless they mark phases themselves. For a flush,
    it is the phase of its dirtier at the time of the flush.

    A process that only marks `fetch` is a loader's worker. Its stage is that of its job at the
    row's time. So are its epoch, pass and step (it may fetch for a later one), unless its own phase
    has an epoch or a step. Its job is its parent, or else the only process of its target that marks
    a job's phases. If its target is not known, it is the only one of all.

    Needs the table and the table phases. Raises KeyError for a table whose rows have no phase.
    """
    trace.require("phases")
    return with_phase(trace, table)


def with_phase(trace: Trace, table: str) -> str:
    """Makes the same view as `in_phase`, with null phases if the trace lacks the table phases."""
    where = _WHERE[table]
    if table == "requests":
        requests(trace)
    elif table == "flushes":
        flushes(trace)
    elif table in _TABLES:
        trace.require(table)
    make_segments(trace)
    view = f"{table}{SUFFIX}"
    of_jobs = "SELECT 1 FROM job_lanes WHERE lane IS NOT NULL LIMIT 1"
    workers = trace.once("workers of jobs", lambda: trace.rows(of_jobs))
    columns = {"ts": where.ts, "pid": where.pid, "tid": where.tid}
    columns["lived"] = where.lived or where.ts
    parts = {name: part.format(**columns) for name, part in (_WORKERS if workers else _OWN).items()}
    hidden = ['"marking lane"']
    if workers:
        hidden.append('"job lane"')
    if table == "flushes":
        hidden.append("phase")
    query = _VIEW.format(view=view, table=table, hidden=", ".join(hidden), **columns, **parts)
    trace.execute(query)
    return view
