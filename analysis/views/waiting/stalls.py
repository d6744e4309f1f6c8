"""Stalls: the times that a thread of a target waited for storage, as far as events show.

There are five kinds of evidence:

- throttle: the kernel put a thread to sleep that had dirtied pages (balance_dirty_pages). The time
  is the pause that the kernel set, to a millisecond. It is exact, except for a late wake-up.
- sync: a call that waits until data is written (fsync, msync, ...), or another call in which a file
  system synced (a write to an O_SYNC file). The time is the whole call, an upper bound.
- direct: another call, such as a read or a write, that began a direct transfer. The time is the
  whole call.
- read: any other call in which the thread queued a read of a device. The time is the whole call;
  the read may have been read-ahead that nobody waited for.
- major_fault: a fault that had to read. No event gives its time: null.

A throttle or a major fault within a call has its own row, beside the call's. Calls that only begin
transfers, for another call to wait for, count as neither sync, direct nor read: io_submit,
io_uring_enter, readahead, fadvise64, madvise and similar. An event after a call that did not
return, and before the thread's next call, belongs to that call.

Stalls are evidence, not a bound: `write_waits` has all times in which a job may have waited.

Stalls do not show waits for a read or a write-out that another thread began, for a lock or a
journal commit that waits for storage, or for requests of io_uring and libaio. They show no faults
if perf did not record major ones, and no kind whose table was not recorded.
"""

from __future__ import annotations

from tracer.analysis.views.calls_around import LATEST, make_calls_before
from tracer.analysis.views.calls_by_kind import SYNC
from tracer.analysis.views.context import COLUMNS, make_in_context
from tracer.analysis.views.disks.requests import OPERATION
from tracer.analysis.views.threads import make_threads, of_targets, owns
from tracer.analysis.views.view import View
from tracer.probes.schema import PID, TID, TS, Column, Type
from tracer.store.trace import Trace

_WITHOUT_WAIT = (
    *("io_submit", "io_uring_enter", "io_uring_setup"),
    *("readahead", "fadvise64", "madvise", "process_madvise"),
)
"""Calls that begin transfers for another call to wait for."""

_MOMENTS = f"""
CREATE OR REPLACE TEMP TABLE stall_moments AS
SELECT m.*, o.begun FROM (
    SELECT tid, ts, 'read' AS kind FROM block
    WHERE event = 'bio_queue' AND nr_sector > 0 AND {OPERATION} = 'read'
    UNION ALL
    SELECT tid, ts, CASE WHEN event = 'direct_start' THEN 'direct' ELSE 'sync' END
    FROM file_writes WHERE event IN ('direct_start', 'fsync_start', 'fsync')
) m JOIN mine o ON {owns("o", "m")}
"""

_EVENTS = f"""
CREATE OR REPLACE TEMP TABLE stall_events AS
WITH told AS (
    SELECT m.tid, c.ts, c.call, c.returned,
        bool_or(m.kind = 'sync') AS synced, bool_or(m.kind = 'direct') AS direct
    FROM stall_moments m ASOF JOIN calls_at_stalls c ON m.tid = c.tid AND m.ts >= c.ts
    -- A call of an earlier thread of the same number is over.
    WHERE m.ts <= c.returned AND c.ts >= m.begun AND c.call NOT IN {_WITHOUT_WAIT} GROUP BY ALL
), waits AS (
    SELECT s.ts, s.dur_ns, s.pid, s.tid, s.name AS call,
        CASE WHEN t.synced OR s.name IN {SYNC} THEN 'sync'
            WHEN t.direct THEN 'direct' ELSE 'read' END AS kind
    FROM (SELECT s.* FROM syscalls s SEMI JOIN mine o ON {owns("o", "s")}) s
    -- Of two calls of one time, take the one that make_calls_before chose.
    LEFT JOIN told t ON s.tid = t.tid AND s.ts = t.ts AND s.name = t.call
        AND coalesce(least(s.ts::HUGEINT + s.dur_ns, {LATEST}), {LATEST}) = t.returned
    WHERE t.tid IS NOT NULL OR s.name IN {SYNC}
)
SELECT ts, dur_ns, pid, tid, kind, call,
    CASE WHEN dur_ns IS NULL THEN 'unknown' ELSE 'upper bound' END AS certainty FROM waits
UNION ALL
SELECT ts, pause_ns, pid, tid, 'throttle', NULL, 'exact'
FROM dirty d SEMI JOIN mine o ON {owns("o", "d")}
WHERE event = 'balance_dirty_pages' AND pause_ns > 0
UNION ALL
SELECT ts, NULL, pid, tid, 'major_fault', NULL, 'unknown'
FROM page_faults f SEMI JOIN mine o ON {owns("o", "f")} WHERE kind = 'major'
ORDER BY ts, tid
"""


def _build(trace: Trace) -> None:
    for table in ("block", "file_writes", "dirty", "page_faults"):
        trace.empty_if_missing(table)
    make_threads(trace)
    trace.execute(f"CREATE OR REPLACE TEMP TABLE mine AS FROM threads WHERE {of_targets(trace)}")
    trace.execute(_MOMENTS)
    make_calls_before(trace, {"calls_at_stalls": "SELECT tid, ts FROM stall_moments"})
    trace.execute(_EVENTS)
    trace.drop("stall_moments", "calls_at_stalls", "mine")
    make_in_context(trace, "stall_events", "stalls")


STALLS = View(
    "stalls",
    "One row per time that a thread of a target waited for storage.",
    (
        TS,
        Column("dur_ns", Type.INT64, "how long; null: not known", "ns"),
        PID,
        TID,
        Column("kind", Type.TEXT, "throttle, sync, direct, read or major_fault"),
        Column("call", Type.TEXT, "the system call; null: outside of calls"),
        Column(
            "certainty",
            Type.TEXT,
            "exact: the pause that the kernel set; upper bound: the whole call; unknown: how long",
        ),
        *COLUMNS,
    ),
    needs=("processes", "syscalls"),
    build=_build,
    example="SELECT kind, certainty, count(*), sum(dur_ns)/1e9 s FROM stalls GROUP BY ALL",
)
