"""Steps: the time of each minibatch, split into waiting for data, compute and overhead.

The split follows Prashanthi et al. 2023, section 4.4, and Prashanthi et al. 2022, section 4.5: a
minibatch's end-to-end time is fetch stall + compute + overhead. Compute is forward + backward +
optimizer.
"""

from __future__ import annotations

from tracer.analysis.views.phases.nesting import NEVER, cut, directly_around
from tracer.analysis.views.phases.phase_times import make_phase_times
from tracer.analysis.views.view import View
from tracer.analysis.views.waiting.gpu_waits import make_gpu_wait_rows, waited_in
from tracer.probes.events.gpu_calls import TABLE as CALLS
from tracer.probes.schema import Column, Type
from tracer.store.manifest import with_all_events
from tracer.store.outside import UPROBE
from tracer.store.trace import Trace

VIEW = "steps"
_UNTIL = "steps_until"

_PARTS = ("fetch", "forward", "backward", "optimizer", "checkpoint")
_STAGES = ("train", "eval", "inference")
_LATEST = 1 << 58
_COMPUTE = ("forward", "backward", "optimizer")

_SUMS = ", ".join(
    [
        f"least(coalesce(sum(ns) FILTER (name = '{n}'), 0), {_LATEST})::BIGINT AS {n}_ns"
        for n in _PARTS
    ]
    + [
        # A sum that lacks a part is not the time of the step.
        f"try_cast(CASE WHEN bool_and(gpu_ns IS NOT NULL) FILTER (name = '{n}') "
        f"THEN sum(gpu_ns) FILTER (name = '{n}') END AS BIGINT) AS gpu_{n}_ns"
        for n in _COMPUTE
    ]
)

_OF_ENDED = ", ".join(
    [f'if(s."end" IS NOT NULL, coalesce({n}_ns, 0), NULL) AS {n}_ns' for n in _PARTS]
    + [f'if(s."end" IS NOT NULL, gpu_{n}_ns, NULL) AS gpu_{n}_ns' for n in _COMPUTE]
)

# A step without an end lasts at most until the thread's next step, or its thread's end.
_LASTS = """
coalesce(s."end", if(s.tid IS NULL, s.until,
    least(lead(s.start) OVER (PARTITION BY s.pid, s.tid ORDER BY s.id), s.until)))
"""

# Uprobes see no checkpoints.
_FROM_OUTSIDE = f"""
CREATE OR REPLACE TEMP TABLE seen_from_outside AS
SELECT pid FROM phases WHERE source != 'inferred' AND pid IS NOT NULL
GROUP BY pid HAVING bool_and(source = '{UPROBE}')
"""

_MARKED = f"""
CREATE OR REPLACE TEMP TABLE step_phases AS
-- Times that lie years from the machine's start are not valid, and their sums would overflow.
SELECT * FROM phase_times
WHERE start BETWEEN -{_LATEST} AND {_LATEST}
    AND coalesce("end" BETWEEN start AND {_LATEST}, true)
"""

_AROUND_SQL = f"""
SELECT dense_rank() OVER (ORDER BY pid, tid) - 1 AS lane, pid, tid, name, start,
    coalesce(until, {NEVER}) AS "end"
FROM step_phases WHERE name IN {{names}} AND pid IS NOT NULL AND tid IS NOT NULL
ORDER BY lane, start, "end" DESC, row
"""
"""SQL for the phases of some names, which may lie around steps."""

_STEPS_SQL = f"""
SELECT dense_rank() OVER (ORDER BY pid, tid) - 1 AS lane, pid, tid, id, start,
    coalesce({_LASTS}, {NEVER}) AS "end"
FROM numbered_steps s WHERE tid IS NOT NULL ORDER BY lane, start, "end" DESC, id
"""

_NUMBERED = """
CREATE OR REPLACE TEMP TABLE numbered_steps AS
SELECT row_number() OVER (ORDER BY s.start, s."end" DESC, s.pid, s.tid, s.row) AS id, s.*,
    c.name AS stage,
    coalesce(c.span, -1) AS around,  -- -1: in no stage
    e.span AS pass
FROM (SELECT * FROM step_phases WHERE name = 'step' AND pid IS NOT NULL) s
ASOF LEFT JOIN step_stages c ON s.pid = c.pid AND s.tid = c.tid AND s.start >= c.ts
ASOF LEFT JOIN step_epochs e ON s.pid = e.pid AND s.tid = e.tid AND s.start >= e.ts
"""

