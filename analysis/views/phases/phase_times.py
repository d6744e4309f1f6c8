"""Phases with their ends, also those of a process that was killed.

A process that is killed marks no end. Its phases last until their thread ends, or until another
thread gets its number. Without that end, a later process with this number would be in them.
"""

from __future__ import annotations

from tracer.analysis.views.calls_around import LATEST
from tracer.analysis.views.threads import make_threads, owns
from tracer.analysis.views.view import View, make_once
from tracer.probes.phases import TABLE
from tracer.probes.schema import Column, Type
from tracer.store.trace import Trace

VIEW = "phase_times"

# The thread of a mark may not be known; its process then tells the end. `least` ignores nulls.
_UNENDED = f"""
CREATE OR REPLACE TEMP TABLE unended_phases AS
SELECT p.row, greatest(p.start, least(t.ended, t.until)) AS until
FROM (
    SELECT row, start, coalesce(tid, pid) AS thread FROM phases_rows WHERE "end" IS NULL
) p JOIN threads t ON {owns("t", "p", "thread", "start")}
WHERE least(t.ended, t.until) < {LATEST}
"""

_SQL = f"""
CREATE OR REPLACE TEMP VIEW {VIEW} AS
SELECT p.*, coalesce(p."end", u.until) AS until
FROM phases_rows p LEFT JOIN unended_phases u USING (row)
"""


def _build(trace: Trace) -> None:
    make_threads(trace)
    trace.execute(_UNENDED, _SQL)


PHASE_TIMES = View(
    VIEW,
    "One row per phase, with the time until which it lasted.",
    (
        *TABLE.columns,
        Column("row", Type.INT64, "row in the table phases"),
        Column(
            "until",
            Type.INT64,
            "its end, or else the end of its thread; null: it lasted longer than the recording",
            "ns",
        ),
    ),
    needs=("phases",),
    build=_build,
    example="SELECT name, sum(until - start)/1e9 s FROM phase_times GROUP BY 1 ORDER BY 2 DESC",
)


def make_phase_times(trace: Trace) -> None:
    """Makes the view `phase_times`, which is empty for a trace without the table phases."""
    trace.empty_if_missing("phases")
    make_once(trace, VIEW, _build)
