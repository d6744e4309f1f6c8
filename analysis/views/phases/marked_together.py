"""Epochs of the same numbers that several processes mark: reads by epoch add these up."""

from __future__ import annotations

from tracer.analysis.views.phases.epoch_passes import make_epoch_passes
from tracer.analysis.views.threads import make_threads, owns
from tracer.store.trace import Trace

_SQL = f"""
WITH marks AS (
    SELECT DISTINCT o.target, e.epoch, e.pass, coalesce(o.life, -e.pid) AS process
    FROM epoch_passes e
    LEFT JOIN threads o ON {owns("o", "e", "pid", "start")}
)
SELECT target, count(DISTINCT process) FROM (
    FROM marks QUALIFY count(*) OVER (PARTITION BY target, epoch, pass) > 1
) GROUP BY target
"""


def marked_together(trace: Trace) -> dict[str | None, int]:
    """Returns the number of processes that mark epochs of the same numbers, by target.

    None: no target, or not known. Targets in which one process marks each epoch are left out. A
    process that begins anew with its numbers is in another pass, and its epochs are not the same.
    """
    make_epoch_passes(trace)
    make_threads(trace)
    return dict(trace.rows(_SQL))
