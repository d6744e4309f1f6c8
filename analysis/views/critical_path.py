"""The critical path of each step: what its time depended on, from its start to its end.

While the step's thread runs, the path lies in it. While it waits for a thread of a target, the path
goes on in that thread, because what that thread does meanwhile decides how long the wait takes; and
so on, as far as the chain was recorded. Where it ends, at a device, a timer, a thread of no target
or an unknown cause, the path lies in the wait itself. The segments of a step adjoin and do not
overlap: they add up to its time exactly.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from tracer.analysis.views.chain_walk import NO_WAIT, WaitsOfLanes, pieces_of
from tracer.analysis.views.data_owners import COLUMNS as OWNER_COLUMNS
from tracer.analysis.views.in_phase import with_phase
from tracer.analysis.views.steps import steps
from tracer.analysis.views.stretches import Ints
from tracer.analysis.views.threads import make_threads, owns
from tracer.analysis.views.view import View
from tracer.analysis.views.waits import KINDS, LINE_COLUMNS, waits
from tracer.probes.schema import PID, TID, TS, Column, Type
from tracer.store.trace import Trace

VIEW = "critical_path"
RUN = "run"
"""The kind of a segment in which its thread runs."""

_FOLLOWED = ("lock", "ipc", "child", "disk", "sync", "fault", "other")
"""Kinds of waits that the thread `by_tid` ended, if there is one."""
_NEVER = 1 << 62

# A wait of unknown length lasts until the thread's next one at most.
_WAITS = f"""
SELECT lane, "begin",
    greatest("begin", least("end", lead("begin", 1, {_NEVER}) OVER of_lane)) AS "end", followed, row
FROM (
    SELECT t.life - 1 AS lane, w.ts AS "begin", w.rowid AS row,
        coalesce(try_cast(w.ts::HUGEINT + w.dur_ns AS BIGINT), {_NEVER}) AS "end",
        CASE WHEN w.kind IN {_FOLLOWED} AND b.target IS NOT NULL THEN b.life - 1 ELSE -1 END
            AS followed
    FROM wait_events w JOIN threads t ON {owns("t", "w")}
    LEFT JOIN threads b ON {owns("b", "w", "by_tid")}
) WINDOW of_lane AS (PARTITION BY lane ORDER BY "begin", row) ORDER BY lane, "begin", row
"""

_STEPS = f"""
CREATE OR REPLACE TEMP TABLE path_steps AS
SELECT row_number() OVER (ORDER BY s.start, s.rowid) - 1 AS span, t.life - 1 AS lane, s.*
FROM steps s JOIN threads t ON {owns("t", "s", ts="start")}
-- Before the recording, nobody knows what a thread waited for.
WHERE s."end" > s.start AND s.start >= $begun
"""

_CUTS = """
SELECT t.life - 1 AS lane, g.ts
FROM phase_segments g JOIN phase_lanes l USING (lane) JOIN threads t
    ON l.tid = t.tid AND g.ts >= t.begun AND g.ts < t.until
ORDER BY ALL
"""

_SEGMENTS = f"""
CREATE OR REPLACE TEMP TABLE path_segments AS
SELECT s.epoch AS step_epoch, s.step AS step_number, s.stage AS step_stage, s.pid AS step_pid,
    s.tid AS step_tid, s.start AS step_start, p.ts, p.dur_ns, t.pid, t.tid, t.comm, t.target,
    t.container, coalesce(w.kind, '{RUN}') AS kind, w.detail, w.call, w.by_pid, w.by_tid,
    w.by_comm, w.by_target, w.by_container, coalesce(w.certainty, 'exact') AS certainty,
    w.for_pid, w.for_comm, w.for_target, w.for_container, w.line, w.stack, w.kernel_stack
FROM path_pieces p JOIN path_steps s USING (span)
LEFT JOIN threads t ON t.life = p.lane + 1
LEFT JOIN wait_events w ON w.rowid = p.wait
ORDER BY p.span, p.ts
"""

_VIEW = f"""
CREATE OR REPLACE TEMP VIEW {VIEW} AS
SELECT step_epoch AS epoch, step_number AS step, step_stage AS stage, phase,
    * EXCLUDE (step_epoch, step_number, step_stage, phase, stage, epoch, step)
