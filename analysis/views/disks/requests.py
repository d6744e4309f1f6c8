"""Block requests: each issue joined with its queueing, insertion and completion."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from tracer.analysis.views.disks.request_entries import UNKNOWN, UNKNOWN_ERROR
from tracer.analysis.views.disks.request_pairing import (
    EVENT,
    FLUSH,
    KINDS,
    REQUEST,
    Pairing,
    in_batches,
)
from tracer.analysis.views.disks.volumes import make_partitions
from tracer.analysis.views.view import View, apart
from tracer.probes.events.block import OPERATIONS, OTHER
from tracer.probes.loss import OF_EVENTS
from tracer.probes.schema import DEV, Column, Type
from tracer.store.trace import Trace

VIEW = "requests"

_OPERATIONS = ("flush", "read", "write", "discard", "other")

_CASES = " ".join(
    f"WHEN regexp_matches(rwbs, '{form}') THEN '{name}'" for name, form in OPERATIONS.items()
)
OPERATION = f"CASE {_CASES} ELSE '{OTHER}' END"
"""The operation that an rwbs string names."""

_DEVICES = "request devices"
_TIMES = "request times"
_BATCH = 1 << 17

_MAKE_DEVICES = f"""
CREATE OR REPLACE TABLE "{_DEVICES}" AS
-- A bio to a partition becomes a request to its disk.
SELECT dev, dense_rank() OVER (ORDER BY coalesce(disk, dev)) AS device
FROM (SELECT DISTINCT coalesce(dev, '') AS dev FROM block) LEFT JOIN partitions USING (dev)
"""

_EVENTS = f"""
SELECT row, ts, list_position({list(KINDS)}, event) - 1 AS kind, device,
    -- The kernel logs no sector for a flush, or sector 0 at its issue and -1 at its completion.
    CASE WHEN nr_sector > 0 THEN list_position({list(_OPERATIONS)}, {OPERATION}) + 1
        WHEN {OPERATION} = 'flush' OR (event != 'complete' AND rwbs LIKE 'F%') THEN {FLUSH}
        ELSE 1 END AS operation,
    CASE WHEN nr_sector > 0 THEN sector ELSE 0 END AS sector, nr_sector AS sectors,
    coalesce(error, {UNKNOWN_ERROR}) AS error
FROM (
    SELECT * REPLACE (coalesce(dev, '') AS dev, coalesce(sector, 0) AS sector,
        coalesce(nr_sector, 0) AS nr_sector, coalesce(rwbs, '') AS rwbs) FROM block_rows
) JOIN "{_DEVICES}" USING (dev)
WHERE event IN {KINDS}
    -- A write with a flush before or after it ends with an additional completion without sectors.
    AND NOT (event = 'complete' AND nr_sector <= 0 AND {OPERATION} IN ('read', 'write', 'discard'))
ORDER BY row
"""

_GAPS = f"""
SELECT coalesce("from", 0), coalesce("to", 9223372036854775807) FROM loss
WHERE {OF_EVENTS} AND NOT contains(stream, 'target')
"""

# In a run, the oldest bio is assigned to the first issue, and so is the oldest insertion. A request
# that was inserted without a bio (for example the rest of a split bio) keeps its position.
_UNCROSSED = f"""
CREATE OR REPLACE TEMP TABLE "{_TIMES}" AS
WITH crossed AS (SELECT * FROM "{_TIMES}" SEMI JOIN "request runs" USING (run)
    WHERE queue_ns IS NOT NULL OR insert_ns IS NOT NULL),
queued AS (
    SELECT q.row, b.queue_ns FROM
        (SELECT row, run, row_number() OVER (PARTITION BY run ORDER BY first) AS n FROM crossed) q
        JOIN (SELECT run, queue_ns, row_number() OVER
            (PARTITION BY run ORDER BY began) AS n FROM crossed) b USING (run, n)
), inserted AS (
    SELECT q.row, b.insert_ns FROM
        (SELECT row, run, row_number() OVER (PARTITION BY run ORDER BY first) AS n
            FROM crossed WHERE insert_ns IS NOT NULL) q
        JOIN (SELECT run, insert_ns, row_number() OVER (PARTITION BY run ORDER BY insert_ns) AS n
            FROM crossed WHERE insert_ns IS NOT NULL) b USING (run, n)
)
SELECT t.* REPLACE (CASE WHEN q.row IS NULL THEN t.queue_ns ELSE q.queue_ns END AS queue_ns,
    coalesce(i.insert_ns, t.insert_ns) AS insert_ns)
FROM "{_TIMES}" t LEFT JOIN queued q USING (row) LEFT JOIN inserted i USING (row)
"""

_SQL = f"""
CREATE TEMP TABLE IF NOT EXISTS {VIEW} AS
SELECT coalesce(p.disk, b.dev) AS dev, sector, nr_sector, rwbs, {OPERATION} AS operation,
    pid, tid, comm, queue_ns, coalesce(again_ns, insert_ns) AS insert_ns, ts AS issue_ns,
    complete_ns, t.error,
    {apart("ts", "queue_ns")} AS queue_latency_ns,
    {apart("complete_ns", "ts")} AS service_latency_ns, row
FROM "{_TIMES}" t JOIN (SELECT * FROM block_rows WHERE event = 'issue') b USING (row)
    LEFT JOIN partitions p ON b.dev = p.dev
