"""All views, by name."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from tracer.analysis.views.calls import CALLS
from tracer.analysis.views.disks.requests import REQUESTS
from tracer.analysis.views.disks.rest_queues import REST_QUEUES
from tracer.analysis.views.disks.write_waits import WRITE_WAITS
from tracer.analysis.views.faults import FAULTS
from tracer.analysis.views.in_phase import IN_PHASE, SUFFIX, in_phase
from tracer.analysis.views.phases.phase_times import PHASE_TIMES
from tracer.analysis.views.reading.page_uses import PAGE_USES
from tracer.analysis.views.reading.reads import READS
from tracer.analysis.views.threads import THREADS
from tracer.analysis.views.view import View
from tracer.analysis.views.waiting.critical_path import CRITICAL_PATH
from tracer.analysis.views.waiting.gpu_waits import GPU_WAITS
from tracer.analysis.views.waiting.stalls import STALLS
from tracer.analysis.views.waiting.steps import STEPS
from tracer.analysis.views.waiting.waits import WAITS
from tracer.analysis.views.writing.flushes import FLUSHES
from tracer.analysis.views.writing.passes import PASSES
from tracer.store.trace import Trace

if TYPE_CHECKING:
    import pandas as pd

VIEWS: dict[str, View] = {
    view.name: view
    for view in (
        CALLS,
        CRITICAL_PATH,
        FAULTS,
        FLUSHES,
        GPU_WAITS,
        PAGE_USES,
        PASSES,
        PHASE_TIMES,
        READS,
        REQUESTS,
        REST_QUEUES,
        STALLS,
        STEPS,
        THREADS,
        WAITS,
        WRITE_WAITS,
    )
}
"""All views that `tracer query` and figures can use, by name."""


def answer(trace: Trace, query: str) -> pd.DataFrame:
    """Returns the result of a query on tables, views and TABLE_in_phase views of a trace.

    Raises UsageError if DuckDB refuses the query, and BadTrace if the trace lacks a table that a
    view needs.
    """
    make_named(trace, query)
    return trace.sql(query)


def needed(name: str) -> tuple[str, ...] | None:
    """Returns the tables that a view or a TABLE_in_phase view needs; None if there is no such view.

    `name` is in lower case.
    """
    if name in VIEWS:
        return VIEWS[name].needs
    table = name.removesuffix(SUFFIX)
    if table == name or table not in IN_PHASE:
        return None
    return ("phases", *(VIEWS[table].needs if table in VIEWS else (table,)))


def make_named(trace: Trace, query: str) -> None:
    """Makes the views and the TABLE_in_phase views that a query names.

    Raises BadTrace if the trace lacks a table that one of these views needs.
    """
    import duckdb

    try:
        # Another connection does not see the views that were made, and so not what these name.
        asked = {name.lower() for name in trace.connection.cursor().get_table_names(query)}
    except duckdb.Error:
        # DuckDB cannot parse the query without the tables, so any word may be a view's name.
        asked = {
            word
            for word in re.findall(r"\w+", query.lower())
            if all(need in trace.tables for need in needed(word) or ())
        }
    for name in sorted(asked & VIEWS.keys()):
        VIEWS[name].make(trace)
    for name in sorted(asked):
        table = name.removesuffix(SUFFIX)
        if table != name and table in IN_PHASE:
            in_phase(trace, table)
