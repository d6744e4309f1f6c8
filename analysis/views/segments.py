"""Each thread's time cut where its innermost phase changes, and whose phases count for whom."""

from __future__ import annotations

from analysis.views.view import is_made
from tracer.store.trace import Trace

STAGES = ("data_load", "model_load", "train", "inference")

_TABLE = "phase_segments"

_STATEMENTS = (
    # Of each process the thread that marks longest; and the only process that marks a job's phases.
    """
    CREATE TEMP TABLE marking AS
    SELECT pid, arg_max(lane, coalesce(length, 0)) AS lane, bool_or(of_job) AS of_job
    FROM phase_lanes LEFT JOIN (
        SELECT g.lane, sum(g.length) AS length, bool_or(n.name != 'fetch') AS of_job
        FROM phase_segments g JOIN phase_names n ON g.name = n.code GROUP BY g.lane
    ) USING (lane) GROUP BY pid
    """,
    """
    CREATE TEMP TABLE sole_marking AS
    SELECT any_value(lane) AS lane FROM marking WHERE of_job HAVING count(*) = 1
    """,
)


def make_segments(trace: Trace) -> None:
    """Make the table phase_segments, which may be empty, and what is asked of it.

    Columns: segment (its number), lane (of the table `phase_lanes`: pid, tid, lane), ts (from then
    on), length (ns, as a float; 0: nothing comes after), name and stage (codes of the table
    `phase_names`: name, code), epoch, step; null between phases. SQL has phase_segment(lane, ts)
    for the segment that a moment lies in. `marking` says which lane counts for a process (pid,
    lane), `sole_marking` which for those that mark nothing, if there is but one job.
    """
    import numpy as np
    import pyarrow as pa

    from analysis.views.cuts import Cuts, define
    from analysis.views.nesting import cut
    from analysis.views.spans import read_spans

    if is_made(trace, _TABLE):
        return
    trace.empty_if_missing("phases")
    spans = read_spans(trace)
    names = trace.connection.execute("SELECT name FROM phase_names ORDER BY code").fetchall()
    of_stage = np.array([code if n in STAGES else -1 for code, (n,) in enumerate(names)], np.int64)
    stages = of_stage[spans.name] if len(names) else spans.name
    lane, ts, span, stage = cut(spans.lane, spans.start, spans.end, stages)
    length = np.zeros(len(ts))
    if len(ts):
        same = (lane[1:] == lane[:-1]) & (span[:-1] >= 0)
        length[:-1] = np.where(same, ts[1:].astype(float) - ts[:-1], 0)
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
    trace.keep(_TABLE, segments)
    define(trace, "phase_segment", Cuts(lane, ts))
    for statement in _STATEMENTS:
        trace.execute(statement)