_FETCHES_SQL = """
WITH begun AS (SELECT id, min(start) AS first FROM step_parts GROUP BY id)
SELECT dense_rank() OVER (ORDER BY p.pid, p.tid) - 1 AS lane, p.pid, p.tid, p.start, p."end",
    if(p.name = 'fetch', least(s.start, first), NULL) AS step_start
FROM step_parts p JOIN numbered_steps s USING (id) JOIN begun USING (id)
ORDER BY lane, p.start, p."end" DESC, number
"""
"""SQL for the parts of steps. `step_start` is null for parts other than fetches."""

OUTER_PARTS = """
SELECT p.pid, p.tid, p.start, p."end", least(s.start, first) AS step_start
FROM (
    SELECT *, min(start) OVER (PARTITION BY id) AS first, coalesce(max("end") OVER (
        PARTITION BY id ORDER BY start, number ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING
    ) >= "end", false) AS nested
    FROM step_parts
) p JOIN numbered_steps s USING (id) WHERE NOT nested
"""
"""SQL for the parts of steps that lie in no other part: pid, tid, start, end, and the start of the
step in the view `steps`, which it needs."""

_PLACED = f"""
CREATE OR REPLACE TEMP TABLE step_parts AS
WITH part AS (
    SELECT row_number() OVER (ORDER BY start, "end" DESC, row) AS number, pid, tid, name,
        start, "end", epoch, gpu_ns
    FROM step_phases WHERE name IN {_PARTS} AND "end" IS NOT NULL
), within AS (
    SELECT part.*, c.id
    FROM part ASOF LEFT JOIN step_cuts c
        ON part.pid = c.pid AND part.tid = c.tid AND part.start >= c.ts
), early AS (
    -- If the script marks its steps inside the loop, the fetch lies before the step.
    SELECT w.*, coalesce(c.span, -1) AS around, e.span AS pass
    FROM (SELECT * FROM within WHERE id IS NULL AND name = 'fetch') w
    ASOF LEFT JOIN step_stages c ON w.pid = c.pid AND w.tid = c.tid AND w.start >= c.ts
    ASOF LEFT JOIN step_epochs e ON w.pid = e.pid AND w.tid = e.tid AND w.start >= e.ts
), consumed AS (
    -- The next step of the same stage takes the batch, even if an evaluation lies in between.
    SELECT e.number, s.id, s.epoch, s.pass FROM early e ASOF JOIN numbered_steps s
        ON e.pid = s.pid AND e.tid = s.tid AND e.around = s.around AND e.start <= s.start
)
SELECT number, pid, tid, name, start, "end", gpu_ns, id FROM within WHERE id IS NOT NULL
UNION ALL
-- The last fetch of an epoch finds no batch, so it belongs to no step. The next epoch may have
-- the same number (another fold, another run).
SELECT number, pid, tid, name, start, "end", gpu_ns, c.id
FROM early e JOIN consumed c USING (number)
WHERE coalesce(e.epoch = c.epoch, true) AND coalesce(e.pass = c.pass, true)
"""

_NESTING_SQL = """
SELECT id, number, "end" FROM step_parts ORDER BY id, start, number
"""

_BEGUN = """
SELECT s.id, s.pid, s.tid, least(s.start, coalesce(first, s.start)) AS start, s."end"
FROM numbered_steps s LEFT JOIN (SELECT id, min(start) AS first FROM step_parts GROUP BY id)
    USING (id)
WHERE s."end" > s.start
"""

_GPU_WAITS = f"""
CREATE OR REPLACE TEMP TABLE step_gpu_waits AS
SELECT id, if(unknown = 0, least(waited, {_LATEST}), NULL)::BIGINT AS ns FROM {waited_in(_BEGUN)}
"""

