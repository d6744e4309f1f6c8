"""Rows with whose they are and when they were: process, role, target, container, and phase."""

from __future__ import annotations

from analysis.views.in_phase import with_phase
from analysis.views.view import is_made
from probes.schema import Column, Type
from tracer.store.trace import Trace

COLUMNS = (
    Column("comm", Type.TEXT, "last known name of the thread"),
    Column("role", Type.TEXT, "target, child, daemon, flusher, journal, other; null: not known"),
    Column("target", Type.TEXT, "name of the target that the thread belongs to"),
    Column("container", Type.TEXT, "container of the thread, by its id"),
    Column("phase", Type.TEXT, "the innermost that it was in; null: in none, or not known whose"),
    Column("stage", Type.TEXT, "data_load, model_load, train or inference around it"),
    Column("epoch", Type.INT64, "from 0"),
    Column("step", Type.INT64, "from 0"),
)
"""What `make_in_context` adds to a table."""

_OWNERS = """
CREATE TEMP TABLE owners AS
SELECT tid, arg_max(comm, coalesce(start_ns, 0)) AS comm,
    CASE WHEN count(DISTINCT role) = 1 THEN any_value(role) END AS role,
    CASE WHEN count(DISTINCT target) = 1 THEN any_value(target) END AS target,
    CASE WHEN count(DISTINCT container_id) = 1 THEN any_value(container_id) END AS container
FROM processes GROUP BY tid
"""


def make_owners(trace: Trace) -> None:
    """Make the table `owners`: tid, comm, role, target, container (null: several differ)."""
    trace.empty_if_missing("processes")
    if not is_made(trace, "owners"):
        trace.execute(_OWNERS)


def make_in_context(trace: Trace, table: str, view: str) -> None:
    """Make the view `view`: the rows of a table, which needs a tid, with `COLUMNS` added.

    Nothing is kept of the table: the view is computed as it is read.
    """
    make_owners(trace)
    placed = with_phase(trace, table)
    trace.execute(
        f"""
        CREATE OR REPLACE TEMP VIEW "{view}" AS
        SELECT t.* EXCLUDE (phase, stage, epoch, step), o.comm, o.role, o.target, o.container,
            t.phase, t.stage, t.epoch, t.step
        FROM "{placed}" t LEFT JOIN owners o USING (tid)
        """
    )