ORDER BY row
"""


def _build(trace: Trace) -> None:
    make_partitions(trace)
    trace.execute(_MAKE_DEVICES)
    pairing = Pairing(trace.rows(_GAPS))
    trace.execute(
        f'CREATE OR REPLACE TEMP TABLE "{_TIMES}" (began BIGINT, row BIGINT, first BIGINT,'
        " queue_ns BIGINT, insert_ns BIGINT, again_ns BIGINT, complete_ns BIGINT,"
        " error INTEGER, run BIGINT)"
    )
    events = (_events(batch) for batch in trace.batches(_EVENTS, _BATCH, beside=True))
    trace.append(_TIMES, map(_times, in_batches(pairing, events)))
    if pairing.crossed:
        trace.keep("request runs", pa.table({"run": sorted(pairing.crossed)}))
        trace.execute(_UNCROSSED)
        trace.drop("request runs")
    trace.execute(_SQL)
    trace.drop(_DEVICES, _TIMES)


def _events(batch: pa.RecordBatch) -> NDArray[np.void]:
    events = np.empty(batch.num_rows, EVENT)
    for name in EVENT.names or ():
        events[name] = batch.column(name).to_numpy(zero_copy_only=False)
    return events


def _times(requests: NDArray[np.void]) -> pa.Table:
    columns = {name: pa.array(requests[name]) for name in REQUEST.names or ()}
    for name in ("queue_ns", "insert_ns", "again_ns", "complete_ns"):
        columns[name] = pa.array(requests[name], mask=requests[name] == UNKNOWN)
    known = requests["error"] != UNKNOWN_ERROR
    columns["error"] = pa.array(requests["error"].astype(np.int32), mask=~known)
    return pa.table(columns)


REQUESTS = View(
    VIEW,
    "One row per block request, in order of issue.",
    (
        DEV,
        Column("sector", Type.UINT64, "first sector", "sectors"),
        Column("nr_sector", Type.INT64, "length", "sectors"),
        Column("rwbs", Type.TEXT, "operation and flags, as the kernel writes them"),
        Column("operation", Type.TEXT, "read, write, discard, flush or other"),
        Column("pid", Type.INT32, "process that issued it"),
        Column("tid", Type.INT32, "thread that issued it"),
        Column("comm", Type.TEXT, "name of that thread"),
        Column(
            "queue_ns", Type.INT64, "time at which the bio at its first sector was queued", "ns"
        ),
        Column(
            "insert_ns",
            Type.INT64,
            "time at which the I/O scheduler took it; null: it went past the scheduler",
            "ns",
        ),
        Column("issue_ns", Type.INT64, "time at which the driver last received it", "ns"),
        Column(
            "complete_ns",
            Type.INT64,
            "time of completion; null: not recorded, or it may belong to another request",
            "ns",
        ),
        Column("error", Type.INT32, "status of its completion; 0: no error"),
        Column(
            "queue_latency_ns",
            Type.INT64,
            "time from queue to issue; null: never queued (for example the rest of a split bio)",
            "ns",
        ),
        Column(
            "service_latency_ns",
            Type.INT64,
            "time from issue to completion; null: no completion is known",
            "ns",
        ),
        Column("row", Type.INT64, "row of that issue in the table block (rows are in order)"),
    ),
    needs=("block",),
    build=_build,
    example="SELECT operation, count(*), avg(service_latency_ns)/1e6 ms FROM requests GROUP BY 1",
)


def requests(trace: Trace) -> str:
    """Makes the view `requests` and returns its name. Columns and units: `REQUESTS`.

    Events are paired in the order in which they were recorded, by device (the disk, even if a bio
    names a partition), operation and first sector. A flush of the device's cache has no sector.

    - A completion ends the oldest request in flight of its length. Without one, it is taken as a
      part of the oldest longer request, and the rest of that request completes behind it. The last
      part ends the request. The request's error is the first one that is not 0. A completion ends
      no request if it is longer than all of them, or if it has no sectors although its operation
      has. If several requests fit, and events were lost since the oldest of them was issued, the
      completion cannot be assigned: none of these requests has one.
    - A request begins when it is inserted, or else when it is issued. It belongs to a bio that was
      queued earlier, that no other request took, and that was not merged into another request. If
      there are more such bios than requests, the latest bios are taken: the others failed before
      they became a request. If there are equally many, the first request takes the oldest bio.
      Inserted requests are issued before others. Inserts and issues of several inserted requests
      are paired in the same way as bios and requests. Requests that are never issued keep the bio
      that was the latest at their insertion.
    - If several requests wait at one sector, no event tells which of them is merged or grows at its
      front. The view assumes the request that was inserted last, or else the latest request.
    - One flush serves all bios without data that waited for a flush when it was issued. `queue_ns`
      is that of the latest of these bios. Flushes that are in flight together have one bio each
      if there are enough bios, like other requests.
    - A requeue sends back the request of its length that was issued last. The next insert and the
      next issue of this length belong to that request. Without such an issue, the next longer one
      does: the request has grown. The request is one row, for its last issue; a request that is
      not issued again has no row. If a part was completed before, the row has the remaining
      sectors and keeps the part's error.

    Needs the table block.
    """
    return REQUESTS.make(trace)
