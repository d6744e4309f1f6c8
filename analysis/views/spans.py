"""Phases as arrays: in order of threads and time, names and threads by their numbers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from analysis.views.nesting import NEVER, Ints
from tracer.store.trace import Trace

if TYPE_CHECKING:
    import pyarrow as pa

_NAMES = """
CREATE TEMP TABLE IF NOT EXISTS phase_names AS
SELECT name, row_number() OVER (ORDER BY name) - 1 AS code FROM (SELECT DISTINCT name FROM phases)
"""

_LANES = """
CREATE TEMP TABLE IF NOT EXISTS phase_lanes AS
SELECT pid, tid, row_number() OVER (ORDER BY pid, tid) - 1 AS lane FROM (
    SELECT DISTINCT pid, tid FROM phases WHERE pid IS NOT NULL AND tid IS NOT NULL
)
"""

_SPANS = f"""
SELECT lane, start, greatest(coalesce("end", {NEVER}), start) AS "end", code, epoch, step,
    CASE WHEN epoch IS NULL AND step IS NULL THEN -1
        ELSE dense_rank() OVER (ORDER BY epoch, step) END AS number
FROM phases_rows JOIN phase_lanes USING (pid, tid) JOIN phase_names USING (name)
ORDER BY lane, start, 3 DESC, row
"""


@dataclass(frozen=True)
class Spans:
    """One value a phase whose thread is known, ordered by lane, start, and latest end first.

    Of those that begin and end together the ones around the others come first, as in the table.
    """

    lane: Ints
    """Number of its thread (pid and tid) in the table `phase_lanes`."""
    start: Ints
    end: Ints
    """`NEVER`: it did not end. An end before the start is taken for the start."""
    name: Ints
    """Its name's code in the table `phase_names`."""
    number: Ints
    """Stands for its epoch and step; -1: it has neither."""
    epoch: pa.Array
    step: pa.Array


def read_spans(trace: Trace) -> Spans:
    """The phases of a trace, with the tables `phase_names` and `phase_lanes` for their numbers."""
    trace.execute(_NAMES)
    trace.execute(_LANES)
    rows = trace.arrow(_SPANS)
    lane, start, end, name, number = (
        rows[column].to_numpy() for column in ("lane", "start", "end", "code", "number")
    )
    epoch, step = (rows[column].combine_chunks() for column in ("epoch", "step"))
    return Spans(lane, start, end, name, number, epoch, step)
