"""Epochs of which a recording has only a part, and when epochs begin."""

from __future__ import annotations

from tracer.analysis.views.calls_around import LATEST
from tracer.analysis.views.phases.epoch_passes import make_epoch_passes, with_passes
from tracer.analysis.views.phases.segments import make_segments
from tracer.analysis.views.threads import owns
from tracer.store.manifest import with_all_events
from tracer.store.trace import Trace

_SQL = f"""
CREATE OR REPLACE TEMP TABLE partial_epochs AS
WITH marks AS (
    SELECT n.target, e.epoch, e.pass, e.start,
        e.start < $begin OR coalesce(e.until, {LATEST}) > $end AS partial
    FROM ({with_passes("(FROM phase_times WHERE name = 'epoch')")}) e
    LEFT JOIN threads n ON {owns("n", "e", "pid", "start")}
)
SELECT target, epoch, pass, min(start) AS start, bool_or(partial) AS partial,
    EXISTS (FROM sole_marking) AND (SELECT count(DISTINCT target) FROM marks) <= 1 AS everybodys
FROM marks GROUP BY target, epoch, pass
"""


def partial_epochs(trace: Trace) -> None:
    """Makes the temporary table partial_epochs of a trace.

    Columns: target (null: not known), epoch, pass (of its processes, from 1), start (ns; the first
    of those of several processes), partial (true: it began before the recording, or did not end in
    it), everybodys (true: only one process marks a job, so its epochs are also those of readers
    that mark none).
    """
    make_epoch_passes(trace)
    make_segments(trace)
    begin, until = with_all_events(trace.manifest)
    end = LATEST - 1 if until is None else until
    trace.execute(_SQL.replace("$begin", str(begin)).replace("$end", str(end)))


def is_partial(row: str) -> str:
    """Returns SQL that tells whether a row's epoch is partial; null if it has none, or no mark.

    `row`: a row with the columns target, epoch and pass.
    """
    return _of_marks("bool_or(marked.partial)", row)


def begun(row: str) -> str:
    """Returns SQL for the time at which a row's epoch begins; null if it has none, or no mark.

    `row`: a row with the columns target, epoch and pass.
    """
    return _of_marks("min(marked.start)", row)


def _of_marks(value: str, row: str) -> str:
    # A mark whose process is not known may be of any target.
    return (
        f"(SELECT {value} FROM partial_epochs marked WHERE"
        f" marked.epoch = {row}.epoch AND marked.pass = {row}.pass"
        f" AND coalesce(marked.everybodys OR marked.target = {row}.target, true))"
    )
