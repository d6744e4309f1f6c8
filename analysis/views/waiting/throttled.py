"""Waits for a CPU in which the cgroup was throttled: no thread of the target ran meanwhile.

A thread that may not run because its cgroup has used up its CPU quota looks like one that waits
behind another thread, which uses the CPU meanwhile. Its wait is told apart by the stretches in
which threads of the target could run, and none did. The samples of the cgroup tell for how long the
quota kept it from running within some seconds. That time is given to the longest stretches that end
in them, since the turns of other threads on a CPU are shorter. A stretch begins when the quota is
used up, so where the time is shorter than the stretch, the rest is a wait for another thread.
"""

from __future__ import annotations

from tracer.analysis.views.calls_around import LATEST
from tracer.analysis.views.threads import owns
from tracer.analysis.views.view import apart
from tracer.store.trace import Trace

LEAST_NS = 1_000_000
"""Shortest stretch: the next thread of a queue takes its CPU within microseconds."""

_POOL_NS = 5_000_000_000
"""Time whose throttled time is given to its stretches. The kernel counts a stretch when the quota
is renewed, and the stretch ends when a thread runs: a sample may come between."""

# A thread runs from the end of one interval off the CPU until the next one. It counts as running
# where events do not tell, also if it has no interval, but had a CPU.
_STRETCHES = f"""
CREATE OR REPLACE TEMP TABLE throttled_stretches AS
WITH intervals AS (
    SELECT o.target, o.life, o.was_there, o.ended, s.row, s.ts, s.ts::HUGEINT + s.dur_ns AS upto
    FROM sleeps s JOIN threads o ON {owns("o", "s")}
    SEMI JOIN throttled_times q ON o.target = q.target
), runs AS (
    SELECT target, coalesce(upto, ts) AS begun,
        -- An interval whose end is not logged may end after the exit of its thread.
        greatest(begun, coalesce(
            lead(ts) OVER (PARTITION BY life ORDER BY ts, row), ended, {LATEST})) AS until
    FROM intervals
    UNION ALL
    SELECT target, -{LATEST}, min(ts) FROM intervals WHERE was_there GROUP BY target, life
    UNION ALL
    SELECT b.target, -{LATEST}, coalesce(b.ended, {LATEST}) FROM threads b
    SEMI JOIN wait_parts p ON b.tid = p.by_tid AND p.kind = 'cpu'
    SEMI JOIN throttled_times q ON b.target = q.target ANTI JOIN intervals i ON b.life = i.life
), gaps AS (
    SELECT target, max(until) OVER so_far AS since, lead(begun) OVER by_begin AS upto FROM runs
    WINDOW by_begin AS (PARTITION BY target ORDER BY begun, until),
        so_far AS (PARTITION BY target ORDER BY begun, until ROWS UNBOUNDED PRECEDING)
), waiting AS (
    SELECT o.target AS whose, p.ts, p.ts::HUGEINT + p.dur_ns AS ended
    FROM wait_parts p JOIN threads o ON {owns("o", "p")}
    WHERE p.kind = 'cpu' AND p.dur_ns >= {LEAST_NS}
), met AS MATERIALIZED (  -- A join by ranges alone is quick, one by target and ranges is not.
    SELECT * FROM (FROM gaps WHERE upto - since >= {LEAST_NS}) g
    JOIN waiting w ON w.ts < g.upto AND w.ended > g.since
), stretches AS (
    SELECT target, min(greatest(ts, since)) AS since, max(least(ended, upto)) AS upto
    FROM met WHERE whose = target GROUP BY target, met.since
), told AS (  -- A sample tells of throttling in a part of the stretch at least.
    SELECT s.* FROM stretches s
    ASOF JOIN throttled_times q ON s.target = q.target AND s.upto > q.since
    WHERE q.upto > s.since
), budgets AS (
    SELECT target, min(since) AS since, max(upto) AS upto,
        try_cast(sum(throttled_ns) AS HUGEINT) AS budget
    FROM (
        SELECT *, (upto::HUGEINT - 1 - min(since) OVER (PARTITION BY target))
            // {_POOL_NS} AS pool
        FROM throttled_times
    ) GROUP BY target, pool
), ranked AS (
    SELECT s.target, s.since, s.upto, b.budget - coalesce(sum(s.upto - s.since) OVER (
        PARTITION BY s.target, b.since ORDER BY s.upto - s.since DESC, s.since
        ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING), 0) AS left_ns
    FROM told s ASOF JOIN budgets b ON s.target = b.target AND s.upto > b.since
    WHERE s.upto <= b.upto
)
SELECT target, since, least(upto, since + left_ns) AS upto FROM ranked
WHERE left_ns >= {LEAST_NS}
"""

_PIECES = f"""
CREATE OR REPLACE TEMP TABLE throttled_pieces AS
WITH waiting AS (
    SELECT p.*, o.target AS whose, least(p.ts::HUGEINT + p.dur_ns, {LATEST}) AS ended
    FROM wait_parts p JOIN threads o ON {owns("o", "p")}
    WHERE p.kind = 'cpu' AND p.dur_ns >= {LEAST_NS}
), met AS MATERIALIZED (
    SELECT w.*, s.target, greatest(w.ts, s.since)::BIGINT AS since,
        least(w.ended, s.upto)::BIGINT AS upto
    FROM waiting w JOIN throttled_stretches s ON s.since < w.ended AND s.upto > w.ts
)
SELECT * EXCLUDE (whose, ended, target) REPLACE (NULL::VARCHAR AS detail) FROM met
WHERE whose = target AND upto - since >= {LEAST_NS}
"""

# The rest of such a wait lies before, between and after its pieces.
_SPLIT = f"""
CREATE OR REPLACE TEMP TABLE throttled_waits AS
WITH rest AS (
    SELECT *, coalesce(lag(upto) OVER by_wait, ts) AS after, since AS before
    FROM throttled_pieces WINDOW by_wait AS (PARTITION BY row, ts ORDER BY since)
    UNION ALL
    SELECT *, max(upto) OVER by_wait, {apart("ts", "-dur_ns")} FROM throttled_pieces
    WINDOW by_wait AS (PARTITION BY row, ts)
    QUALIFY row_number() OVER (PARTITION BY row, ts ORDER BY since) = 1
)
SELECT * EXCLUDE (since, upto) REPLACE (since AS ts, upto - since AS dur_ns, 'throttled' AS kind,
    NULL::INTEGER AS by_tid, NULL::INTEGER AS by_life, 'inferred' AS certainty)
FROM throttled_pieces
UNION ALL BY NAME
SELECT * EXCLUDE (since, upto, after, before) REPLACE (after AS ts, before - after AS dur_ns,
    kind::VARCHAR AS kind, certainty::VARCHAR AS certainty)
FROM rest WHERE before > after
"""


def split_throttled(trace: Trace) -> None:
    """Splits the waits for a CPU in `wait_parts` where the thread's cgroup was throttled.

    `wait_parts` has row, ts, dur_ns, tid, kind, by_tid, by_life and certainty, among others. The
    pieces of a wait follow one another and fill it. They are in the new table `throttled_waits`;
    `throttled_pieces` has row, ts and kind of the waits that they stand for. There are no such
    tables if `throttled_times` has no rows. Needs the tables `sleeps` and `threads`, too.
    """
    if not trace.rows("SELECT 1 FROM throttled_times LIMIT 1"):
        return
    trace.execute(_STRETCHES, _PIECES, _SPLIT)
    trace.drop("throttled_stretches")
