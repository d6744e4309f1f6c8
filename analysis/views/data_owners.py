"""Processes whose data a commit of the journal wrote while a thread waited for it.

The data of a wait is that of the write requests that the journal's disk served during it. Its
owner is the dirtier of the most sectors (`tracer.analysis.views.request_data`).
"""

from __future__ import annotations

from tracer.analysis.views.request_data import make_request_data
from tracer.analysis.views.requests import requests
from tracer.probes.schema import Column, Type
from tracer.store.trace import Trace

COLUMNS = (
    Column(
        "for_pid",
        Type.INT32,
        "sync, data: process that dirtied most of the data that the journal's disk wrote "
        "meanwhile; null: not known, or no such wait",
    ),
    Column("for_comm", Type.TEXT, "name of that process"),
    Column("for_target", Type.TEXT, "target of those who dirtied it; null: none, or several"),
    Column("for_container", Type.TEXT, "container of those who dirtied it; null: none, or several"),
)
"""Columns of a wait that name the owner of its data."""

_SERVED = """
CREATE OR REPLACE TEMP TABLE served_data AS
WITH waits AS (
    SELECT row, ts, ts::HUGEINT + dur_ns AS until, by_tid FROM wait_parts
    WHERE kind = 'sync' AND detail = 'data' AND dur_ns > 0
), disks AS (
    SELECT DISTINCT tid, disk FROM commit_writes
), meanwhile AS MATERIALIZED (
    SELECT w.row, w.ts, w.by_tid, r.row AS request, r.dev, r.sector, r.nr_sector, r.queue_ns
    FROM waits w JOIN (FROM requests WHERE operation = 'write') r
        ON r.issue_ns < w.until AND r.complete_ns > w.ts
)
SELECT m.row, m.ts, m.request, m.dev, m.sector, m.nr_sector, m.queue_ns
FROM meanwhile m JOIN disks d ON m.by_tid = d.tid AND m.dev = d.disk
"""

_OWNERS = """
CREATE OR REPLACE TEMP TABLE data_owners AS
WITH owned AS (
    SELECT s.row, s.ts, d.dirtier, d.target, d.container, sum(s.nr_sector::HUGEINT) AS sectors,
        arg_max(d.comm, d.ts) AS comm
    FROM served_data s JOIN request_data d USING (request)
    GROUP BY ALL
), most AS (
    SELECT row, ts, unnest(arg_max({'for_pid': dirtier, 'for_comm': comm, 'for_target': target,
        'for_container': container}, (sectors, -dirtier)))
    FROM owned GROUP BY row, ts
)
SELECT row, ts, for_pid, for_comm, for_target, for_container FROM most
"""

_NONE = """
CREATE OR REPLACE TEMP TABLE data_owners AS
SELECT NULL::BIGINT AS row, NULL::BIGINT AS ts, NULL::INT AS for_pid, NULL::VARCHAR AS for_comm,
    NULL::VARCHAR AS for_target, NULL::VARCHAR AS for_container LIMIT 0
"""


def make_no_owners(trace: Trace) -> None:
    """Makes the table data_owners without rows."""
    trace.execute(_NONE)


def make_data_owners(trace: Trace) -> None:
    """Makes the table data_owners: row, ts (of `wait_parts`), for_pid, for_comm, for_target, ...

    Needs `wait_parts` and `commit_writes` (`tracer.analysis.views.sync_parts`).
    """
    found = "SELECT 1 FROM wait_parts WHERE kind = 'sync' AND detail = 'data' LIMIT 1"
    if "dirty" not in trace.tables or not trace.rows(found):
        return
    requests(trace)
    trace.execute(_SERVED)
    make_request_data(trace, "served_data")
    trace.execute(_OWNERS)
    for table in ("served_data", "request_data"):
        trace.execute(f"DROP TABLE {table}")
