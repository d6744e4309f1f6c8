"""Segments of each thread's time, cut where its innermost phase changes.

This module also chooses the phases for threads that mark none.
"""

from __future__ import annotations

from typing import TYPE_CHECKING
from weakref import WeakKeyDictionary

from tracer.analysis.views.calls_around import LATEST
from tracer.analysis.views.threads import life, owns
from tracer.analysis.views.view import make_once
from tracer.store.trace import Trace

if TYPE_CHECKING:
    from collections.abc import Iterator

    import numpy as np
    import pyarrow as pa
    from numpy.typing import NDArray

    from tracer.analysis.views.cuts import Cuts
    from tracer.analysis.views.phases.nesting import Ints, Shorts

STAGES = ("data_load", "model_load", "train", "inference")

_TABLE = "phase_segments"
_MOST = 1 << 18
"""Segments that are added to the table at a time."""

_UNFINISHED = """
CREATE OR REPLACE TEMP TABLE unfinished_segments (
    segment BIGINT, lane BIGINT, ts BIGINT, length DOUBLE, name BIGINT, stage BIGINT, epoch BIGINT,
    step BIGINT, pass INTEGER
)
"""

_STATEMENTS = (
    # The processes of the recording, one row per thread, with the life of the process's number.
    f"""
    CREATE OR REPLACE TEMP TABLE process_lives AS
    SELECT p.pid, p.ppid, p.target, p.start, {life("l")} FROM (
        SELECT *, coalesce(start_ns, -{LATEST}) AS start FROM processes WHERE pid IS NOT NULL
    ) p LEFT JOIN threads l ON {owns("l", "p", "pid", "start")}
    """,
    # For each process, the thread whose phases last longest. A process that only marks "fetch"
    # (a loader's worker) is not a job. If there is exactly one job, it counts for others, too.
    """
    CREATE OR REPLACE TEMP TABLE marking AS
    WITH lanes AS (
        SELECT pid, process_begun AS begun, process_last AS last, lane FROM phase_lanes
    ), kinds AS (
        SELECT m.pid, m.begun, bool_or(p.name != 'fetch') AS of_job
        FROM (SELECT DISTINCT pid, begun, last FROM lanes) m
        JOIN phases p ON p.pid = m.pid AND p.start BETWEEN m.begun AND m.last GROUP BY ALL
    )
    SELECT pid, begun, last, arg_max(lane, coalesce(length, 0)) AS lane,
        any_value(of_job) AS of_job
    FROM lanes LEFT JOIN (
        SELECT lane, sum(length) AS length FROM phase_segments WHERE name IS NOT NULL GROUP BY lane
    ) USING (lane) LEFT JOIN kinds USING (pid, begun) GROUP BY pid, begun, last
    """,
    """
    CREATE OR REPLACE TEMP TABLE sole_marking AS
    SELECT any_value(lane) AS lane FROM marking WHERE of_job HAVING count(*) = 1
    """,
    # Programs of others: neither of a job's target nor its children. Kernel threads work for all.
    f"""
    CREATE OR REPLACE TEMP TABLE strangers AS
    WITH jobs AS (FROM marking WHERE of_job), lives AS (
        SELECT t.pid, t.kernel, t.target, t.start, {life("l")} FROM (
            SELECT *, coalesce(started, begun) AS start FROM threads
        ) t LEFT JOIN threads l ON {owns("l", "t", "pid", "start")}
    ), targets AS (
        SELECT DISTINCT l.target FROM lives l SEMI JOIN jobs j USING (pid, begun)
        WHERE l.target IS NOT NULL
    )
    SELECT pid, begun, last FROM lives ANTI JOIN (
        SELECT c.pid, c.begun FROM process_lives c
        JOIN jobs j ON c.ppid = j.pid AND c.start BETWEEN j.begun AND j.last
    ) USING (pid, begun)
    GROUP BY pid, begun, last
    HAVING bool_and(NOT kernel AND coalesce(target NOT IN (FROM targets), true))
    """,
    # The job of a worker is its parent, or the only one of its target. If its target is not known,
    # it is the only one.
    """
    CREATE OR REPLACE TEMP TABLE job_lanes AS
    WITH known AS (
        SELECT pid, begun, CASE WHEN min(ppid) = max(ppid) THEN min(ppid) END AS ppid,
            CASE WHEN min(target) = max(target) THEN min(target) END AS target,
            min(start) AS start
        FROM process_lives SEMI JOIN marking USING (pid, begun) GROUP BY pid, begun
    ), jobs AS (
        SELECT pid, begun, last, lane, target FROM marking LEFT JOIN known USING (pid, begun)
        WHERE of_job
    ), alone AS (
        SELECT target, any_value(lane) AS lane FROM jobs WHERE target IS NOT NULL
        GROUP BY target HAVING count(*) = 1
    )
    SELECT w.pid, w.begun, w.last, coalesce(
        parent.lane, alone.lane, CASE WHEN known.target IS NULL THEN (FROM sole_marking) END
    ) AS lane
    FROM marking w LEFT JOIN known USING (pid, begun)
    LEFT JOIN jobs parent ON known.ppid = parent.pid
        AND known.start BETWEEN parent.begun AND parent.last
    LEFT JOIN alone ON known.target = alone.target
    WHERE w.of_job = false
    """,
)

