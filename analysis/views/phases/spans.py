"""Phases as arrays, ordered by thread and time, with numbers for names and threads."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from tracer.analysis.views.arrays import arrays_of
from tracer.analysis.views.phases.epoch_passes import has_passes, with_passes
from tracer.analysis.views.phases.nesting import NEVER, Ints, Shorts
from tracer.analysis.views.phases.phase_times import make_phase_times
from tracer.analysis.views.threads import life, make_threads, moment, owns
from tracer.store.trace import Trace

_NAMES = """
CREATE TEMP TABLE IF NOT EXISTS phase_names AS
SELECT name, row_number() OVER (ORDER BY name) - 1 AS code FROM (SELECT DISTINCT name FROM phases)
"""

# Numbers that several threads had, one after the other, have a lane for each.
_LANES = f"""
CREATE TEMP TABLE IF NOT EXISTS phase_lanes AS
WITH marked AS (
    SELECT pid, tid, $moment AS moment, min(start) AS start FROM phases
    WHERE pid IS NOT NULL AND tid IS NOT NULL GROUP BY ALL
), of_lives AS (
    SELECT m.pid, m.tid, {life("t")}, min(m.start) AS start
    FROM marked m LEFT JOIN threads t ON {owns("t", "m", ts="moment")} GROUP BY ALL
)
SELECT m.pid, m.tid, row_number() OVER (ORDER BY m.pid, m.tid, m.begun) - 1 AS lane,
    m.begun, m.last, {life("p", "process_")}
FROM of_lives m LEFT JOIN threads p ON {owns("p", "m", "pid", "start")}
"""

_SPANS = f"""
SELECT lane, p.start, greatest(coalesce(until, {NEVER}), p.start) AS "end", code,
    coalesce(p.epoch, 0) AS epoch, p.epoch IS NULL AS no_epoch,
    coalesce(p.step, 0) AS step, p.step IS NULL AS no_step, p.pass{{number}}
FROM ({{phases}}) p JOIN phase_lanes l ON p.pid = l.pid AND p.tid = l.tid
    AND p.start BETWEEN l.begun AND l.last
JOIN phase_names USING (name)
ORDER BY lane, p.start, 3 DESC, row
"""

_NUMBER = """,
    CASE WHEN p.epoch IS NULL AND p.step IS NULL THEN -1
        ELSE dense_rank() OVER (ORDER BY p.epoch, p.pass, p.step) END AS number,
    CASE WHEN p.epoch IS NULL THEN -1
        ELSE dense_rank() OVER (ORDER BY p.epoch, p.pass) END AS pass_epoch
"""

_ONE_PASS = "SELECT *, 1 AS pass FROM phase_times"


@dataclass(frozen=True)
class Spans:
    """One value per phase with a known thread, ordered by lane, start, and latest end first.

    Phases that begin and end together keep their order in the table: the outer one comes first.
    """

    lane: Ints
    """Number of the phase's thread in the table `phase_lanes`: pid, tid, lane, and begun and last,
    the first and the last time (ns) at which the numbers are this thread's. process_begun and
    process_last are those of the process's number."""
    start: Ints
    end: Ints
    """`NEVER`: the phase and its thread did not end. The end is not before the start."""
    name: Ints
    """Code of the phase's name in the table `phase_names`."""
    number: Ints
    """Code of the phase's epoch and step; -1: it has neither. Empty: it was not requested.

    Epochs and steps of a process that begins anew with its numbers have other codes.
    """
    pass_epoch: Ints
    """Likewise, of its epoch alone."""
    epoch: pa.Array
    step: pa.Array
    of_pass: Shorts
    """The pass of its epoch, from 1; 1 also for a phase without an epoch."""


def read_spans(trace: Trace, numbers: bool = True) -> Spans:
    """Returns the phases of a trace and makes the tables `phase_names` and `phase_lanes`.

    Without `numbers`, the arrays `number` and `pass_epoch` are empty.
    """
    make_phase_times(trace)
    trace.execute(_NAMES)
    make_threads(trace)
    trace.execute(_LANES.replace("$moment", moment(trace, ts="start")))
    kinds = {
        **dict.fromkeys(("lane", "start", "end", "code"), "int64"),
        "epoch": "int64",
        "no_epoch": "bool",
        "step": "int64",
        "no_step": "bool",
        "pass": "int32",
        **({"number": "int64", "pass_epoch": "int64"} if numbers else {}),
    }
    query = _SPANS.format(
        number=_NUMBER if numbers else "",
        phases=with_passes("phase_times") if has_passes(trace) else _ONE_PASS,
    )
    lane, start, end, name, epoch, no_epoch, step, no_step, of_pass, *more = arrays_of(
        trace, query, kinds
    )
    number, pass_epoch = more if numbers else [np.empty(0, np.int64)] * 2
    return Spans(
        lane,
        start,
        end,
        name,
        number,
        pass_epoch,
        pa.array(epoch, mask=no_epoch),
        pa.array(step, mask=no_step),
        of_pass,
    )
