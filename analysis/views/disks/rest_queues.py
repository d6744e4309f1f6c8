"""The queue time of the rest of a split bio: of a request that begins within the bio.

The block layer splits a bio that is too long for the device. No event tells that the rest of it is
queued. But the rest waits for the device since the whole bio does.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pandas as pd
import pyarrow as pa

from tracer.analysis.views.covering import last_cover, stops
from tracer.analysis.views.disks.requests import OPERATION, REQUESTS
from tracer.analysis.views.disks.volumes import make_partitions
from tracer.analysis.views.view import View
from tracer.probes.schema import Column, Type
from tracer.store.trace import Trace

VIEW = "rest_queues"

_RESTS = """
SELECT row, dev AS disk, operation, sector FROM requests
WHERE queue_ns IS NULL AND operation IN ('read', 'write') AND sector IS NOT NULL AND nr_sector > 0
    AND dev IS NOT NULL
"""
# A bio that one request took as a whole has no rest.
_LONGER = f"""
WITH bios AS (
    SELECT b.row, b.ts, coalesce(p.disk, b.dev) AS disk, {OPERATION} AS operation, sector, nr_sector
    FROM block_rows b LEFT JOIN partitions p ON b.dev = p.dev
    WHERE event = 'bio_queue' AND nr_sector > 0 AND sector IS NOT NULL
)
SELECT b.* FROM bios b ANTI JOIN (
    SELECT dev, operation, sector, queue_ns, max(nr_sector) AS nr_sector FROM requests
    WHERE queue_ns IS NOT NULL GROUP BY ALL
) r ON b.disk = r.dev AND b.operation = r.operation AND b.sector = r.sector
    AND b.ts = r.queue_ns AND r.nr_sector >= b.nr_sector
WHERE b.operation IN ('read', 'write')
"""
# The bio before a request is the next one backward in time. A rest has 0 sectors here.
_BACKWARD = f"""
WITH rests AS ({_RESTS}), longer AS ({_LONGER}), merged AS (
    SELECT row, disk, operation, sector, 0::BIGINT AS ts, 0::BIGINT AS nr_sector FROM rests
    UNION ALL
    SELECT row, disk, operation, sector, ts, nr_sector FROM longer
    SEMI JOIN rests USING (disk, operation)
)
SELECT dense_rank() OVER (ORDER BY disk, operation) AS place, row, sector, ts, nr_sector
FROM merged ORDER BY place, row DESC
"""
_UNKNOWN = -1


def _build(trace: Trace) -> None:
    REQUESTS.make(trace)
    make_partitions(trace)
    found, times = [np.zeros(0, np.int64)], [np.zeros(0, np.int64)]
    begins = [np.zeros(0, np.uint64)]
    for place in _places(trace):
        is_rest = (place["nr_sector"] == 0).to_numpy(bool)
        requests, earlier = place[is_rest], place[~is_rest]
        rows, sector = requests["row"].to_numpy(np.int64), requests["sector"].to_numpy(np.uint64)
        first = earlier["sector"].to_numpy(np.uint64)
        queued = last_cover(
            sector,
            stops(sector, np.ones(len(sector), np.int64)),
            np.searchsorted(-rows, -earlier["row"].to_numpy(np.int64)),
            first,
            stops(first, earlier["nr_sector"].to_numpy(np.int64)),
            np.arange(len(first)),
            _UNKNOWN,
        )
        told = queued != _UNKNOWN
        found.append(rows[told])
        times.append(earlier["ts"].to_numpy(np.int64)[queued[told]])
        begins.append(first[queued[told]])
    table = {"row": np.concatenate(found), "queue_ns": np.concatenate(times)}
    trace.keep(VIEW, pa.table({**table, "sector": np.concatenate(begins)}))


def _places(trace: Trace) -> Iterator[pd.DataFrame]:
    """Yields the rests and the longer bios of each disk and operation, the latest first."""
    if not trace.rows(f"SELECT 1 FROM ({_RESTS}) LIMIT 1"):
        return
    parts: list[pd.DataFrame] = []
    for batch in trace.batches(_BACKWARD):
        for place, part in batch.to_pandas().groupby("place", sort=False):
            if parts and parts[0]["place"].iloc[0] != place:
                yield pd.concat(parts)
                parts = []
            parts.append(part)
    if parts:
        yield pd.concat(parts)


REST_QUEUES = View(
    VIEW,
    "One row per read or write request that is the rest of a split bio: none was queued at its"
    " first sector, but it begins within an earlier bio of its device and operation.",
    (
        Column("row", Type.INT64, "row of its issue in the table block, as in requests"),
        Column("queue_ns", Type.INT64, "time at which the latest such bio was queued", "ns"),
        Column("sector", Type.UINT64, "first sector of that bio", "sectors"),
    ),
    needs=("block",),
    build=_build,
    example="SELECT avg(r.issue_ns - q.queue_ns)/1e6 ms FROM rest_queues q JOIN requests r"
    " ON q.row = r.row",
)