_PASSES_OF_WORKERS = """
UPDATE phase_segments SET pass = found.pass FROM (
    WITH fetched AS (
        SELECT g.segment, g.ts, g.epoch, j.pid AS job
        FROM phase_segments g JOIN phase_lanes w USING (lane)
        JOIN job_lanes o ON w.pid = o.pid AND w.process_begun = o.begun
        JOIN phase_lanes j ON o.lane = j.lane
        WHERE g.epoch IS NOT NULL
    ), latest AS (
        SELECT pid, epoch, max(pass) AS pass FROM epoch_passes GROUP BY pid, epoch
    )
    SELECT f.segment, coalesce(e.pass, latest.pass) AS pass FROM fetched f
    ASOF LEFT JOIN epoch_passes e ON f.job = e.pid AND f.epoch = e.epoch AND f.ts < e.ended
    JOIN latest ON f.job = latest.pid AND f.epoch = latest.epoch
) found WHERE phase_segments.segment = found.segment
"""
"""A worker fetches for an epoch that its job is in, or for one that its job is about to begin."""

_cuts: WeakKeyDictionary[Trace, Cuts] = WeakKeyDictionary()
"""The starts of all segments of a trace whose table is made."""


def make_segments(trace: Trace) -> None:
    """Makes the table phase_segments, which may be empty, and the tables and function to query it.

    Columns: segment (number), lane (see the table `phase_lanes` in `spans.py`), ts (start of the
    segment), length (ns, as a float; 0: between phases; in a phase without an end, up to the end of
    the recording, or 0 if that is not known), name and stage (codes in the table `phase_names`:
    name, code), epoch, step, pass (of its epoch, from 1; 1 also for a phase without an epoch). The
    last five are null between phases.

    The SQL function phase_segment(lane, ts) returns the segment at a time. The next tables tell of
    processes: their number is pid from begun to last (ns). The table `marking` has the lane that
    counts for each process (pid, begun, last, lane). The table `sole_marking` has the lane that
    counts for processes without phases, if there is only one job, except those in the table
    `strangers` (pid, begun, last). The table `job_lanes` has the lane of the job of each process
    that only marks `fetch`, a loader's worker (pid, begun, last, lane; null: not known).
    """
    make_once(trace, _TABLE, _build)


def _build(trace: Trace) -> None:
    from tracer.analysis.views.cuts import Cuts, define
    from tracer.analysis.views.phases.epoch_passes import has_passes

    for table in ("phases", "processes"):
        trace.empty_if_missing(table)
    trace.execute(_UNFINISHED)
    _cuts[trace] = Cuts(*_fill(trace))
    define(trace, "phase_segment", _cuts[trace])
    trace.execute(f"ALTER TABLE unfinished_segments RENAME TO {_TABLE}")
    trace.execute(*_STATEMENTS)
    if has_passes(trace):
        trace.execute(_PASSES_OF_WORKERS)


def segment_cuts(trace: Trace) -> Cuts:
    """Returns the starts of all segments of `phase_segments`, which it makes, as cuts of lanes.

    The number of a cut is that of the segment.
    """
    make_segments(trace)
    return _cuts[trace]


def _fill(trace: Trace) -> tuple[Shorts, Ints]:
    """Fills the table with segments; returns their lanes and starts.

    There may be millions of phases, and DuckDB's memory is full of other tables at this moment. So
    no column of the table is whole in memory, except for those that are returned.
    """
    import numpy as np
    import pyarrow as pa

    from tracer.analysis.views.phases.nesting import cut
    from tracer.analysis.views.phases.spans import read_spans

    spans = read_spans(trace, numbers=False)
    names = trace.rows("SELECT name FROM phase_names ORDER BY code")
    stages = np.array([code if n in STAGES else -1 for code, (n,) in enumerate(names)], np.int32)
    lane, ts, span, stage = cut(spans.lane, spans.start, spans.end, stages[spans.name])
    name, epoch, step = pa.array(spans.name), spans.epoch, spans.step
    of_pass = pa.array(spans.of_pass)
    del spans
    until = float(trace.manifest["clock"]["end_ns"] or 0)

    def parts() -> Iterator[pa.Table]:
        for first in range(0, len(ts), _MOST):
            last = min(first + _MOST, len(ts))
            part, more = slice(first, last), slice(first, last + 1)
            inner = pa.array(span[part], mask=span[part] < 0)
            rows = {
                "segment": np.arange(first, last),
                "lane": lane[part],
                "ts": ts[part],
                "length": _lengths(lane[more], ts[more], span[part], until),
                "name": name.take(inner),
                "stage": pa.array(stage[part], mask=stage[part] < 0),
                "epoch": epoch.take(inner),
                "step": step.take(inner),
                "pass": of_pass.take(inner),
            }
            yield pa.table(rows)

    trace.append("unfinished_segments", parts())
    return lane, ts


def _lengths(lane: Shorts, ts: Ints, span: Shorts, until: float) -> NDArray[np.float64]:
    """Returns the lengths of segments in ns: those in no span (-1) have none.

    `lane` and `ts` are of the segments and the one that follows them, if there is one. The last
    segment of a lane ends at `until`, unless it begins later.
    """
    import numpy as np

    ends = np.full(len(span), until)
    same = np.flatnonzero(lane[1:] == lane[:-1])
    ends[same] = ts[same + 1]
    return np.where(span >= 0, np.maximum(ends - ts[: len(span)], 0), 0)
