"""System calls with their owner (process, role, target) and the phase at their entry."""

from __future__ import annotations

from tracer.analysis.views.context import COLUMNS, make_in_context
from tracer.analysis.views.view import View
from tracer.probes.events.syscalls import TABLE
from tracer.store.trace import Trace


def _build(trace: Trace) -> None:
    make_in_context(trace, TABLE.name, "calls")


CALLS = View(
    "calls",
    "One row per system call, with whose it is and the phase in which it began.",
    (*TABLE.columns, *COLUMNS),
    needs=(TABLE.name,),
    build=_build,
    example="SELECT phase, name, sum(dur_ns)/1e9 s FROM calls GROUP BY ALL ORDER BY s DESC LIMIT 9",
)
