"""The critical path of each step: what its time depended on, from its start to its end.

While the step's thread runs, the path lies in it. While it waits for a thread of a target, the path
goes on in that thread, because what that thread does meanwhile decides how long the wait takes; and
so on, as far as the chain was recorded. Where it ends, at a device, a timer, a thread of no target
or an unknown cause, the path lies in the wait itself. A thread that waits for a GPU need not sleep:
while it spins, its segment is of the kind gpu, too. The segments of a step adjoin and do not
overlap: they add up to its time exactly.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tracer.analysis.views.arrays import arrays_of
from tracer.analysis.views.cuts import Cuts
from tracer.analysis.views.lives import lives_of
from tracer.analysis.views.lost_times import Gaps
from tracer.analysis.views.phases.segments import make_segments, segment_cuts
from tracer.analysis.views.stretches import Ints
from tracer.analysis.views.threads import owns
from tracer.analysis.views.view import View
from tracer.analysis.views.waiting.chain_walk import NO_WAIT, Pieces, SpansOfLanes, pieces_of
from tracer.analysis.views.waiting.gpu_waits import GPU_MARKS
from tracer.analysis.views.waiting.path_windows import Window, windows
from tracer.analysis.views.waiting.sleeps import Marks, marks_of
from tracer.analysis.views.waiting.steps import in_recording, steps
from tracer.analysis.views.waiting.wait_rows import (
    CERTAINTY,
    JOIN_STACKS,
    JOINS,
    KINDS,
    number_types,
)
from tracer.analysis.views.waiting.waits import LINE_COLUMNS, waits
from tracer.analysis.views.writing.data_owners import COLUMNS as OWNER_COLUMNS
from tracer.probes.schema import PID, TID, TS, Column, Scope, Type
from tracer.store.trace import Trace

VIEW = "critical_path"
SUMS = "path_sums"
RUN = "run"
"""The kind of a segment in which its thread runs."""

_FOLLOWED = ("lock", "ipc", "child", "disk", "sync", "fault", "other")
"""Kinds of waits that the thread `by_tid` ended, if there is one."""

_MOST_PIECES = 1 << 17
"""Pieces of steps that are in memory at a time, unless one step has more."""

# The phase is that of the step's thread, which waits for the segment's thread.
_STEPS = f"""
CREATE OR REPLACE TEMP TABLE path_steps AS
SELECT row_number() OVER (ORDER BY s.start, s.rowid) - 1 AS span, t.life - 1 AS lane, s.*,
    coalesce(l.lane, p.lane, (SELECT lane FROM sole_marking)) AS marking
FROM steps s JOIN threads t ON {owns("t", "s", ts="start")}
LEFT JOIN phase_lanes l ON s.pid = l.pid AND s.tid = l.tid AND s.start BETWEEN l.begun AND l.last
LEFT JOIN marking p ON s.pid = p.pid AND s.start BETWEEN p.begun AND p.last
-- Outside of the recording, nobody knows what a thread waited for.
WHERE s."end" > s.start AND $recorded
"""

_CUTS = """
SELECT t.life - 1 AS lane, g.ts
FROM (
    SELECT l.tid, g.ts FROM phase_segments g JOIN phase_lanes l USING (lane)
    UNION ALL
    SELECT tid, unnest([ts, until]) FROM gpu_wait_spans WHERE until IS NOT NULL
) g JOIN threads t ON g.tid = t.tid AND g.ts >= t.begun AND g.ts < t.until
ORDER BY ALL
"""

_PHASES = "SELECT coalesce(name, -1) AS name FROM phase_segments ORDER BY segment"

_OF_WAITS = ["row", "kind", "detail", "call", "by_tid", "by_life", "certainty", "owner"]
"""Columns of `wait_rows` that a segment has of its wait."""

_KIND = f"ENUM {(RUN, *KINDS)}"

_ROWS = f"""
CREATE OR REPLACE TEMP TABLE path_rows (
    span {{span}}, ts BIGINT, dur_ns BIGINT, life {{life}}, kind {_KIND}, detail {{name}},
    call {{call}}, by_tid INTEGER, by_life {{life}}, certainty {CERTAINTY}, owner {{owner}},
    row {{row}}, phase {{phase}}
)
"""

_APPEND = f"""
INSERT INTO path_rows BY NAME
SELECT * EXCLUDE (gpu, lossy) REPLACE (coalesce(kind, if(gpu IS NULL, '{RUN}', 'gpu')) AS kind,
    coalesce(detail, gpu) AS detail,
    coalesce(certainty, if(lossy AND gpu IS NULL, 'inferred', 'exact')) AS certainty)
