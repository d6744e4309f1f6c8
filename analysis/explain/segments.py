"""The segments of the critical path of one step, for figures and for the longest wait."""

from __future__ import annotations

from typing import Any

from tracer.analysis.explain.meanwhile import add_meanwhile
from tracer.analysis.views.sync_parts import DATA
from tracer.store.trace import Trace


def longest_segments(trace: Trace, of_step: str, most: int) -> tuple[list[dict[str, Any]], int]:
    """Returns the longest segments of a step, in order of time, and the number of all others.

    `of_step`: the SQL condition of the step's rows in `critical_path`. A wait for the data of
    several owners is one segment: nobody knows when each one's was written.
    """
    frame = trace.sql(
        f"""
        WITH path AS (
            SELECT *, coalesce(kind = 'sync' AND detail = '{DATA}' AND lag(kind) OVER of_step = kind
                AND lag(detail) OVER of_step = detail AND lag(tid) OVER of_step = tid
                AND lag(by_tid) OVER of_step = by_tid
                AND lag(phase) OVER of_step IS NOT DISTINCT FROM phase, false) AS goes_on
            FROM critical_path WHERE {of_step} WINDOW of_step AS (ORDER BY ts)
        ), joined AS (
            SELECT *, count(*) FILTER (NOT goes_on) OVER (ORDER BY ts ROWS UNBOUNDED PRECEDING)
                AS number
            FROM path
        )
        SELECT * FROM (
            SELECT min(ts) AS ts, sum(dur_ns)::BIGINT AS dur_ns, any_value(phase) AS phase,
                any_value(pid) AS pid, any_value(tid) AS tid, any_value(comm) AS comm,
                any_value(tid = step_tid) AS own, any_value(kind) AS kind, any_value(call) AS call,
                any_value(detail) AS detail, any_value(by_tid) AS by_tid,
                any_value(by_comm) AS by_comm, any_value(certainty) AS certainty,
                any_value(kernel_stack) AS kernel_stack, count(*) OVER () AS segments
            FROM joined GROUP BY number ORDER BY dur_ns DESC, ts LIMIT {most}
        ) ORDER BY ts
        """
    )
    more = int(frame.pop("segments").max()) - len(frame) if len(frame) else 0
    records = frame.astype(object).where(frame.notna(), None).to_dict("records")
    found = [{str(name): value for name, value in row.items()} for row in records]
    add_meanwhile(trace, found)
    return found, more