_SQL = f"""
CREATE OR REPLACE TEMP TABLE $table AS
WITH held AS (
    -- Each nested part, with the number of the part directly around it.
    SELECT p.id, n.around AS number, p."end" - p.start AS ns, p.gpu_ns,
        p.name IN {_COMPUTE} AS computes
    FROM step_parts p JOIN nested_parts n USING (number)
), inner_time AS (
    -- The time of a nested part (for example in an optimizer's closure) is subtracted from the
    -- part around it.
    SELECT id, number, sum(ns) AS ns,
        CASE WHEN bool_and(gpu_ns IS NOT NULL OR NOT computes)
        THEN coalesce(sum(gpu_ns), 0) END AS gpu_ns
    FROM held GROUP BY ALL
), own AS (
    SELECT p.id, p.name, p.start, p."end" - p.start - coalesce(i.ns, 0) AS ns,
        p.gpu_ns::HUGEINT - CASE WHEN i.id IS NULL THEN 0 ELSE i.gpu_ns END AS gpu_ns
    FROM step_parts p LEFT JOIN inner_time i USING (id, number)
), sums AS (
    SELECT id, min(start) AS first,
        {_SUMS}
    FROM own GROUP BY id
), whole AS (
    SELECT s.* REPLACE ({_LASTS} AS until), least(s.start, coalesce(first, s.start)) AS begun,
        {_OF_ENDED}, s.pid IN (SELECT pid FROM seen_from_outside) AS outside,
        if(s."end" IS NOT NULL AND s.tid IS NOT NULL AND $recorded,
            if(w.id IS NULL, 0, w.ns), NULL) AS gpu_wait_ns
    FROM numbered_steps s LEFT JOIN sums USING (id) LEFT JOIN step_gpu_waits w USING (id)
)
SELECT whole.pid, whole.tid, whole.stage, whole.epoch, whole.step,
    begun AS start, whole."end", whole."end" - begun AS total_ns,
    fetch_ns AS fetch_stall_ns, forward_ns + backward_ns + optimizer_ns AS compute_ns,
    forward_ns, backward_ns, optimizer_ns,
    if(outside, nullif(checkpoint_ns, 0), checkpoint_ns) AS checkpoint_ns,
    whole."end" - begun - fetch_ns - forward_ns - backward_ns - optimizer_ns - checkpoint_ns
        AS overhead_ns,
    {", ".join(f"gpu_{n}_ns" for n in _COMPUTE)}, gpu_wait_ns,
    whole.source $more
FROM whole ORDER BY begun, whole.pid, whole.tid
"""


def _build(trace: Trace) -> None:
    make_phase_times(trace)
    trace.execute(_FROM_OUTSIDE, _MARKED)
    _keep_innermost(trace, "step_stages", _AROUND_SQL.format(names=_STAGES), "name")
    _keep_innermost(trace, "step_epochs", _AROUND_SQL.format(names="('epoch')"), "name")
    trace.execute(_NUMBERED)
    _keep_innermost(trace, "step_cuts", _STEPS_SQL, "id")
    make_gpu_wait_rows(trace)
    trace.execute(_PLACED)
    _keep_nested_parts(trace)
    trace.execute(_GPU_WAITS, _made(trace, VIEW))


def _made(trace: Trace, table: str, more: str = "") -> str:
    """Returns the statement that makes a table of steps, with `more` columns (SQL)."""
    recorded = "true" if CALLS.name in trace.tables else "false"
    said = _SQL.replace("$table", table).replace("$more", more)
    return said.replace("$recorded", recorded)


def _keep_innermost(trace: Trace, table: str, query: str, name: str) -> None:
    """Keeps a table of the innermost span on each thread from each cut on.

    `query` gives the columns lane, pid, tid, `name`, start and end, in the order that `cut` needs.
    Columns of the table: pid, tid, ts, `name`, and span (number). The last two are null while the
    thread is in no span.
    """
    import numpy as np
    import pyarrow as pa

    spans = trace.arrow(query).combine_chunks()
    lane, start, end = (spans[column].to_numpy() for column in ("lane", "start", "end"))
    cut_lane, ts, span, _ = cut(lane, start, end, np.full(len(lane), -1, np.int32))
    inner = pa.array(span, mask=span < 0)
    first = np.searchsorted(lane, cut_lane)
    columns = {
        "pid": spans["pid"].take(first),
        "tid": spans["tid"].take(first),
        "ts": pa.array(ts),
        name: spans[name].take(inner),
        "span": inner,
    }
    trace.keep(table, pa.table(columns))