FROM {{placed}}
"""

_ON_THE_WAY = ("path_steps", "path_pieces")


def _build(trace: Trace) -> None:
    waits(trace)
    steps(trace)
    make_threads(trace)
    trace.execute(_STEPS.replace("$begun", str(trace.manifest["clock"]["start_ns"])))
    of_steps = _arrays(trace, 'SELECT lane, start, "end" FROM path_steps ORDER BY span')
    begun = _arrays(trace, "SELECT begun FROM threads ORDER BY life")
    lane, begin, end, by, row = _arrays(trace, _WAITS)
    waits_of = WaitsOfLanes(lane, begin, end, by, begun[0])
    pieces = pieces_of(waits_of, of_steps[0], of_steps[1], of_steps[2], _phase_cuts(trace))
    waited = pieces.wait != NO_WAIT
    rows = np.full(len(pieces.wait), -1)
    rows[waited] = row[pieces.wait[waited]]
    trace.execute("DROP TABLE IF EXISTS path_pieces")
    trace.keep(
        "path_pieces",
        pa.table(
            {
                "span": pieces.span,
                "ts": pieces.begin,
                "dur_ns": pieces.end - pieces.begin,
                "lane": pieces.lane,
                "wait": pa.array(rows, mask=~waited),
            }
        ),
    )
    trace.execute(_SEGMENTS)
    for table in _ON_THE_WAY:
        trace.execute(f"DROP TABLE {table}")
    trace.execute(_VIEW.format(placed=with_phase(trace, "path_segments")))


def _phase_cuts(trace: Trace) -> tuple[Ints, Ints]:
    from tracer.analysis.views.segments import make_segments

    make_segments(trace)
    lane, ts = _arrays(trace, _CUTS)
    return lane, ts


def _arrays(trace: Trace, query: str) -> list[Ints]:
    found = trace.arrow(query).combine_chunks()
    return [found[name].to_numpy().astype(np.int64) for name in found.column_names]


CRITICAL_PATH = View(
    VIEW,
    "One row per segment of the critical path of a step that began in the recording. The segments"
    " of a step add up to its time.",
    (
        Column("epoch", Type.INT64, "epoch of the step, from 0"),
        Column("step", Type.INT64, "number of the step, from 0"),
        Column("stage", Type.TEXT, "train, eval or inference"),
        Column("phase", Type.TEXT, "innermost phase of the step's own thread meanwhile"),
        Column("step_pid", Type.INT32, "process of the step"),
        Column("step_tid", Type.INT32, "thread of the step"),
        Column("step_start", Type.INT64, "start of the step, as in steps", "ns"),
        TS,
        Column("dur_ns", Type.INT64, "how long the segment lasts", "ns"),
        PID,
        TID,
        Column("comm", Type.TEXT, "name of that thread"),
        Column("target", Type.TEXT, "target of that thread"),
        Column("container", Type.TEXT, "container of that thread, by its id"),
        Column(
            "kind", Type.TEXT, f"{RUN}: the thread runs; or kind of its wait: {', '.join(KINDS)}"
        ),
        *(
            Column(name, kind, f"{about}; null if it runs")
            for name, kind, about in (
                ("detail", Type.TEXT, "detail of the wait, as in waits"),
                ("call", Type.TEXT, "system call of the wait"),
                ("by_pid", Type.INT32, "process that it waits for"),
                ("by_tid", Type.INT32, "thread that it waits for"),
                ("by_comm", Type.TEXT, "name of the thread that it waits for"),
                ("by_target", Type.TEXT, "target of the thread that it waits for"),
                ("by_container", Type.TEXT, "container of the thread that it waits for"),
            )
        ),
        Column("certainty", Type.TEXT, "exact, inferred or unknown: how the cause is known"),
        *OWNER_COLUMNS,
        *LINE_COLUMNS,
    ),
    needs=("processes", "off_cpu", "phases"),
    build=_build,
    example="SELECT kind, comm, sum(dur_ns)/1e9 s FROM critical_path GROUP BY ALL ORDER BY s DESC",
)


def has_paths(trace: Trace) -> bool:
    """Returns whether a trace has the tables that critical paths need."""
    return set(CRITICAL_PATH.needs) <= set(trace.tables)


def main_steps(trace: Trace) -> str:
    """Returns the SQL condition on `stage` of the steps that a trace is about: those of training.

    If none of those ended, all steps count. It holds for `steps` and for `critical_path`, which it
    makes.
    """
    critical_path(trace)
    trains = f"SELECT 1 FROM {VIEW} WHERE stage = 'train' LIMIT 1"
    return "stage = 'train'" if trace.rows(trains) else "true"


def critical_path(trace: Trace) -> str:
    """Makes the view `critical_path` and returns its name. Columns and units: `CRITICAL_PATH`."""
    return CRITICAL_PATH.make(trace)
