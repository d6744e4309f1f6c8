"""Segments of each thread's time, cut where its innermost phase changes.

This module also chooses the phases for threads that mark none.
"""

from __future__ import annotations

from tracer.analysis.views.view import is_made
from tracer.store.trace import Trace

STAGES = ("data_load", "model_load", "train", "inference")

_TABLE = "phase_segments"

_STATEMENTS = (
    # For each process, the thread whose phases last longest. A process that only marks "fetch"
    # (a loader's worker) is not a job. If there is exactly one job, it counts for all processes
    # that mark nothing.
    """
    CREATE TEMP TABLE marking AS
    SELECT pid, arg_max(lane, coalesce(length, 0)) AS lane, any_value(of_job) AS of_job
    FROM phase_lanes LEFT JOIN (
        SELECT lane, sum(length) AS length FROM phase_segments WHERE name IS NOT NULL GROUP BY lane
    ) USING (lane) LEFT JOIN (
        SELECT pid, bool_or(name != 'fetch') AS of_job FROM phases GROUP BY pid
    ) USING (pid) GROUP BY pid
    """,
    """
    CREATE TEMP TABLE sole_marking AS
    SELECT any_value(lane) AS lane FROM marking WHERE of_job HAVING count(*) = 1
    """,
    # The job of a worker is its parent, or the only one of its target. If its target is not known,
    # it is the only one.
    """
    CREATE TEMP TABLE job_lanes AS
    WITH known AS (
        SELECT pid, any_value(ppid) AS ppid, any_value(target) AS target FROM processes
        WHERE pid IN (SELECT pid FROM marking) GROUP BY pid
        HAVING count(DISTINCT ppid) <= 1 AND count(DISTINCT target) <= 1
    ), jobs AS (
        SELECT pid, lane, target FROM marking LEFT JOIN known USING (pid) WHERE of_job
    ), alone AS (
        SELECT target, any_value(lane) AS lane FROM jobs WHERE target IS NOT NULL
        GROUP BY target HAVING count(*) = 1
    )
    SELECT w.pid, coalesce(
        parent.lane, alone.lane, CASE WHEN known.target IS NULL THEN (FROM sole_marking) END
    ) AS lane
    FROM marking w LEFT JOIN known USING (pid) LEFT JOIN jobs parent ON known.ppid = parent.pid
    LEFT JOIN alone ON known.target = alone.target
    WHERE w.of_job = false
    """,
)


def make_segments(trace: Trace) -> None:
    """Makes the table phase_segments, which may be empty, and the tables and function to query it.

    Columns: segment (number), lane (see the table `phase_lanes`: pid, tid, lane), ts (start of the
    segment), length (ns, as a float; 0: between phases; in a phase without an end, up to the end of
    the recording, or 0 if that is not known), name and stage
    (codes in the table `phase_names`: name, code), epoch, step. The last four are null between
    phases.

    The SQL function phase_segment(lane, ts) returns the segment at a time. The table `marking` has
    the lane that counts for each process (pid, lane). The table `sole_marking` has the lane that
    counts for processes without phases, if there is only one job. The table `job_lanes` has the
    lane of the job of each process that only marks `fetch`, a loader's worker (pid, lane; null: not
    known).
    """
    import numpy as np
    import pyarrow as pa

    from tracer.analysis.views.cuts import Cuts, define
    from tracer.analysis.views.nesting import cut
    from tracer.analysis.views.spans import read_spans

    if is_made(trace, _TABLE):
        return
    for table in ("phases", "processes"):
        trace.empty_if_missing(table)
    spans = read_spans(trace)
    names = trace.connection.execute("SELECT name FROM phase_names ORDER BY code").fetchall()
    of_stage = np.array([code if n in STAGES else -1 for code, (n,) in enumerate(names)], np.int64)
    stages = of_stage[spans.name] if len(names) else spans.name
    lane, ts, span, stage = cut(spans.lane, spans.start, spans.end, stages)
    length = np.zeros(len(ts))
    if len(ts):
        same = (lane[1:] == lane[:-1]) & (span[:-1] >= 0)
        length[:-1] = np.where(same, ts[1:].astype(float) - ts[:-1], 0)
        last = (np.append(lane[1:] != lane[:-1], True)) & (span >= 0)
        until = trace.manifest["clock"]["end_ns"] or 0
        length[last] = np.maximum(until - ts[last].astype(float), 0)
    inner = pa.array(span, mask=span < 0)
    segments = pa.table(
        {
            "segment": np.arange(len(ts)),
            "lane": lane,
            "ts": ts,
            "length": length,
            "name": pa.array(spans.name, pa.int64()).take(inner),
            "stage": pa.array(stage, mask=stage < 0),
            "epoch": spans.epoch.take(inner),
            "step": spans.step.take(inner),
        }
    )
    # There may be millions of phases, and the table needs room.
    del spans, stages, span, stage, inner, length
    trace.keep(_TABLE, segments)
    del segments
    define(trace, "phase_segment", Cuts(lane, ts))
    for statement in _STATEMENTS:
        trace.execute(statement)