def _keep_nested_parts(trace: Trace) -> None:
    """Keeps the table `nested_parts`, one row per part of a step that lies in another part.

    Columns: number, and around, the number of the part directly around it: among all parts of the
    step around it, the last to begin.
    """
    import numpy as np
    import pyarrow as pa

    parts = trace.arrow(_NESTING_SQL).combine_chunks()
    around = directly_around(parts["id"].to_numpy(), parts["end"].to_numpy())
    nested = np.flatnonzero(around >= 0)
    number = parts["number"]
    rows = {"number": number.take(nested), "around": number.take(around[nested])}
    trace.keep("nested_parts", pa.table(rows))


def _time(name: str, about: str) -> Column:
    return Column(name, Type.INT64, about, "ns")


STEPS = View(
    VIEW,
    "One row per minibatch, in order of start.",
    (
        Column("pid", Type.INT32, "process that marked it"),
        Column("tid", Type.INT32, "thread that marked it"),
        Column(
            "stage",
            Type.TEXT,
            "innermost of train, eval and inference around it; null: none is marked",
        ),
        Column("epoch", Type.INT64, "from 0"),
        Column("step", Type.INT64, "from 0"),
        _time("start", "start, including the fetch before the step"),
        _time("end", "end; null: the step did not end, and all its times are null"),
        _time("total_ns", "time from start to end"),
        _time(
            "fetch_stall_ns",
            "time for which the step's own thread waited for data; workers' fetches do not count",
        ),
        _time("compute_ns", "time in forward, backward and optimizer"),
        _time("forward_ns", "time in forward, without other parts nested in it"),
        _time("backward_ns", "time in backward, without other parts nested in it"),
        _time("optimizer_ns", "time in optimizer, without other parts nested in it"),
        _time(
            "checkpoint_ns",
            "time in checkpoint, without other parts nested in it; null: not known, since uprobes "
            "see none: it is in overhead_ns",
        ),
        _time("overhead_ns", "the rest of the total"),
        _time(
            "gpu_forward_ns",
            "GPU time of forward by CUDA events, without nested parts; null: not fully measured",
        ),
        _time(
            "gpu_backward_ns",
            "GPU time of backward by CUDA events, without nested parts; null: not fully measured",
        ),
        _time(
            "gpu_optimizer_ns",
            "GPU time of optimizer by CUDA events, without nested parts; null: not fully measured",
        ),
        _time(
            "gpu_wait_ns",
            "time in which its thread waits for the GPU, in any of the parts; null: not known",
        ),
        Column("source", Type.TEXT, "source of the step: script or inferred"),
    ),
    needs=("phases",),
    build=_build,
    example="SELECT stage, avg(fetch_stall_ns) / avg(total_ns) AS stalled FROM steps GROUP BY 1",
)


def steps(trace: Trace) -> str:
    """Makes the view `steps` and returns its name. Columns and units: `STEPS`.

    Except for `gpu_forward_ns` and the like, these are times on the CPU. If a GPU still computes
    when a call returns, the rest of its work counts in the part that waits for it. With `tracer
    record --cuda-sync`, each part waits for the GPU. Needs the table phases.
    """
    return STEPS.make(trace)


def steps_until(trace: Trace) -> str:
    """Makes a table like the view `steps`, with one more column, and returns its name.

    until (ns): the end of the step; if it has none, the begin of its thread's next step, or the end
    of its thread; null: it lasted longer than the recording.
    """
    steps(trace)
    trace.execute(_made(trace, _UNTIL, ", whole.until"))
    return _UNTIL


def in_recording(trace: Trace, of: str = "") -> str:
    """Returns the SQL condition of the rows of `steps` that began and ended in the recording.

    Processes write the marks, so a step may begin before their events are recorded, and end after
    that. `of` is the prefix of the columns.
    """
    begin, end = with_all_events(trace.manifest)
    ended = "" if end is None else f' AND {of}"end" <= {end}'
    return f'{of}"end" IS NOT NULL AND {of}start >= {begin}{ended}'


def fetches_of_steps(trace: Trace) -> str:
    """Makes the table `step_fetches` and returns its name: it tells when steps wait for data.

    Columns: pid, tid and ts (ns), from which on the thread waits for the data of the step of the
    view `steps` that starts at step_start (ns); null: it waits for no step's. The times of a step's
    rows add up to its fetch_stall_ns.
    """
    steps(trace)
    _keep_innermost(trace, "step_fetches", _FETCHES_SQL, "step_start")
    return "step_fetches"
