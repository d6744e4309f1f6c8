"""Epochs of which a recording has only a part."""

from __future__ import annotations

from tracer.analysis.views.calls_around import LATEST
from tracer.analysis.views.phase_times import make_phase_times
from tracer.analysis.views.threads import owns
from tracer.store.trace import Trace

_SQL = f"""
CREATE OR REPLACE TEMP TABLE partial_epochs AS
SELECT o.target, e.epoch,
    bool_or(e.start < $begin OR coalesce(e.until, {LATEST}) > $end) AS partial
FROM phase_times e LEFT JOIN threads o ON {owns("o", "e", "pid", "start")}
WHERE e.name = 'epoch' GROUP BY ALL
"""


def partial_epochs(trace: Trace) -> None:
    """Makes the temporary table partial_epochs of a trace.

    Columns: target (null: not known), epoch, partial (true: it began before the recording, or did
    not end in it).
    """
    make_phase_times(trace)
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
        f" marked.epoch = {row}.epoch AND coalesce(marked.target = {row}.target, true))"
    )
