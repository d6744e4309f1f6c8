"""Page faults with their owner (process, role, target) and the phase at their time."""

from __future__ import annotations

from tracer.analysis.views.context import COLUMNS, make_in_context
from tracer.analysis.views.view import View
from tracer.probes.events.page_faults import TABLE
from tracer.store.trace import Trace


def _build(trace: Trace) -> None:
    make_in_context(trace, TABLE.name, "faults")


FAULTS = View(
    "faults",
    "One row per page fault taken in a target's context.",
    (*TABLE.columns, *COLUMNS),
    needs=(TABLE.name,),
    build=_build,
    example="SELECT stage, file, count(*) FROM faults WHERE kind = 'major' GROUP BY ALL",
)
