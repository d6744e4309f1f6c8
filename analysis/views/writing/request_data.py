"""The data that write requests carry, and who dirtied it.

The data of a request is that of the bio that its first sector belongs to, as a whole. A bio may be
longer than a request: then its rest is the data of later requests, for which no bio is queued.
"""

from __future__ import annotations

from tracer.analysis.views.disks.requests import requests
from tracer.analysis.views.writing.flushes import flushes
from tracer.store.trace import Trace

_LONGEST = 1 << 20
"""Most sectors of a bio whose rest is looked for."""
_PIECE = 1 << 11
"""Sectors of the pieces of a device by which rests are joined with their bios."""

# A bio that one request took as a whole has no rest.
_DATA = """
CREATE OR REPLACE TEMP TABLE request_data AS
WITH asked AS (
    SELECT DISTINCT request, dev, sector, queue_ns, issue_ns FROM {requests}
), longer AS (
    SELECT dev, sector, sector::HUGEINT + nr_sector AS upto, ts, row FROM flushes f
    ANTI JOIN (FROM requests WHERE queue_ns IS NOT NULL) r
        ON f.dev = r.dev AND f.sector = r.sector AND f.ts = r.queue_ns
        AND r.nr_sector >= f.nr_sector
    WHERE nr_sector BETWEEN 1 AND {longest}
), pieces AS (
    SELECT *, unnest(range((sector // {piece})::BIGINT, ((upto - 1) // {piece})::BIGINT + 1))
        AS piece
    FROM longer
), rests AS (
    SELECT r.request, r.dev, arg_max(f.sector, (f.ts, f.row)) AS sector, max(f.ts) AS queue_ns
    FROM asked r JOIN pieces f ON f.dev = r.dev AND f.piece = (r.sector // {piece})::BIGINT
        AND f.ts <= r.issue_ns AND f.sector < r.sector AND f.upto > r.sector
    WHERE r.queue_ns IS NULL GROUP BY ALL
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


def make_request_data(trace: Trace, served: str) -> None:
    """Makes the table `request_data`: the data of write requests of files.

    `served` is a table or query with the columns request (`row` of the view `requests`), dev,
    sector, queue_ns and issue_ns; it may have a request several times. `request_data` has request,
    ts (when the bio was queued), dirtier, comm (the dirtier's name), target, container and
    dirtiers, as in `flushes`. The dirtier is null if no event tells it. The table is empty for a
    trace without the table dirty.
    """
    if "dirty" not in trace.tables or not trace.rows(f"SELECT 1 FROM {served} LIMIT 1"):
        trace.execute(_NONE)
        return
    requests(trace)
    flushes(trace)
    trace.execute(_DATA.format(requests=served, longest=_LONGEST, piece=_PIECE))
