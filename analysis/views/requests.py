"""Block requests: issue joined with the queueing before it and the completion after it."""

from __future__ import annotations

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
    -- A flush has no place: the kernel logs sector 0 at its issue and -1 at its completion.
    SELECT *, CASE WHEN nr_sector = 0 THEN 0 ELSE sector END AS place FROM block
), issued AS (
    SELECT dev, place, sector, nr_sector, rwbs, pid, tid, comm, ts AS issue_ns,
           lead(ts) OVER same AS next_issue_ns,
           lag(ts) OVER same AS last_issue_ns
    FROM events WHERE event = 'issue'
    WINDOW same AS (PARTITION BY dev, place, nr_sector = 0 ORDER BY ts)
), queued AS (
    SELECT dev, place, nr_sector, ts FROM events WHERE event = 'bio_queue'
), inserted AS (
    SELECT dev, place, nr_sector, ts FROM events WHERE event = 'insert'
), completed AS (
    SELECT dev, place, nr_sector, ts, error FROM events WHERE event = 'complete'
), joined AS (
    SELECT i.*, q.ts AS queue_at, n.ts AS insert_at, c.ts AS complete_at, c.error AS error_at
    FROM issued i
    ASOF LEFT JOIN queued q
        ON i.dev = q.dev AND i.place = q.place AND (i.nr_sector = 0) = (q.nr_sector = 0)
        AND i.issue_ns >= q.ts
    ASOF LEFT JOIN inserted n
        ON i.dev = n.dev AND i.place = n.place AND (i.nr_sector = 0) = (n.nr_sector = 0)
        AND i.issue_ns >= n.ts
    ASOF LEFT JOIN completed c
        ON i.dev = c.dev AND i.place = c.place AND (i.nr_sector = 0) = (c.nr_sector = 0)
        AND i.issue_ns <= c.ts
), known AS (
    -- What lies beyond the neighbouring request of the same sector belongs to that one.
    SELECT *,
        CASE WHEN last_issue_ns IS NULL OR queue_at > last_issue_ns THEN queue_at END AS queue_ns,
        CASE WHEN last_issue_ns IS NULL OR insert_at > last_issue_ns THEN insert_at END
            AS insert_ns,
        CASE WHEN next_issue_ns IS NULL OR complete_at <= next_issue_ns THEN complete_at END
            AS complete_ns
    FROM joined
)
SELECT dev, sector, nr_sector, rwbs, {OPERATION} AS operation, pid, tid, comm,
    queue_ns, insert_ns, issue_ns, complete_ns,
    CASE WHEN complete_ns IS NOT NULL THEN error_at END AS error,
    issue_ns - coalesce(queue_ns, insert_ns) AS queue_latency_ns,
    complete_ns - issue_ns AS service_latency_ns
FROM known ORDER BY issue_ns
"""


def requests(trace: Trace) -> str:
    """Make the view `requests`; returns its name.

    Columns: dev, sector, nr_sector, rwbs, operation (read, write, discard, flush, other), pid,
    tid, comm; queue_ns (its first bio was queued), insert_ns (into the scheduler; null without
    one), issue_ns (to the driver), complete_ns; error; queue_latency_ns (queue to issue) and
    service_latency_ns (issue to completion), null where an end was not seen.

    Needs table block.
    """
    trace.require("block")
    trace.execute(_SQL)
    return VIEW