FROM path_pieces
"""

_OF_SLEEPS = (
    f"NOT contains(stream, '{Scope.MACHINE.value}') AND NOT starts_with(stream, 'programs-')"
    " AND stream != 'marks'"
)
"""SQL condition: the gap is in events of threads that leave their CPU."""

_TEXTS = """
    t.pid, t.tid, t.comm, t.target, t.container, w.kind::VARCHAR AS kind, d.name AS detail,
    c.name AS call, b.pid AS by_pid, w.by_tid, b.comm AS by_comm, b.target AS by_target,
    b.container AS by_container, w.certainty::VARCHAR AS certainty, o.for_pid, o.for_comm,
    o.for_target, o.for_container, l.line, l.stack
"""
_JOINS = f"""
LEFT JOIN threads t ON t.life = w.life {JOINS} LEFT JOIN phase_names n ON w.phase = n.code
"""

_VIEW = f"""
CREATE OR REPLACE TEMP VIEW {VIEW} AS
SELECT s.epoch, s.step, s.stage, n.name AS phase, s.pid AS step_pid, s.tid AS step_tid,
    s.start AS step_start, s."end" AS step_end, w.ts, w.dur_ns, {_TEXTS}, k.kernel_stack
FROM path_rows w JOIN path_steps s USING (span) {_JOINS} {JOIN_STACKS}
"""

# Rows are added up by their numbers, and only the sums get their texts.
_SUMS = f"""
CREATE OR REPLACE TEMP TABLE {SUMS} AS
WITH sums AS (
    SELECT s.pid AS step_pid, s.tid AS step_tid, s.typical, w.phase, w.life, w.kind, w.detail,
        w.call, w.by_tid, w.by_life, w.certainty, w.owner, l.row, sum(w.dur_ns) AS dur_ns
    FROM path_rows w JOIN (SELECT *, {{typical}} AS typical FROM path_steps WHERE {{which}}) s
        USING (span)
    LEFT JOIN waiting_lines l ON w.row = l.row
    GROUP BY ALL
)
SELECT w.step_pid, w.step_tid, w.typical, n.name AS phase, w.dur_ns, {_TEXTS} FROM sums w {_JOINS}
"""


def _build(trace: Trace) -> None:
    waits(trace)
    steps(trace)
    make_segments(trace)
    trace.execute(_STEPS.replace("$recorded", in_recording(trace, "s.")))
    types = number_types(trace, span="path_steps", owner="wait_owners", phase="phase_names")
    trace.execute(_ROWS.format(**types))
    *spans, marking = _arrays(
        trace, 'SELECT lane, start, "end", coalesce(marking, -1) FROM path_steps ORDER BY span'
    )
    cuts, marks = _cuts_of_threads(trace)
    phases, gpu = _Phases(trace), marks_of(trace, lives_of(trace), GPU_MARKS)
    gaps = Gaps(trace, _OF_SLEEPS)
    for window in windows(trace, SpansOfLanes(*spans), _FOLLOWED, marks):
        for pieces in pieces_of(window.waits, window.spans, cuts, _MOST_PIECES):
            lane = marking[window.first + pieces.span]
            phase = phases.of(lane, pieces.begin)
            lossy = pa.array(gaps.between(pieces.begin, pieces.end))
            _keep(trace, window, pieces, phase, _spinning(pieces, gpu), lossy)
            del pieces
        del window  # before the next one is read
    trace.execute(_VIEW)


def _cuts_of_threads(trace: Trace) -> tuple[tuple[Ints, Ints], Cuts]:
    """Returns the starts of segments in the order of threads, as `pieces_of` and `windows` take
    them."""
    lane, ts = arrays_of(trace, _CUTS, {"lane": "int32", "ts": "int64"})
    threads = trace.rows("SELECT count(*) FROM threads")[0][0]
    return (np.searchsorted(lane, np.arange(threads + 1, dtype=np.int32)), ts), Cuts(lane, ts)


class _Phases:
    """The phases of threads."""

    def __init__(self, trace: Trace) -> None:
        self._cuts = segment_cuts(trace)
        (self._name,) = arrays_of(trace, _PHASES, {"name": "int32"})

    def of(self, lane: Ints, ts: Ints) -> pa.Array:
        """Returns the codes of the innermost phases at times; null: there is none."""
        at = self._cuts.last(lane, ts)
        known = np.flatnonzero(at >= 0)
        found = np.full(len(at), -1, np.int32)
        found[known] = self._name[at[known]]
        return pa.array(found, mask=found < 0)


def _spinning(pieces: Pieces, gpu: Marks) -> pa.Array:
    """Returns the code of the function in which a running thread waits for a GPU; null: in none."""
    told = gpu.last(pieces.lane, pieces.begin)
    waits = pc.and_(pc.equal(pieces.wait, NO_WAIT), pc.greater(told["gpu_until"], pieces.begin))
    return pc.if_else(waits, told["gpu"], None)


def _keep(
    trace: Trace,
    window: Window,
    pieces: Pieces,
    phase: pa.Array,
    gpu: pa.Array,
    lossy: pa.Array,
) -> None:
    """Adds pieces of spans to the table path_rows."""
    waited = pieces.wait != NO_WAIT
    waits = window.rows.select(_OF_WAITS).take(pa.array(pieces.wait, mask=~waited))
    found = {
        "span": pieces.span + window.first,
        "ts": pieces.begin,
        "dur_ns": pieces.end - pieces.begin,
        "life": pieces.lane + 1,
        "phase": phase,
        "gpu": gpu,
        "lossy": lossy,
    }
    for name, column in zip(waits.column_names, waits.columns, strict=True):
        found[name] = column
    with trace.lent("path_pieces", pa.table(found)):
        trace.execute(_APPEND)


def _arrays(trace: Trace, query: str) -> list[Ints]:
    found = trace.arrow(query).combine_chunks()
    return [found[name].to_numpy().astype(np.int64, copy=False) for name in found.column_names]


CRITICAL_PATH = View(
    VIEW,
    "One row per segment of the critical path of a step that began and ended in the recording, in"
    " no order. The segments of a step add up to its time.",
    (
        Column("epoch", Type.INT64, "epoch of the step, from 0"),
        Column("step", Type.INT64, "number of the step, from 0"),
        Column("stage", Type.TEXT, "train, eval or inference"),
        Column("phase", Type.TEXT, "innermost phase of the step's own thread meanwhile"),
        Column("step_pid", Type.INT32, "process of the step"),
        Column("step_tid", Type.INT32, "thread of the step"),
        Column("step_start", Type.INT64, "start of the step, as in steps", "ns"),
        Column("step_end", Type.INT64, "end of the step, as in steps", "ns"),
        TS,
        Column("dur_ns", Type.INT64, "how long the segment lasts", "ns"),
        PID,
        TID,
        Column("comm", Type.TEXT, "name of that thread"),
        Column("target", Type.TEXT, "target of that thread"),
        Column("container", Type.TEXT, "container of that thread, by its id"),
        Column(
            "kind",
            Type.TEXT,
            f"{RUN}: the thread runs; or kind of its wait: {', '.join(KINDS)} (gpu: also spinning)",
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
    found = trace.once("steps that train", lambda: trace.rows(trains))
    return "stage = 'train'" if found else "true"


def path_sums(trace: Trace, typical: str = "") -> str:
    """Makes the table `path_sums` and returns its name: segments of `main_steps`, added up.

    Columns: those of `critical_path` from phase to stack, but ts and all of the step's, except
    step_pid and step_tid; and `typical`: true for steps for which `typical`, an SQL condition over
    columns of `steps`, holds. `dur_ns` is the sum of all segments with the same values. A table
    that exists is made anew only for another `typical` than "".
    """
    which = main_steps(trace)
    if typical or SUMS not in trace.made:
        trace.execute(_SUMS.format(which=which, typical=typical or "false"))
        trace.made.add(SUMS)
    return SUMS


def critical_path(trace: Trace) -> str:
    """Makes the view `critical_path` and returns its name. Columns and units: `CRITICAL_PATH`."""
    return CRITICAL_PATH.make(trace)
