"""Passes of the flusher, and the wakes that they belong to.

`wb_writeback()` (fs/fs-writeback.c) writes in a loop; `writeback_start` and `writeback_written`
enclose one pass of it. A wake is one run of `wb_workfn()`: the worker of a device (bdi and
write-back cgroup) wakes and makes passes until there is no work left. A wake that wrote something
has at least two passes if its last pass found nothing more.

A pass begins a wake in these cases:

- it is the first pass of its thread in the recording. A wake that began earlier is cut there;
- `writeback_pages_written`, the end of `wb_do_writeback()`, lies between it and the thread's
  previous pass. `wb_workfn()` repeats `wb_do_writeback()` if work was queued meanwhile. So the wake
  goes on if the next work was queued (`writeback_queue`) before that end, and not executed yet.
  Events that were lost since then may tell that it was executed;
- its device or its write-back cgroup is not that of the thread's previous pass;
- events were lost between it and the thread's previous event, because the end may be among them.

A pass ends with its `writeback_written`: the next event of its thread, with the same reason, device
and write-back cgroup. The end is not known if events were lost in between, because this `written`
may be that of a later pass.

Rows of one time keep their order in the trace. If the trace has no `writeback_pages_written`, for
example because it was recorded by an older version, the wakes are not known: null.
"""

from __future__ import annotations

from tracer.analysis.views.view import View, apart
from tracer.probes.schema import PID, TID, TS, Column, Type
from tracer.store.trace import Trace

VIEW = "passes"

# n: the place in order of time. executed: the last exec before, of the same device and cgroup.
# queued: the last queue before the end of the thread's previous wb_do_writeback().
_SQL = f"""
CREATE OR REPLACE TEMP TABLE {VIEW} AS
WITH lost AS (
    SELECT coalesce("from", -9223372036854775808) AS since,
        max(coalesce("to", 9223372036854775807)) OVER (
            ORDER BY coalesce("from", -9223372036854775808)) AS until
    FROM loss WHERE contains(stream, 'machine')
), lost_by AS (
    SELECT since, max(until) AS until FROM lost GROUP BY since
), numbered AS (
    SELECT ts, tid, pid, event, bdi, cgroup_ino, reason, nr_pages,
        row_number() OVER (ORDER BY ts, row) AS n,
        {{'bdi': coalesce(bdi, ''), 'cgroup': coalesce(cgroup_ino, 0)}} AS worker
    FROM writeback_rows WHERE event IN ('queue', 'exec', 'start', 'written', 'pages_written')
), works AS (
    SELECT *, max(n) FILTER (event = 'exec') OVER (PARTITION BY worker ORDER BY n
        ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING) AS executed
    FROM numbered
), of_threads AS (
    SELECT *, lag(event) OVER thread AS event_before, lag(n) OVER thread AS n_before,
        lag(ts) OVER thread AS ts_before,
        CASE WHEN lead(event) OVER thread = 'written' AND lead(worker) OVER thread = worker
            AND lead(reason) OVER thread IS NOT DISTINCT FROM reason
            THEN lead(ts) OVER thread END AS written,
        last_value(CASE WHEN event != 'pages_written' THEN worker END IGNORE NULLS) OVER (
            thread ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING) AS worker_before
    FROM works WHERE event != 'queue'
    WINDOW thread AS (PARTITION BY tid ORDER BY n)
), after_loss AS (
    SELECT t.*, l.until AS lost FROM of_threads t ASOF LEFT JOIN lost_by l ON t.ts >= l.since
), ended AS (
    SELECT t.*, CASE WHEN l.until >= t.ts THEN NULL ELSE written END AS "end"
    FROM after_loss t ASOF LEFT JOIN lost_by l ON coalesce(t.written, t.ts) >= l.since
), queues AS (
    SELECT e.n, q.n AS queued, q.ts AS queued_ts
    FROM (SELECT * FROM of_threads WHERE event = 'exec' AND event_before = 'pages_written') e
    ASOF JOIN (SELECT worker, n, ts FROM numbered WHERE event = 'queue') q
        ON e.worker = q.worker AND e.n_before >= q.n
), parted AS (
    SELECT l.*, event_before IS NULL
        OR event_before = 'pages_written' AND coalesce(queued <= coalesce(executed, 0), true)
        OR event != 'pages_written' AND worker_before IS DISTINCT FROM worker
        OR coalesce(lost >= least(ts_before, queued_ts), false) AS parts
    FROM ended l LEFT JOIN queues USING (n)
), ran AS (
    SELECT *, count(*) FILTER (parts) OVER (PARTITION BY tid ORDER BY n) AS run FROM parted
), known AS (
    SELECT count(*) > 0 AS known FROM numbered WHERE event = 'pages_written'
), placed AS (
    SELECT *, min(n) OVER (PARTITION BY tid, run) AS first,
        row_number() OVER (PARTITION BY tid, run ORDER BY n) = 1 AS begins,
        row_number() OVER (PARTITION BY tid, run, reason ORDER BY n) = 1 AS begins_reason
    FROM ran WHERE event = 'start'
)
SELECT ts, "end", tid, pid, bdi, reason, nr_pages,
    CASE WHEN known THEN dense_rank() OVER (ORDER BY first) END AS wake,
    CASE WHEN known THEN begins END AS begins,
    CASE WHEN known THEN begins_reason END AS begins_reason, lost
FROM placed, known ORDER BY n
"""

