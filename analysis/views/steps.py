"""Steps: what of each minibatch was waiting for data, computing, and neither.

As in seed 000 (section 4.4) and seed 002 (section 4.5): a minibatch's end-to-end time is fetch
stall + compute + overhead; compute is forward + backward + optimizer.
"""

from __future__ import annotations

from tracer.store.trace import Trace

VIEW = "steps"

_PARTS = ("fetch", "forward", "backward", "optimizer", "checkpoint")
_STAGES = ("train", "eval", "inference")
_FOREVER = 1 << 62
_COMPUTE = ("forward", "backward", "optimizer")

_SUMS = ", ".join(
    [f"coalesce(sum(ns) FILTER (name = '{n}'), 0)::BIGINT AS {n}_ns" for n in _PARTS]
    + [f"(sum(gpu_ns) FILTER (name = '{n}'))::BIGINT AS gpu_{n}_ns" for n in _COMPUTE]
)

_SQL = f"""
CREATE TEMP TABLE {VIEW} AS
WITH step AS (
    SELECT row_number() OVER (ORDER BY start, pid, tid) AS id, * FROM phases
    WHERE name = 'step' AND pid IS NOT NULL
), part AS (
    SELECT row_number() OVER (ORDER BY start, "end" DESC) AS number, pid, tid, name, start, "end",
        gpu_ns
    FROM phases WHERE name IN {_PARTS} AND "end" IS NOT NULL
), within AS (
    SELECT part.*, CASE WHEN part.start < coalesce(step."end", {_FOREVER}) THEN id END AS id
    FROM part ASOF LEFT JOIN step
        ON part.pid = step.pid AND part.tid = step.tid AND part.start >= step.start
), placed AS (
    SELECT * FROM within WHERE id IS NOT NULL
    UNION ALL
    -- Where the script marks its steps inside the loop, the fetch lies before the step.
    SELECT w.* REPLACE (step.id AS id)
    FROM (SELECT * FROM within WHERE id IS NULL AND name = 'fetch') w ASOF JOIN step
        ON w.pid = step.pid AND w.tid = step.tid AND w.start <= step.start
), outer_part AS (
    SELECT *, coalesce(max("end") OVER (
        PARTITION BY id ORDER BY start, number ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING
    ) >= "end", false) AS nested
    FROM placed
), inner_time AS (
    -- What lies in another part, as in an optimizer's closure, is taken from that.
    SELECT o.id, o.number, sum(i."end" - i.start) AS ns, sum(i.gpu_ns) AS gpu_ns
    FROM outer_part i JOIN outer_part o
        ON i.id = o.id AND i.nested AND NOT o.nested
        AND o.start <= i.start AND i."end" <= o."end" AND o.number < i.number
    GROUP BY ALL
), own AS (
    SELECT p.id, p.name, p.start, p."end" - p.start - coalesce(i.ns, 0) AS ns,
        p.gpu_ns - coalesce(i.gpu_ns, 0) AS gpu_ns
    FROM outer_part p LEFT JOIN inner_time i USING (id, number)
), sums AS (
    SELECT id, min(start) AS first,
        {_SUMS}
    FROM own GROUP BY id
), whole AS (
    SELECT s.*, least(s.start, coalesce(first, s.start)) AS begun,
        {", ".join(f"coalesce({n}_ns, 0) AS {n}_ns" for n in _PARTS)},
        {", ".join(f"gpu_{n}_ns" for n in _COMPUTE)}
    FROM step s LEFT JOIN sums USING (id)
)
SELECT whole.pid, whole.tid,
    CASE WHEN whole.start < coalesce(stage."end", {_FOREVER}) THEN stage.name END AS stage,
    whole.epoch, whole.step, begun AS start, whole."end", whole."end" - begun AS total_ns,
    fetch_ns AS fetch_stall_ns, forward_ns + backward_ns + optimizer_ns AS compute_ns,
    forward_ns, backward_ns, optimizer_ns, checkpoint_ns,
    whole."end" - begun - fetch_ns - forward_ns - backward_ns - optimizer_ns - checkpoint_ns
        AS overhead_ns,
    {", ".join(f"gpu_{n}_ns" for n in _COMPUTE)},
    whole.source
FROM whole ASOF LEFT JOIN (SELECT * FROM phases WHERE name IN {_STAGES}) stage
    ON whole.pid = stage.pid AND whole.tid = stage.tid AND whole.start >= stage.start
ORDER BY begun, whole.pid, whole.tid
"""


def steps(trace: Trace) -> str:
    """Make the view `steps`; returns its name.

    One row a minibatch. Columns: pid, tid; stage (train, eval or inference: the phase around it,
    null: none is marked); epoch, step (from 0); start, end (ns); total_ns, end to
    end; fetch_stall_ns (the step's own thread waited for data; a worker's fetch meanwhile is no
    stall); forward_ns, backward_ns, optimizer_ns, without what lies within each other;
    compute_ns, their sum; checkpoint_ns; overhead_ns, what is left of the total; source (of the
    step: script or inferred). Null: the step did not end. These times are of the CPU: what a GPU
    still computes after a call has returned is in whatever waits for it, unless the recording had
    each part wait for the GPU (`tracer record --cuda-sync`). gpu_forward_ns, gpu_backward_ns,
    gpu_optimizer_ns: from CUDA events around each part, on the stream current there; null where
    there are none, as without CUDA.

    Needs table phases.
    """
    trace.require("phases")
    made = "SELECT 1 FROM duckdb_tables() WHERE table_name = ?"
    if not trace.connection.execute(made, [VIEW]).fetchone():
        trace.execute(_SQL)
    return VIEW
