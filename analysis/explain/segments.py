"""The segments of the critical path of one step, for figures and for the longest wait."""

from __future__ import annotations

from typing import Any

import pandas as pd

from tracer.analysis.explain.meanwhile import STORAGE, add_meanwhile
from tracer.analysis.views.waiting.sync_parts import DATA
from tracer.store.trace import Trace

# Parts of a sleep adjoin. Between two sleeps, the thread runs.
_PATH = f"""
CREATE OR REPLACE TEMP TABLE step_path AS
WITH path AS (
    SELECT *, coalesce(kind IN {STORAGE} AND lag(kind) OVER of_step = kind
            AND lag(tid) OVER of_step = tid AND lag(call) OVER of_step IS NOT DISTINCT FROM call
            AND lag(kernel_stack) OVER of_step IS NOT DISTINCT FROM kernel_stack, false) AS sleeps,
        coalesce(kind = 'sync' AND detail = '{DATA}' AND lag(kind) OVER of_step = kind
            AND lag(detail) OVER of_step = detail AND lag(tid) OVER of_step = tid
            AND lag(by_tid) OVER of_step = by_tid
            AND lag(phase) OVER of_step IS NOT DISTINCT FROM phase, false) AS goes_on
    FROM critical_path WHERE {{of_step}} WINDOW of_step AS (ORDER BY ts)
)
SELECT *, count(*) FILTER (NOT goes_on) OVER upto AS segment,
    count(*) FILTER (NOT sleeps) OVER upto AS sleep
FROM path WINDOW upto AS (ORDER BY ts ROWS UNBOUNDED PRECEDING)
"""

_JOINED = """
min(ts) AS ts, sum(dur_ns)::BIGINT AS dur_ns, any_value(phase) AS phase, any_value(pid) AS pid,
any_value(tid) AS tid, any_value(comm) AS comm, any_value(tid = step_tid) AS own,
any_value(kind) AS kind, any_value(call) AS call, any_value(detail) AS detail,
any_value(by_tid) AS by_tid, any_value(by_comm) AS by_comm, any_value(certainty) AS certainty,
any_value(kernel_stack) AS kernel_stack
"""

_LONGEST = f"""
SELECT * FROM (
    SELECT {_JOINED}, count(*) OVER () AS segments FROM step_path GROUP BY segment
    ORDER BY dur_ns DESC, ts LIMIT {{most}}
) ORDER BY ts
"""

_SLEEP = f"""
SELECT min(ts) AS ts, sum(dur_ns)::BIGINT AS dur_ns, any_value(tid) AS tid,
    any_value(kind) AS kind, any_value(call) AS call, any_value(kernel_stack) AS kernel_stack,
    if(min(coalesce(detail, '')) = max(coalesce(detail, '')), any_value(detail), NULL) AS detail
FROM step_path WHERE kind IN {STORAGE} GROUP BY sleep ORDER BY dur_ns DESC, ts LIMIT 1
"""


def longest_segments(
    trace: Trace, of_step: str, most: int
) -> tuple[list[dict[str, Any]], int, dict[str, Any] | None]:
    """Returns a step's longest segments in order of time, the number of all others, and its
    longest sleep for storage.

    `of_step`: the SQL condition of the step's rows in `critical_path`. A wait for the data of
    several owners is one segment: nobody knows when each one's was written. The sleep has all of
    its segments; None: there is none.
    """
    trace.execute(_PATH.format(of_step=of_step))
    frame = trace.sql(_LONGEST.format(most=most))
    more = int(frame.pop("segments").max()) - len(frame) if len(frame) else 0
    longest, storage = _records(frame), _records(trace.sql(_SLEEP))
    trace.drop("step_path")
    add_meanwhile(trace, [*longest, *storage])
    return longest, more, next(iter(storage), None)


def _records(frame: pd.DataFrame) -> list[dict[str, Any]]:
    records = frame.astype(object).where(frame.notna(), None).to_dict("records")
    return [{str(name): value for name, value in row.items()} for row in records]
