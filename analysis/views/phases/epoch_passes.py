"""The passes of a process through its epochs: with cross-validation, the numbers begin anew."""

from __future__ import annotations

from tracer.analysis.views.phases.nesting import NEVER
from tracer.analysis.views.phases.phase_times import make_phase_times
from tracer.analysis.views.threads import make_threads, owns
from tracer.analysis.views.view import make_once
from tracer.store.trace import Trace

_TABLE = "epoch_passes"

_MARKS = f"""
SELECT p.pid, t.life, p.epoch, p.start, greatest(coalesce(p.until, {NEVER}), p.start) AS "end"
FROM phase_times p LEFT JOIN threads t ON {owns("t", "p", "pid", "start")}
WHERE p.name = 'epoch' AND p.epoch IS NOT NULL AND p.pid IS NOT NULL
"""


def epoch_passes(marks: str, process: str = "pid") -> str:
    """Returns SQL for the epochs of each process: pid, epoch, pass (from 1), start and ended.

    `marks` is SQL for the marks of epochs: pid, epoch, start and "end". Marks of one number that
    overlap, such as those of several threads, are one epoch; others are epochs of another pass.
    `process` has the columns of `marks` that tell processes apart.
    """
    return f"""
        WITH marked AS (
            SELECT {process}, epoch, start, "end", coalesce(max("end") OVER (
                PARTITION BY {process}, epoch ORDER BY start, "end"
                ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING
            ) > start, false) AS inside  -- another thread has marked this epoch already
            FROM ({marks})
        ), numbered AS (
            SELECT *, count(*) FILTER (NOT inside) OVER (
                PARTITION BY {process}, epoch ORDER BY start, "end" ROWS UNBOUNDED PRECEDING
            ) AS pass
            FROM marked
        )
        SELECT pid, epoch, pass, min(start) AS start, max("end") AS ended
        FROM numbered GROUP BY {process}, epoch, pass
    """


def make_epoch_passes(trace: Trace) -> None:
    """Makes the table epoch_passes, which may be empty: the epochs of all known processes.

    The columns are those of `epoch_passes`. An epoch without an end lasts until its thread ends, or
    else for ever (`NEVER`).
    """
    make_once(trace, _TABLE, _build)


def _build(trace: Trace) -> None:
    make_phase_times(trace)
    make_threads(trace)
    passes = epoch_passes(_MARKS, "pid, life")
    trace.execute(f"CREATE OR REPLACE TEMP TABLE {_TABLE} AS {passes}")


def has_passes(trace: Trace) -> bool:
    """Returns whether a process begins anew with the numbers of its epochs."""
    make_epoch_passes(trace)
    again = f"SELECT 1 FROM {_TABLE} WHERE pass > 1 LIMIT 1"
    return trace.once("has passes", lambda: bool(trace.rows(again)))


def with_passes(phases: str, moment: str = "p.start") -> str:
    """Returns SQL for phases with the pass of each one's epoch; 1: nobody marks that epoch.

    `phases`: a table with pid and epoch. `moment`: SQL for a time (ns) of its row p in the epoch.
    Needs the table epoch_passes.
    """
    return f"""
        SELECT p.*, coalesce(e.pass, 1)::INTEGER AS pass FROM {phases} p ASOF LEFT JOIN {_TABLE} e
            ON p.pid = e.pid AND p.epoch = e.epoch AND {moment} >= e.start
    """
