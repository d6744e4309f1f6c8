"""Epochs of which a recording has only a part."""

from __future__ import annotations

from tracer.analysis.views.calls_around import LATEST
from tracer.store.trace import Trace

_SQL = f"""
CREATE OR REPLACE TEMP TABLE partial_epochs AS
WITH names AS (
    SELECT pid, any_value(target) AS target,
        CASE WHEN count(end_ns) = count(*) THEN max(end_ns) END AS ended
    FROM processes WHERE pid IS NOT NULL GROUP BY pid
)
SELECT n.target, e.epoch,
    -- An epoch without an end has ended with its process.
    bool_or(e.start < $begin OR coalesce(e."end", n.ended, {LATEST}) > $end) AS partial
FROM phases e LEFT JOIN names n USING (pid) WHERE e.name = 'epoch' GROUP BY ALL
"""


def partial_epochs(trace: Trace) -> None:
    """Makes the temporary table partial_epochs of a trace.

    Columns: target (null: not known), epoch, partial (true: it began before the recording, or did
    not end in it). Needs the tables phases and processes.
    """
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
