"""Waits for a GPU: the times that threads spend in functions which wait for one.

A wait lasts from the entry of a function to its return. A call within another one is part of it. A
wait has no length if the return was not recorded, or if events were lost meanwhile.
"""

from __future__ import annotations

from tracer.analysis.views.context import COLUMNS, make_in_context
from tracer.analysis.views.threads import make_threads, owns
from tracer.analysis.views.view import View, apart, make_once
from tracer.probes.events.gpu_calls import END
from tracer.probes.events.gpu_calls import TABLE as CALLS
from tracer.probes.loss import OF_EVENTS
from tracer.probes.schema import PID, TID, TS, Column, Type
from tracer.store.trace import Trace

VIEW = "gpu_waits"
ROWS = "gpu_wait_rows"
SPANS = "gpu_wait_spans"

_FOREVER = (1 << 63) - 1

# An entry and its return are events of one level, and the events between them are of higher ones.
_SPANS = f"""
CREATE OR REPLACE TEMP TABLE {SPANS} AS
WITH leveled AS (
    SELECT c.ts, c.pid, c.tid, t.life, c.event, row_number() OVER own AS place,
        ends_with(c.event, '{END}') AS ends, sum(if(ends, -1, 1)) OVER own + ends::INTEGER AS level
    FROM {CALLS.name}_rows c LEFT JOIN threads t ON {owns("t", "c")}
    WINDOW own AS (PARTITION BY c.pid, c.tid, t.life ORDER BY c.ts, c.row)
), told AS (
    SELECT * EXCLUDE (level), lead(event) OVER peers AS following, lead(ts) OVER peers AS until,
        lead(place) OVER peers AS returned, count(*) OVER (PARTITION BY pid, tid, life) AS places
    FROM leveled WINDOW peers AS (PARTITION BY pid, tid, life, level ORDER BY place)
), entered AS (
    SELECT ts, pid, tid, life, event AS call, place, returned,
        coalesce(following = call || '{END}', false) AS known,
        -- After the thread's last event, it is in the function until it ends.
        if(known, until, if(place = places, {_FOREVER}, NULL)) AS until
    FROM told WHERE NOT ends
), gaps AS (
    SELECT coalesce("from", -{_FOREVER}) AS begin,
        max(coalesce("to", {_FOREVER})) OVER (ORDER BY begin ROWS UNBOUNDED PRECEDING) AS "end"
    FROM loss WHERE {OF_EVENTS} AND contains(stream, 'uprobes')
), certain AS (
    SELECT coalesce(g."end" > e.ts, false) AS lossy, e.* REPLACE (
        if(lossy, NULL, e.until) AS until, known AND NOT lossy AS known
    )
    FROM entered e ASOF LEFT JOIN gaps g ON coalesce(e.until, e.ts) > g.begin
)
SELECT ts, if(known, {apart("until", "ts")}, NULL) AS dur_ns, pid, tid, call, until
FROM certain
QUALIFY place > coalesce(max(if(known, returned, 0)) OVER (
    PARTITION BY pid, tid, life ORDER BY place ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING
), 0)
ORDER BY ts, tid
"""

GPU_MARKS = f"""
SELECT w.tid::BIGINT AS tid, w.ts, max(w.until) AS gpu_until, arg_max(n.code, w.until) AS gpu
FROM {SPANS} w JOIN wait_names n ON w.call = n.name WHERE w.until IS NOT NULL
GROUP BY ALL ORDER BY 1, 2
"""
"""SQL for the waits whose threads were surely in the function: until when (ns), and the code of the
function in `wait_names`."""


def make_gpu_wait_rows(trace: Trace) -> None:
    """Makes `gpu_wait_rows` and `gpu_wait_spans`: ts, dur_ns, pid, tid and call of the view.

    `gpu_wait_spans` also has `until` (ns): the thread surely was in the function until then, or
    until it ended. Both are in order of time, and empty if the trace has no table gpu_calls.
    """
    make_once(trace, ROWS, _build_rows)


def _build_rows(trace: Trace) -> None:
    for table in (CALLS.name, "loss"):
        trace.empty_if_missing(table)
    make_threads(trace)
    trace.execute(_SPANS)
    trace.execute(f"CREATE OR REPLACE TEMP VIEW {ROWS} AS SELECT * EXCLUDE (until) FROM {SPANS}")


def _build(trace: Trace) -> None:
    make_gpu_wait_rows(trace)
    make_in_context(trace, ROWS, VIEW)


GPU_WAITS = View(
    VIEW,
    "One row per time that a thread spends in a function of CUDA's driver which waits for the GPU, "
    "in no order. The thread spins, or sleeps. A call within another one is part of it.",
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


def waited_in(spans: str) -> str:
    """Returns SQL for spans of threads with two more columns, about their waits for a GPU.

    `waited`: the time in which the thread waits (ns); `unknown`: the number of waits without a
    length that begin in the span. `spans`: SQL with the columns pid, tid, start and end (ns). Needs
    `gpu_wait_rows`.
    """
    summed = (
        "SELECT pid, tid, ts, max(ts + coalesce(dur_ns, 0)) AS ended,"
        " sum(sum(coalesce(dur_ns, 0))) OVER own AS summed,"
        " sum(count(*) FILTER (dur_ns IS NULL)) OVER own AS unknown"
        f" FROM {ROWS} GROUP BY pid, tid, ts WINDOW own AS (PARTITION BY pid, tid ORDER BY ts)"
    )

    def before(at: str, last: str) -> str:
        return f"coalesce({last}.summed - greatest(0, {last}.ended::HUGEINT - {at}), 0)"

    def join(last: str, at: str) -> str:
        return (
            f" ASOF LEFT JOIN ({summed}) {last}"
            f" ON c.pid = {last}.pid AND c.tid = {last}.tid AND {at} >= {last}.ts"
        )

    start, end = "c.start", 'c."end"'
    return (
        f"(SELECT c.*, {before(end, 'b')} - {before(start, 'a')} AS waited,"
        f" coalesce(b.unknown, 0) - coalesce(a.unknown, 0) AS unknown FROM ({spans}) c"
        f"{join('a', start)}{join('b', end)})"
    )
