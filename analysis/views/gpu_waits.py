"""Waits for a GPU: the times that threads spend in functions which wait for one.

A function's entry and the next event of its thread are a wait, if that event is the function's
return. A wait has no length if the return was not recorded, or if events were lost meanwhile.
"""

from __future__ import annotations

from tracer.analysis.views.context import COLUMNS, make_in_context
from tracer.analysis.views.view import View, apart, make_once
from tracer.probes.gpu_calls import END
from tracer.probes.gpu_calls import TABLE as CALLS
from tracer.probes.loss import OF_EVENTS
from tracer.probes.schema import PID, TID, TS, Column, Type
from tracer.store.trace import Trace

VIEW = "gpu_waits"
ROWS = "gpu_wait_rows"

_FOREVER = (1 << 63) - 1

_ROWS = f"""
CREATE OR REPLACE TEMP TABLE {ROWS} AS
WITH told AS (
    SELECT ts, pid, tid, event, lead(event) OVER own AS following, lead(ts) OVER own AS until
    FROM {CALLS.name}_rows WINDOW own AS (PARTITION BY pid, tid ORDER BY ts, row)
), gaps AS (
    SELECT coalesce("from", -{_FOREVER}) AS begin,
        max(coalesce("to", {_FOREVER})) OVER (ORDER BY begin ROWS UNBOUNDED PRECEDING) AS "end"
    FROM loss WHERE {OF_EVENTS} AND contains(stream, 'uprobes')
)
SELECT t.ts, if(
    t.following = t.event || '{END}' AND NOT coalesce(g."end" > t.ts, false),
    {apart("t.until", "t.ts")}, NULL
) AS dur_ns, t.pid, t.tid, t.event AS call
FROM (FROM told WHERE NOT ends_with(event, '{END}')) t
ASOF LEFT JOIN gaps g ON coalesce(t.until, t.ts) > g.begin
ORDER BY t.ts, t.tid
"""

GPU_MARKS = f"""
SELECT w.tid::BIGINT AS tid, w.ts, max(w.ts + w.dur_ns) AS gpu_until,
    arg_max(n.code, w.dur_ns) AS gpu
FROM {ROWS} w JOIN wait_names n ON w.call = n.name WHERE w.dur_ns IS NOT NULL
GROUP BY ALL ORDER BY 1, 2
"""
"""SQL for the waits of known length: when each ends (ns), and the code of its function in
`wait_names`."""


def make_gpu_wait_rows(trace: Trace) -> None:
    """Makes the table `gpu_wait_rows`: ts, dur_ns, pid, tid and call of the view, in order of time.

    It is empty if the trace has no table gpu_calls.
    """
    make_once(trace, ROWS, _build_rows)


def _build_rows(trace: Trace) -> None:
    for table in (CALLS.name, "loss"):
        trace.empty_if_missing(table)
    trace.execute(_ROWS)


def _build(trace: Trace) -> None:
    make_gpu_wait_rows(trace)
    make_in_context(trace, ROWS, VIEW)


GPU_WAITS = View(
    VIEW,
    "One row per time that a thread spends in a function of CUDA's driver which waits for the GPU, "
    "in order of time. The thread spins, or sleeps.",
    (
        TS,
        Column("dur_ns", Type.INT64, "how long; null: not known", "ns"),
        PID,
        TID,
        Column("call", Type.TEXT, "function of the driver, as cuStreamSynchronize"),
        *COLUMNS,
    ),
    needs=(CALLS.name,),
    build=_build,
    example="SELECT phase, call, sum(dur_ns)/1e9 s FROM gpu_waits GROUP BY ALL ORDER BY s DESC",
)


def gpu_waits(trace: Trace) -> str:
    """Makes the view `gpu_waits` and returns its name. Columns and units: `GPU_WAITS`."""
    return GPU_WAITS.make(trace)
