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

PASS = Column(
    "pass",
    Type.INT32,
    "1, or 2 if its process marks an epoch of this number for the second time (another fold of a"
    " cross-validation, another run), and so on; null: in no epoch",
)
"""The column that `make_in_context` adds with `passes`."""


def make_in_context(
    trace: Trace, table: str, view: str, passes: bool = False, lived: str = "ts"
) -> None:
    """Makes the view `view`: the rows of a table, which needs a tid, with `COLUMNS` added.

    `lived`: the column with a time (ns) at which the number was the thread's. With `passes`, it has
    the column `PASS`, too. The view keeps nothing of the table: it is computed as it is read.
    """
    make_threads(trace)
    placed = with_phase(trace, table)
    trace.execute(
        f"""
        CREATE OR REPLACE TEMP VIEW "{view}" AS
        SELECT t.* EXCLUDE (phase, stage, epoch, pass, step), o.comm, o.role, o.target, o.container,
            t.phase, t.stage, t.epoch, t.step{", t.pass" if passes else ""}
        FROM "{placed}" t LEFT JOIN threads o ON {owns("o", "t", ts=lived)}
        """
    )
