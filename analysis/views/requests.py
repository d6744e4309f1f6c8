"""Block requests: issue joined with the queueing before it and the completion after it."""

from __future__ import annotations

from analysis.views.view import View, apart
from analysis.views.volumes import make_partitions
from probes.schema import DEV, Column, Type
from tracer.store.trace import Trace

VIEW = "requests"

OPERATION = """CASE
    WHEN regexp_matches(rwbs, '^F?W') THEN 'write'
    WHEN regexp_matches(rwbs, '^F?R') THEN 'read'
    WHEN regexp_matches(rwbs, '^F?D') THEN 'discard'
    WHEN rwbs LIKE 'F%' THEN 'flush'
    ELSE 'other' END"""
"""The operation that an rwbs string names (kernel: blk_fill_rwbs in block/blk-core.c)."""

_SQL = f"""
CREATE TEMP TABLE IF NOT EXISTS {VIEW} AS
WITH events AS (
    -- A bio of a partition becomes a request of its disk. A flush has no place: the kernel logs
    -- sector 0 at its issue and -1 at its completion.
    SELECT b.ts, b.event, b.sector, b.nr_sector, b.rwbs, b.pid, b.tid, b.comm, b.error,
           coalesce(p.disk, b.dev) AS dev, nr_sector = 0 AS placeless,
           CASE WHEN nr_sector = 0 THEN 0 ELSE sector END AS place
    FROM block b LEFT JOIN partitions p ON b.dev = p.dev
), issued AS (
    -- An issue that the driver sent back is issued anew later: only that one counts.
    SELECT * FROM (
        SELECT *, lead(event) OVER (PARTITION BY dev, place, placeless ORDER BY ts, event)
                AS then_event
        FROM events WHERE event IN ('issue', 'requeue', 'complete')
    ) WHERE event = 'issue' AND then_event IS DISTINCT FROM 'requeue'
), neighbours AS (
    SELECT *, lead(ts) OVER same AS next_issue, lag(ts) OVER same AS last_issue
    FROM issued WINDOW same AS (PARTITION BY dev, place, placeless ORDER BY ts, event)
), queued AS (
    -- A bio that was merged into a request of another sector does not begin one of its own.
    SELECT * FROM (
        SELECT *, lead(event) OVER (PARTITION BY dev, place, placeless
                ORDER BY ts, event != 'bio_queue', event) AS then_event
        FROM events WHERE event IN ('bio_queue', 'backmerge', 'rq_merge')
    ) WHERE event = 'bio_queue'
        AND coalesce(then_event, '') NOT IN ('backmerge', 'rq_merge')
), inserted AS (
    SELECT * FROM events WHERE event = 'insert'
), completed AS (
    SELECT * FROM events WHERE event = 'complete'
), joined AS (
    SELECT i.*, q.ts AS queue_at, n.ts AS insert_at, c.ts AS complete_at, c.error AS error_at
    FROM neighbours i
    ASOF LEFT JOIN queued q ON i.dev = q.dev AND i.place = q.place
        AND i.placeless = q.placeless AND i.ts >= q.ts
    ASOF LEFT JOIN inserted n ON i.dev = n.dev AND i.place = n.place
        AND i.placeless = n.placeless AND i.ts >= n.ts
    ASOF LEFT JOIN completed c ON i.dev = c.dev AND i.place = c.place
        AND i.placeless = c.placeless AND i.ts <= c.ts
), known AS (
    -- What lies beyond the neighbouring request of the same sector belongs to that one.
    SELECT *, ts AS issue_ns,
        CASE WHEN last_issue IS NULL OR queue_at > last_issue THEN queue_at END AS queue_ns,
        CASE WHEN last_issue IS NULL OR insert_at > last_issue THEN insert_at END AS insert_ns,
        CASE WHEN next_issue IS NULL OR complete_at <= next_issue THEN complete_at END
            AS complete_ns
    FROM joined
)
SELECT dev, sector, nr_sector, rwbs, {OPERATION} AS operation, pid, tid, comm,
    queue_ns, insert_ns, issue_ns, complete_ns,
    CASE WHEN complete_ns IS NOT NULL THEN error_at END AS error,
    {apart("issue_ns", "queue_ns")} AS queue_latency_ns,
    {apart("complete_ns", "issue_ns")} AS service_latency_ns
FROM known ORDER BY issue_ns
"""


def _build(trace: Trace) -> None:
    make_partitions(trace)
    trace.execute(_SQL)


REQUESTS = View(
    VIEW,
    "One row a block request, by when it was issued.",
    (
        DEV,
        Column("sector", Type.UINT64, "first sector", "sectors"),
        Column("nr_sector", Type.INT64, "length", "sectors"),
        Column("rwbs", Type.TEXT, "operation and flags, as the kernel writes them"),
        Column("operation", Type.TEXT, "read, write, discard, flush or other"),
        Column("pid", Type.INT32, "process that issued it"),
        Column("tid", Type.INT32, "thread that issued it"),
        Column("comm", Type.TEXT, "name of that thread"),
        Column("queue_ns", Type.INT64, "when the bio at its first sector was queued", "ns"),
        Column("insert_ns", Type.INT64, "when the scheduler took it; null: there is none", "ns"),
        Column("issue_ns", Type.INT64, "when the driver got it, for the last time", "ns"),
        Column("complete_ns", Type.INT64, "when it was done; null: not seen", "ns"),
        Column("error", Type.INT32, "status of its completion; 0: no error"),
        Column(
            "queue_latency_ns",
            Type.INT64,
            "queued to issued; null: the rest of a bio that was split, for one, was never queued",
            "ns",
        ),
        Column("service_latency_ns", Type.INT64, "issued to completed; null: not seen", "ns"),
    ),
    needs=("block",),
    build=_build,
    example="SELECT operation, count(*), avg(service_latency_ns)/1e6 ms FROM requests GROUP BY 1",
)


def requests(trace: Trace) -> str:
    """Make the view `requests`; returns its name. Columns and units: `REQUESTS`.

    `dev` is the disk, also where the bio was of a partition. Needs table block.
    """
    return REQUESTS.make(trace)
