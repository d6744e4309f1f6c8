"""Waits for a CPU of targets that have used up a CPU quota: the parts that are not throttled.

`throttled.py` takes these waits as a whole, so they are split by the turns on their CPU only then.

The samples tell for how long a quota stopped threads, not which ones. So the parts are inferred,
unless the samples rule out that the thread was stopped: each sample that can tell of the time of
the wait is there, and tells of none. The kernel counts the time of a stop when it ends, and the
thread cannot run before. A sample is read before its own time, but after the time of the sample
before it. So it can tell of all the time since the last sample but one.
"""

from __future__ import annotations

import pyarrow as pa

from tracer.analysis.views.calls_around import LATEST
from tracer.analysis.views.view import apart
from tracer.analysis.views.waiting.cpu_turns import Turns
from tracer.analysis.views.waiting.throttled import LEAST_NS
from tracer.store.trace import Trace

_MOST = 1 << 16
"""Waits that are split at a time."""

# The first sample of a cgroup tells of no time, and none tells of the time after the last one.
_DOUBTS = f"""
CREATE OR REPLACE TEMP TABLE quota_doubts AS
WITH told AS (
    SELECT target, ts, max(value) FILTER (name = 'cgroup_throttled') AS value,
        count(*) FILTER (name = 'cgroup_throttled')
            >= count(*) FILTER (name = 'cgroup_throttled_time') AS whole
    FROM samples WHERE name IN ('cgroup_throttled', 'cgroup_throttled_time')
    GROUP BY target, ts
), placed AS (
    SELECT *, lag(ts) OVER by_time AS before, lag(ts, 2) OVER by_time AS long_before,
        lead(ts) OVER by_time AS following
    FROM told WINDOW by_time AS (PARTITION BY target ORDER BY ts)
)
SELECT target, since, max(upto) AS upto FROM (
    SELECT target, coalesce(long_before, -{LATEST}) AS since, ts AS upto
    FROM placed WHERE before IS NULL OR NOT whole OR coalesce(value > 0, true)
    UNION ALL
    SELECT target, coalesce(before, -{LATEST}), {LATEST} FROM placed WHERE following IS NULL
) GROUP BY target, since
"""

_RESTS = f"""
CREATE OR REPLACE TEMP TABLE quota_rests AS
WITH whole AS (
    SELECT * REPLACE (NULL::VARCHAR AS detail, kind::VARCHAR AS kind,
        certainty::VARCHAR AS certainty)
    FROM wait_parts ANTI JOIN throttled_pieces USING (row, ts, kind)
    WHERE kind = 'cpu' AND dur_ns >= {LEAST_NS}
    UNION ALL BY NAME
    FROM throttled_waits WHERE kind = 'cpu'
), rests AS (
    SELECT p.*, o.target, s.ran_cpu AS cpu, {apart("s.ts", "-s.dur_ns::HUGEINT")} AS ended,
        s.cpu IS DISTINCT FROM s.ran_cpu AS moved, false AS "left"
    FROM whole p JOIN off_cpu_rows s ON p.row = s.row JOIN threads o ON p.life = o.life
    WHERE o.target IN (SELECT target FROM throttled_times)
        AND s.ran_cpu >= 0 AND s.ran_tid IS DISTINCT FROM 0  -- Thread 0 is the idle thread.
), judged AS (
    SELECT r.*, moved OR coalesce(d.upto > r.ts, false) AS in_doubt
    FROM rests r ASOF LEFT JOIN quota_doubts d ON r.target = d.target AND r.ended > d.since
    WHERE r.ended IS NOT NULL
)
SELECT * EXCLUDE (target, moved)
    REPLACE (if(in_doubt, 'inferred', certainty) AS certainty)
FROM judged
"""

_TAKEN = """
DELETE FROM throttled_waits w USING quota_rests r
WHERE w.row = r.row AND w.ts = r.ts AND w.kind = 'cpu'
"""


def split_rests(trace: Trace, turns: Turns) -> None:
    """Splits what is left of waits for a CPU after `split_throttled`, by the turns on the CPU.

    The parts are in the table `throttled_waits`, and `throttled_pieces` has row, ts and kind of the
    waits in `wait_parts` that they stand for. Needs the tables that `split_throttled` needs.
    """
    if not trace.rows("SELECT 1 FROM throttled_times LIMIT 1"):
        return
    trace.execute(
        _DOUBTS,
        _RESTS,
        _TAKEN,
        "INSERT INTO throttled_pieces BY NAME SELECT row, ts, kind FROM quota_rests",
    )
    count = trace.rows("SELECT count(*) FROM quota_rests")[0][0]
    trace.append("throttled_waits", (_split(trace, turns, at) for at in range(0, count, _MOST)))
    trace.drop("quota_rests", "quota_doubts")


def _split(trace: Trace, turns: Turns, first: int) -> pa.Table:
    """Returns the next `_MOST` rests from a row on, split by who had the CPU."""
    rows = trace.arrow(
        f"SELECT * FROM quota_rests WHERE rowid >= {first} AND rowid < {first + _MOST}"
    ).combine_chunks()
    ended = rows["ended"].to_numpy()
    rows = rows.drop_columns("ended")
    for name in ("kind", "certainty"):
        place = rows.column_names.index(name)
        rows = rows.set_column(place, name, rows[name].dictionary_encode())
    return turns.split(rows, ended)
