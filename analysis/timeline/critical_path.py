"""The lane of critical paths: what the steps depended on over time."""

from __future__ import annotations

from tracer.analysis.figures.critical_path import CAUSES
from tracer.analysis.timeline.axis import Axis
from tracer.analysis.timeline.binned import cover_query, covered
from tracer.analysis.timeline.lane import Kind, Lane
from tracer.analysis.views.waiting.critical_path import critical_path as critical_path_view
from tracer.store.trace import Trace

_CAUSE = " ".join(
    f"WHEN kind IN ({', '.join(repr(kind) for kind in kinds)}) THEN '{cause}'"
    for cause, kinds in CAUSES.items()
)
_INTERVALS = f"SELECT CASE {_CAUSE} END AS series, ts AS start, dur_ns AS ns FROM critical_path"


def critical_path(trace: Trace, axis: Axis) -> Lane | None:
    """Returns the number of steps that depend on each cause at a time; None without a step.

    Needs the tables phases, processes and off_cpu.
    """
    critical_path_view(trace)
    if not trace.rows("SELECT 1 FROM critical_path LIMIT 1"):
        return None
    return Lane(
        "Phases",
        "Critical path of the steps",
        "steps",
        Kind.AREAS,
        covered(trace, axis, _INTERVALS),
        "While a step waits for a thread of the job, the cause is what that thread does.",
        cover_query(axis, _INTERVALS),
    )
