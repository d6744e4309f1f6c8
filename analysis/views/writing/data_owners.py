"""Owners of the data that a commit of the journal wrote while a thread waited for it.

The data of a wait is that of the write requests that the journal's disk served during it
(`tracer.analysis.views.writing.request_data`). An owner is a process that dirtied data, with the
target and the container of all who dirtied it. A wait for data of several owners becomes one wait
for each of them: they share its time as they share the sectors, since the events do not tell which
request the journal's thread waited for at a time. The disk may have written the data in another
order.
"""

from __future__ import annotations

from tracer.analysis.views.disks.requests import requests
from tracer.analysis.views.writing.request_data import make_request_data
from tracer.probes.schema import Column, Type
from tracer.store.trace import Trace

COLUMNS = (
    Column(
        "for_pid",
        Type.INT32,
        "sync, data: process that last dirtied this part of the data that the journal's disk wrote "
        "meanwhile; null: not known, or no such wait",
    ),
    Column("for_comm", Type.TEXT, "name of that process"),
    Column("for_target", Type.TEXT, "target of those who dirtied it; null: none, or several"),
    Column("for_container", Type.TEXT, "container of those who dirtied it; null: none, or several"),
)
"""Columns of a wait that name the owner of its data."""

_LONGEST = 1 << 32
"""Sectors that no request has more of."""

# By their issue, the requests that a wait met lie between two numbers: the last one issued before
# its end, and the first one up to which a request was in flight when it began.
_SERVED = f"""
CREATE OR REPLACE TEMP TABLE served_data AS
WITH disks AS (
    SELECT tid, disk FROM commit_writes
    UNION
    SELECT tid, coalesce(p.disk, j.dev) FROM journal j LEFT JOIN partitions p USING (dev)
), waits AS (
    SELECT row, ts, dur_ns, (ts::HUGEINT + dur_ns)::BIGINT AS until, d.disk
    FROM sync_waits s JOIN disks d ON s.by_tid = d.tid
    WHERE kind = 'sync' AND detail = 'data' AND dur_ns > 0
        AND ts::HUGEINT + dur_ns < {1 << 63}
), writes AS (
    SELECT r.row AS request, dev, sector, nr_sector, queue_ns, issue_ns, complete_ns,
        row_number() OVER by_issue AS number, max(complete_ns) OVER by_issue AS latest
    FROM requests r WHERE operation = 'write' AND complete_ns IS NOT NULL
    WINDOW by_issue AS (PARTITION BY dev ORDER BY issue_ns, row ROWS UNBOUNDED PRECEDING)
), issued AS (
    SELECT dev, issue_ns, max(number) AS number FROM writes GROUP BY ALL
), done AS (
    SELECT dev, latest, max(number) AS number FROM writes GROUP BY ALL
), met AS (
    SELECT w.*, unnest(range(coalesce(f.number, 0) + 1, l.number + 1)) AS number
    FROM waits w ASOF JOIN issued l ON w.disk = l.dev AND w.until > l.issue_ns
    ASOF LEFT JOIN done f ON w.disk = f.dev AND w.ts >= f.latest
)
SELECT m.row, m.ts, m.dur_ns, w.* EXCLUDE (complete_ns, number, latest)
FROM met m JOIN writes w ON m.disk = w.dev AND m.number = w.number
WHERE w.complete_ns > m.ts AND w.issue_ns < m.until
"""

# The largest part comes first. The ends of the parts are rounded, so that they add up.
_OWNERS = f"""
CREATE OR REPLACE TEMP TABLE data_owners AS
WITH owned AS (
    SELECT s.row, s.ts, s.dur_ns, d.dirtier, d.comm, d.target, d.container,
        sum(least(s.nr_sector, {_LONGEST})::HUGEINT) AS sectors
    FROM served_data s JOIN request_data d USING (request) WHERE s.nr_sector > 0
    GROUP BY ALL
), shared AS (
    SELECT *, count(*) OVER of_wait AS owners, sum(sectors) OVER of_wait AS whole,
        sum(sectors) OVER (PARTITION BY row, ts ORDER BY sectors DESC, dirtier NULLS LAST,
            comm NULLS LAST, target NULLS LAST, container NULLS LAST
            ROWS UNBOUNDED PRECEDING) AS upto
    FROM owned WINDOW of_wait AS (PARTITION BY row, ts)
), ends AS (
    SELECT *, dur_ns * (upto - sectors) // whole AS "from", dur_ns * upto // whole AS "to"
    FROM shared
)
SELECT row, ts AS began, CAST(ts + "from" AS BIGINT) AS ts, CAST("to" - "from" AS BIGINT) AS dur_ns,
    owners > 1 AS shared, dirtier AS for_pid, comm AS for_comm, target AS for_target,
    container AS for_container
FROM ends WHERE "to" > "from"
"""

_SPLIT = """
CREATE OR REPLACE TEMP TABLE sync_waits AS
SELECT w.* REPLACE (coalesce(d.ts, w.ts) AS ts, coalesce(d.dur_ns, w.dur_ns) AS dur_ns,
    if(d.shared, 'inferred', w.certainty) AS certainty)
FROM sync_waits w
LEFT JOIN data_owners d ON w.row = d.row AND w.ts = d.began AND w.detail = 'data'
"""

_NONE = """
CREATE OR REPLACE TEMP TABLE data_owners AS
SELECT NULL::BIGINT AS row, NULL::BIGINT AS ts, NULL::INT AS for_pid, NULL::VARCHAR AS for_comm,
    NULL::VARCHAR AS for_target, NULL::VARCHAR AS for_container LIMIT 0
"""


def make_no_owners(trace: Trace) -> None:
    """Makes the table data_owners without rows."""
    trace.execute(_NONE)


def split_by_owner(trace: Trace) -> None:
    """Splits the waits for data in `sync_waits` by the owners of the data.

    The parts of a wait follow one another and fill it. Makes the table data_owners: row, ts (of the
    new `sync_waits`), for_pid, for_comm, for_target, for_container. Needs `sync_waits`,
    `commit_writes` and `partitions` (`tracer.analysis.views.waiting.sync_parts`).
    """
    found = "SELECT 1 FROM sync_waits WHERE kind = 'sync' AND detail = 'data' LIMIT 1"
    if "dirty" not in trace.tables or not trace.rows(found):
        return
    requests(trace)
    trace.execute(_SERVED)
    make_request_data(trace, "served_data")
    trace.execute(_OWNERS)
    trace.execute(_SPLIT)
    trace.drop("served_data", "request_data")
