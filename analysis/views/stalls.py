"""Stalls: each time that a thread of a target waited for storage, as far as events tell.

Five kinds of evidence, and what each gives:

- throttle: the kernel put a thread to sleep that had dirtied pages (balance_dirty_pages). The
  time is the pause that the kernel set, to a millisecond: exact, but for how late it woke.
- sync: a call that waits until data are written (fsync, msync, ...), or another in which a file
  system was asked to sync (a write to a file that is O_SYNC). The call's whole time: at most so.
- direct: another call, as a read or a write, in which a direct transfer began. The call's whole
  time.
- read: any other call in which its thread queued a read of a device. The call's whole time; it
  may have been read ahead only, and not waited for.
- major_fault: a fault that had to read. How long, no event tells: null.

A throttle or a major fault in a call is a row of its own, beside that of the call. Calls that only
begin transfers, for somebody to wait for later, count for none of sync, direct and read: io_submit,
io_uring_enter, readahead, fadvise64, madvise and their like. What happened after a call that did
not return, and before its thread's next one, was in it.

It is evidence, and no bound: `write_waits` has all that a job may have waited for.

What is not seen: who waits for a read or a write-out that another thread has begun, for a lock
or a journal's commit that waits for storage, for a request of io_uring or libaio; a fault, where
perf did not tell major ones; and kinds whose table was not recorded.
"""

from __future__ import annotations

from analysis.views.calls_around import LATEST, make_calls_before
from analysis.views.calls_by_kind import SYNC
from analysis.views.context import COLUMNS, make_in_context
from analysis.views.requests import OPERATION
from analysis.views.threads import make_threads, owns
from analysis.views.view import View
from probes.schema import PID, TID, TS, Column, Type
from tracer.store.trace import Trace

_WITHOUT_WAIT = (
    *("io_submit", "io_uring_enter", "io_uring_setup"),
    *("readahead", "fadvise64", "madvise", "process_madvise"),
)
"""Calls that begin transfers for somebody to wait for later."""

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
CREATE TEMP TABLE stall_events AS
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
    -- Of two calls of one time it is the one that make_calls_before has chosen.
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
    trace.execute("CREATE OR REPLACE TEMP TABLE mine AS FROM threads WHERE target IS NOT NULL")
    trace.execute(_MOMENTS)
    make_calls_before(trace, "SELECT tid, ts FROM stall_moments", "calls_at_stalls")
    trace.execute(_EVENTS)
    for table in ("stall_moments", "calls_at_stalls", "mine"):
        trace.execute(f"DROP TABLE {table}")
    make_in_context(trace, "stall_events", "stalls")


STALLS = View(
    "stalls",
    "One row each time that a thread of a target waited for storage.",
    (
        TS,
        Column("dur_ns", Type.INT64, "how long; null: not known", "ns"),
        PID,
        TID,
        Column("kind", Type.TEXT, "throttle, sync, direct, read or major_fault"),
        Column("call", Type.TEXT, "the system call; null: it was none"),
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
