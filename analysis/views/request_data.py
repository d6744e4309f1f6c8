"""The data that write requests carry, and who dirtied it.

The data of a request is that of the bio that its first sector belongs to, as a whole. A bio may be
longer than a request: then its rest is the data of later requests, for which no bio is queued.
"""

from __future__ import annotations

from tracer.analysis.views.flushes import flushes
from tracer.store.trace import Trace

_DATA = """
CREATE OR REPLACE TEMP TABLE request_data AS
WITH asked AS (
    SELECT DISTINCT request, dev, sector, queue_ns, issue_ns FROM {requests}
), rests AS (
    SELECT r.request, r.dev, arg_max(f.sector, (f.ts, f.row)) AS sector, max(f.ts) AS queue_ns
    FROM asked r JOIN flushes f ON f.dev = r.dev AND f.ts <= r.issue_ns
        AND f.sector < r.sector AND f.sector + f.nr_sector::UBIGINT > r.sector
    WHERE r.queue_ns IS NULL AND f.nr_sector > 0 GROUP BY ALL
), begun AS (
    SELECT request, dev, sector, queue_ns FROM asked WHERE queue_ns IS NOT NULL
    UNION ALL
    FROM rests
), bios AS (
    SELECT f.dev, f.sector, f.ts, any_value(f.dirtier) AS dirtier,
        any_value(f.dirtier_comm) AS comm, any_value(f.target) AS target,
        any_value(f.container) AS container, any_value(f.dirtiers) AS dirtiers
    FROM flushes f
    SEMI JOIN begun r ON f.dev = r.dev AND f.sector = r.sector AND f.ts = r.queue_ns
    -- Metadata, and blocks of a journal, are nobody's data.
    WHERE f.dirtier IS NOT NULL OR f.ino IS NOT NULL AND NOT contains(f.rwbs, 'M') GROUP BY ALL
)
SELECT r.request, b.* EXCLUDE (dev, sector)
FROM begun r JOIN bios b ON r.dev = b.dev AND r.sector = b.sector AND r.queue_ns = b.ts
"""

_NONE = """
CREATE OR REPLACE TEMP TABLE request_data AS
SELECT NULL::BIGINT AS request, NULL::BIGINT AS ts, NULL::INT AS dirtier, NULL::VARCHAR AS comm,
    NULL::VARCHAR AS target, NULL::VARCHAR AS container, NULL::INT AS dirtiers LIMIT 0
"""


def make_request_data(trace: Trace, requests: str) -> None:
    """Makes the table `request_data`: the data of write requests of files.

    `requests` is a table or query with the columns request (`row` of the view `requests`), dev,
    sector, queue_ns and issue_ns; it may have a request several times. `request_data` has request,
    ts (when the bio was queued), dirtier, comm (the dirtier's name), target, container and
    dirtiers, as in `flushes`. The dirtier is null if no event tells it. The table is empty for a
    trace without the table dirty.
    """
    if "dirty" not in trace.tables or not trace.rows(f"SELECT 1 FROM {requests} LIMIT 1"):
        trace.execute(_NONE)
        return
    flushes(trace)
    trace.execute(_DATA.format(requests=requests))
