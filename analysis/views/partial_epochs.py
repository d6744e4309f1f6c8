"""Epochs of which a recording has only a part."""

from __future__ import annotations

from tracer.analysis.views.calls_around import LATEST
from tracer.analysis.views.phase_times import make_phase_times
from tracer.analysis.views.segments import make_segments
from tracer.analysis.views.threads import owns
from tracer.store.trace import Trace

_SQL = f"""
CREATE OR REPLACE TEMP TABLE partial_epochs AS
WITH marks AS (
    SELECT n.target, e.epoch,
        e.start < $begin OR coalesce(e.until, {LATEST}) > $end AS partial
    FROM phase_times e LEFT JOIN threads n ON {owns("n", "e", "pid", "start")}
    WHERE e.name = 'epoch'
)
SELECT target, epoch, bool_or(partial) AS partial,
    EXISTS (FROM sole_marking) AND (SELECT count(DISTINCT target) FROM marks) <= 1 AS everybodys
FROM marks GROUP BY target, epoch
"""


def partial_epochs(trace: Trace) -> None:
    """Makes the temporary table partial_epochs of a trace.

    Columns: target (null: not known), epoch, partial (true: it began before the recording, or did
    not end in it), everybodys (true: only one process marks a job, so its epochs are also those of
    readers that mark none).
    """
    make_phase_times(trace)
    make_segments(trace)
    clock = trace.manifest["clock"]
    end = LATEST - 1 if clock["end_ns"] is None else clock["end_ns"]
    trace.execute(_SQL.replace("$begin", str(clock["start_ns"])).replace("$end", str(end)))


def is_partial(row: str) -> str:
    """Returns SQL that tells whether a row's epoch is partial; null if it has none, or no mark.

    `row`: a row with the columns target and epoch.
    """
    # A mark whose process is not known may be of any target.
    return (
        "(SELECT bool_or(marked.partial) FROM partial_epochs marked WHERE"
        f" marked.epoch = {row}.epoch"
        f" AND coalesce(marked.everybodys OR marked.target = {row}.target, true))"
    )
