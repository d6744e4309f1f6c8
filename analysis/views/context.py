"""Rows with the process, role, target, container and phase that they belong to."""

from __future__ import annotations

from tracer.analysis.views.in_phase import with_phase
from tracer.analysis.views.threads import make_threads, owns
from tracer.probes.schema import Column, Type
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
"""The columns that `make_in_context` adds to a table."""


def make_in_context(trace: Trace, table: str, view: str) -> None:
    """Makes the view `view`: the rows of a table, which needs a tid, with `COLUMNS` added.

    The view keeps nothing of the table: it is computed as it is read.
    """
    make_threads(trace)
    placed = with_phase(trace, table)
    trace.execute(
        f"""
        CREATE OR REPLACE TEMP VIEW "{view}" AS
        SELECT t.* EXCLUDE (phase, stage, epoch, step), o.comm, o.role, o.target, o.container,
            t.phase, t.stage, t.epoch, t.step
        FROM "{placed}" t LEFT JOIN threads o ON {owns("o", "t")}
        """
    )
