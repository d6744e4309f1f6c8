"""Any table with the phase that each of its rows fell in."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from analysis.views.flushes import flushes
from analysis.views.requests import requests
from probes.catalogue import PROBES
from tracer.store.trace import Trace

SUFFIX = "_in_phase"

_SEGMENTS = "phase_segments"
_STAGES = ("data_load", "model_load", "train", "inference")
_FOREVER = 1 << 62


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
}

_VIEW = """
CREATE OR REPLACE TEMP VIEW "{view}" AS
WITH marking AS (
    SELECT pid, tid, sum(length) AS length FROM phase_segments GROUP BY ALL
), main_thread AS (
    SELECT pid, arg_max(tid, length) AS tid, max(of_job) AS of_job
    FROM marking JOIN (
        SELECT pid, bool_or(phase IS NOT NULL AND phase != 'fetch') AS of_job
        FROM phase_segments GROUP BY pid
    ) USING (pid) GROUP BY pid
), sole AS (
    SELECT any_value(pid) AS pid, any_value(tid) AS tid FROM main_thread
    WHERE of_job HAVING count(*) = 1
), whose AS (
    SELECT t.*, coalesce(m.pid, l.pid, s.pid) AS "marking pid",
        coalesce(m.tid, l.tid, s.tid) AS "marking tid"
    FROM "{table}" t
    LEFT JOIN marking m ON t."{pid}" = m.pid AND t."{tid}" = m.tid
    LEFT JOIN main_thread l ON t."{pid}" = l.pid
    LEFT JOIN sole s ON true
)
SELECT w.* EXCLUDE ("marking pid", "marking tid"{shadowed}), g.phase, g.stage, g.epoch, g.step
FROM whose w ASOF LEFT JOIN phase_segments g
    ON w."marking pid" = g.pid AND w."marking tid" = g.tid AND w."{ts}" >= g.ts
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
    where = _WHERE[table]
    if table == "requests":
        requests(trace)
    elif table == "flushes":
        flushes(trace)
    else:
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


def make_segments(trace: Trace) -> None:
    """Make the table phase_segments: each thread's time, cut where its innermost phase changes.

    Columns: pid, tid, ts (from then on), length (ns), phase, stage, epoch, step; null between
    phases.
    """
    trace.require("phases")
    made = "SELECT 1 FROM duckdb_tables() WHERE table_name = ?"
    if trace.connection.execute(made, [_SEGMENTS]).fetchone():
        return
    spans = trace.connection.execute(
        f'SELECT pid, tid, start, coalesce("end", {_FOREVER}), name, epoch, step FROM phases'
        " WHERE pid IS NOT NULL ORDER BY pid, tid, start, 4 DESC"
    ).fetchall()
    cut = _Cut()
    for span in spans:
        cut.add(*span)
    cut.finish()
    arrow = cut.table()
    trace.connection.register("cut_phases", arrow)
    trace.execute(f"CREATE TEMP TABLE {_SEGMENTS} AS SELECT * FROM cut_phases")
    trace.connection.unregister("cut_phases")


_Open = tuple[int, str, str | None, int | None, int | None]
"""A phase that has not ended: (its end, name, the stage it is in, epoch, step)."""


class _Cut:
    """Cuts threads' time at the borders of their phases, which lie within each other."""

    def __init__(self) -> None:
        self._rows: list[tuple[int, int, int, str | None, str | None, int | None, int | None]] = []
        self._open: list[_Open] = []
        self._thread = (0, 0)

    def add(
        self,
        pid: int,
        tid: int,
        start: int,
        end: int,
        name: str,
        epoch: int | None,
        step: int | None,
    ) -> None:
        """The next phase, in order of threads and starts."""
        if (pid, tid) != self._thread:
            self.finish()
            self._thread = (pid, tid)
        self._end_until(start)
        stage = name if name in _STAGES else (self._open[-1][2] if self._open else None)
        self._open.append((end, name, stage, epoch, step))
        self._say(start)

    def finish(self) -> None:
        """End what is open of this thread."""
        self._end_until(_FOREVER - 1)
        self._open = []

    def _end_until(self, ts: int) -> None:
        while self._open and self._open[-1][0] <= ts:
            end = self._open.pop()[0]
            self._open = [span for span in self._open if span[0] > end]
            self._say(end)

    def _say(self, ts: int) -> None:
        inner = self._open[-1][1:] if self._open else (None, None, None, None)
        self._rows.append((*self._thread, ts, *inner))

    def table(self) -> pa.Table:
        """The segments; the last of several at one time is the one that lasts."""
        kept = [
            row
            for row, after in zip(self._rows, [*self._rows[1:], None], strict=True)
            if after is None or row[:3] != after[:3]
        ]
        lengths = [
            after[2] - row[2] if row[3] is not None and after and row[:2] == after[:2] else 0
            for row, after in zip(kept, [*kept[1:], None], strict=True)
        ]
        columns: list[tuple[Any, ...]] = list(zip(*kept, strict=True)) or [()] * 7
        types = [
            pa.int32(),
            pa.int32(),
            pa.int64(),
            pa.string(),
            pa.string(),
            pa.int64(),
            pa.int64(),
        ]
        names = ["pid", "tid", "ts", "phase", "stage", "epoch", "step"]
        arrays = [pa.array(list(c), t) for c, t in zip(columns, types, strict=True)]
        return pa.table([*arrays, pa.array(lengths, pa.int64())], names=[*names, "length"])