_BETWEEN = {"wakes": ("begins", "begins_reason"), "passes": ("true", "true")}
"""SQL conditions on the passes that begin a wake, or a pass: of any reason, and of one reason."""


def passes(trace: Trace) -> str:
    """Makes the view `passes` if it does not exist yet, and returns its name."""
    return PASSES.make(trace)


def gaps(view: str, between: str, where: str = "true") -> str:
    """Returns SQL for the times between successive starts on one device.

    `view`: the name of the view. `between`: wakes or passes. `where`: an SQL condition on passes.
    Columns: reason (`all`: starts of any reason), ns. Null: the first start of a device, or events
    were lost in between, so that starts may be missing.
    """
    any_reason, of_reason = _BETWEEN[between]

    def apart_of(window: str) -> str:
        before = f"lag(ts) OVER {window}"
        return f"CASE WHEN coalesce(lost < {before}, true) THEN {apart('ts', before)} END"

    return f"""
    SELECT 'all' AS reason, {apart_of("of_bdi")} AS ns FROM {view}
    WHERE {where} AND {any_reason} WINDOW of_bdi AS (PARTITION BY bdi ORDER BY ts)
    UNION ALL
    SELECT reason, {apart_of("of_reason")} FROM {view}
    WHERE {where} AND {of_reason} WINDOW of_reason AS (PARTITION BY bdi, reason ORDER BY ts)
    """


def _build(trace: Trace) -> None:
    trace.empty_if_missing("loss")
    trace.execute(_SQL)


PASSES = View(
    VIEW,
    "One row per pass of the flusher, with the wake that it belongs to.",
    (
        TS,
        Column("end", Type.INT64, "time of its writeback_written; null: not known", "ns"),
        TID,
        PID,
        Column("bdi", Type.TEXT, "backing device: MAJOR:MINOR of the whole disk, or a name"),
        Column("reason", Type.TEXT, "why: periodic, background, sync, vmscan, ..."),
        Column("nr_pages", Type.INT64, "pages that its work still had to write", "pages"),
        Column("wake", Type.INT64, "number of its wake; null: not recorded"),
        Column("begins", Type.BOOL, "it is the first pass of its wake"),
        Column("begins_reason", Type.BOOL, "it is the first pass of its reason in its wake"),
        Column("lost", Type.INT64, "end of the last loss of events before it; null: none", "ns"),
    ),
    needs=("writeback",),
    build=_build,
    example="SELECT bdi, wake, min(ts), count(*) FROM passes GROUP BY ALL ORDER BY 3",
)
"""Rows are in order of time."""
