"""Block requests: issue joined with the queueing before it and the completion after it."""

from __future__ import annotations

from analysis.views.volumes import make_partitions
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
        SELECT *, lead(event) OVER (PARTITION BY dev, place, placeless ORDER BY ts) AS then_event
        FROM events WHERE event IN ('issue', 'requeue', 'complete')
    ) WHERE event = 'issue' AND then_event IS DISTINCT FROM 'requeue'
), neighbours AS (
    SELECT *, lead(ts) OVER same AS next_issue, lag(ts) OVER same AS last_issue
    FROM issued WINDOW same AS (PARTITION BY dev, place, placeless ORDER BY ts)
), queued AS (
    -- A bio that was merged into a request of another sector does not begin one of its own.
    SELECT * FROM (
        SELECT *, lead(event) OVER (PARTITION BY dev, place, placeless ORDER BY ts) AS then_event
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
    issue_ns - queue_ns AS queue_latency_ns,
    complete_ns - issue_ns AS service_latency_ns
FROM known ORDER BY issue_ns
"""


def requests(trace: Trace) -> str:
    """Make the view `requests`; returns its name.

    Columns: dev, sector, nr_sector, rwbs, operation (read, write, discard, flush, other), pid,
    tid, comm; queue_ns (the bio at its first sector was queued), insert_ns (into the scheduler;
    null without one), issue_ns (to the driver, for the last time), complete_ns; error;
    queue_latency_ns (queue to issue) and service_latency_ns (issue to completion), null where an
    end was not seen (the rest of a split bio, for one, was never queued). `dev` is the disk, also
    where the bio was of a partition.

    Needs table block.
    """
    trace.require("block")
    make_partitions(trace)
    trace.execute(_SQL)
    return VIEW
