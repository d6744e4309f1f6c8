"""Epochs of the same numbers that several processes mark: reads by epoch add these up."""

from __future__ import annotations

from tracer.analysis.views.threads import make_threads, owns
from tracer.store.trace import Trace

_SQL = f"""
WITH marks AS (
    SELECT DISTINCT o.target, e.epoch, coalesce(o.life, -e.pid) AS process
    FROM (FROM phases WHERE name = 'epoch' AND epoch IS NOT NULL AND pid IS NOT NULL) e
    LEFT JOIN threads o ON {owns("o", "e", "pid", "start")}
)
SELECT target, count(DISTINCT process) FROM (
    FROM marks QUALIFY count(*) OVER (PARTITION BY target, epoch) > 1
) GROUP BY target
"""


def marked_together(trace: Trace) -> dict[str | None, int]:
    """Returns the number of processes that mark epochs of the same numbers, by target.

    None: no target, or not known. Targets in which one process marks each epoch are left out.
    """
    trace.empty_if_missing("phases")
    make_threads(trace)
    return dict(trace.rows(_SQL))
