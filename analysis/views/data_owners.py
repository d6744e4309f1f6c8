"""Processes whose data a commit of the journal wrote while a thread waited for it.

The data of a wait is that of the write requests that the journal's disk served during it. Its
owner is the dirtier (`tracer.analysis.views.flushes`) of the most sectors. A request counts as a
whole for the bio at its first sector.
"""

from __future__ import annotations

from tracer.analysis.views.flushes import flushes
from tracer.analysis.views.requests import requests
from tracer.analysis.views.threads import owns
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
    SELECT w.row, w.ts, w.by_tid, r.dev, r.sector, r.nr_sector, r.queue_ns
    FROM waits w JOIN (FROM requests WHERE operation = 'write') r
        ON r.issue_ns < w.until AND r.complete_ns > w.ts
)
SELECT m.row, m.ts, m.dev, m.sector, m.nr_sector, m.queue_ns
FROM meanwhile m JOIN disks d ON m.by_tid = d.tid AND m.dev = d.disk
"""

_OWNERS = f"""
CREATE OR REPLACE TEMP TABLE data_owners AS
WITH bios AS (
    SELECT dev, sector, ts, any_value(dirtier) AS dirtier, any_value(target) AS target,
        any_value(container) AS container
    FROM flushes WHERE dirtier IS NOT NULL GROUP BY ALL
), owned AS (
    SELECT s.row, s.ts, b.dirtier, b.target, b.container, sum(s.nr_sector::HUGEINT) AS sectors,
        max(b.ts) AS moment
    FROM served_data s JOIN bios b ON s.dev = b.dev AND s.sector = b.sector AND s.queue_ns = b.ts
    GROUP BY ALL
), most AS (
    SELECT row, ts, unnest(arg_max({{'for_pid': dirtier, 'for_target': target,
        'for_container': container, 'moment': moment}}, (sectors, -dirtier)))
    FROM owned GROUP BY row, ts
)
SELECT m.row, m.ts, m.for_pid, p.comm AS for_comm, m.for_target, m.for_container
FROM most m LEFT JOIN threads p ON {owns("p", "m", "for_pid", "moment")}
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

    Needs `wait_parts`, `commit_writes` (`tracer.analysis.views.sync_parts`) and `threads`.
    """
    found = "SELECT 1 FROM wait_parts WHERE kind = 'sync' AND detail = 'data' LIMIT 1"
    if "dirty" not in trace.tables or not trace.rows(found):
        return
    requests(trace)
    flushes(trace)
    trace.execute(_SERVED)
    trace.execute(_OWNERS)
    trace.execute("DROP TABLE served_data")
