"""All views, by name."""

from __future__ import annotations

import re

from analysis.views.calls import CALLS
from analysis.views.faults import FAULTS
from analysis.views.flushes import FLUSHES
from analysis.views.in_phase import IN_PHASE, SUFFIX, in_phase
from analysis.views.requests import REQUESTS
from analysis.views.stalls import STALLS
from analysis.views.steps import STEPS
from analysis.views.threads import THREADS
from analysis.views.view import View
from analysis.views.write_waits import WRITE_WAITS
from tracer.store.trace import Trace

VIEWS: dict[str, View] = {
    view.name: view
    for view in (CALLS, FAULTS, FLUSHES, REQUESTS, STALLS, STEPS, THREADS, WRITE_WAITS)
}
"""Every view that `tracer query` and figures can ask for."""


def make_named(trace: Trace, query: str) -> None:
    """Make the views, and the TABLE_in_phase, that a query names.

    Raises BadTrace where the trace lacks a table that one of them needs.
    """
    import duckdb

    try:
        asked = {name.lower() for name in trace.connection.get_table_names(query)}
    except duckdb.Error:
        # Nothing that DuckDB takes apart without the tables: any word may be a name.
        asked = {
            word
            for word in re.findall(r"\w+", query.lower())
            if word not in VIEWS or all(need in trace.tables for need in VIEWS[word].needs)
        }
    for name in sorted(asked & VIEWS.keys()):
        VIEWS[name].make(trace)
    for name in sorted(asked):
        table = name.removesuffix(SUFFIX)
        if table != name and table in IN_PHASE:
            in_phase(trace, table)
