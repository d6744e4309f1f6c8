"""Block requests: issue joined with the queueing before it and the completion after it."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from analysis.views.request_entries import UNKNOWN, UNKNOWN_ERROR
from analysis.views.request_pairing import (
    EVENT,
    FLUSH,
    KINDS,
    REQUEST,
    Pairing,
    in_batches,
)
from analysis.views.view import View, apart
from analysis.views.volumes import make_partitions
from probes.schema import DEV, Column, Type
from tracer.store.trace import Trace

VIEW = "requests"

_OPERATIONS = ("flush", "read", "write", "discard", "other")

OPERATION = """CASE
    WHEN regexp_matches(rwbs, '^F?W') THEN 'write'
    WHEN regexp_matches(rwbs, '^F?R') THEN 'read'
    WHEN regexp_matches(rwbs, '^F?D') THEN 'discard'
    WHEN rwbs LIKE 'F%' THEN 'flush'
    ELSE 'other' END"""
"""The operation that an rwbs string names (kernel: blk_fill_rwbs in block/blk-core.c)."""

_DEVICES = "request devices"
_TIMES = "request times"
_BATCH = 1 << 17

_MAKE_DEVICES = f"""
CREATE OR REPLACE TABLE "{_DEVICES}" AS
-- A bio of a partition becomes a request of its disk.
SELECT dev, dense_rank() OVER (ORDER BY coalesce(disk, dev)) AS device
FROM (SELECT DISTINCT coalesce(dev, '') AS dev FROM block) LEFT JOIN partitions USING (dev)
"""

_EVENTS = f"""
SELECT row, ts, list_position({list(KINDS)}, event) - 1 AS kind, device,
    -- The kernel logs no place of a flush, or sector 0 at its issue and -1 at its completion.
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
    -- The last of a write with a flush before or behind it is a completion of nothing.
    AND NOT (event = 'complete' AND nr_sector <= 0 AND {OPERATION} IN ('read', 'write', 'discard'))
ORDER BY row
"""

_GAPS = """
SELECT coalesce("from", 0), coalesce("to", 9223372036854775807) FROM loss
WHERE NOT contains(stream, 'target')
"""

# In a run the oldest bio goes to the first issue, and likewise the oldest insertion. A request
# that was inserted without a bio, as the rest of a split one, keeps its place among them.
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
    for requests in in_batches(pairing, events):
        trace.append(_TIMES, _times(requests))
    if pairing.crossed:
        trace.keep("request runs", pa.table({"run": sorted(pairing.crossed)}))
        trace.execute(_UNCROSSED)
        trace.execute('DROP TABLE "request runs"')
    trace.execute(_SQL)
    trace.execute(f'DROP TABLE "{_DEVICES}"')
    trace.execute(f'DROP TABLE "{_TIMES}"')


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
        Column(
            "complete_ns",
            Type.INT64,
            "when it was done; null: not seen, or not known which of several was done",
            "ns",
        ),
        Column("error", Type.INT32, "status of its completion; 0: no error"),
        Column(
            "queue_latency_ns",
            Type.INT64,
            "queued to issued; null: the rest of a bio that was split, for one, was never queued",
            "ns",
        ),
        Column("service_latency_ns", Type.INT64, "issued to completed; null: not seen", "ns"),
        Column("row", Type.INT64, "row of that issue in the table block, which is in order"),
    ),
    needs=("block",),
    build=_build,
    example="SELECT operation, count(*), avg(service_latency_ns)/1e6 ms FROM requests GROUP BY 1",
)


def requests(trace: Trace) -> str:
    """Make the view `requests`; returns its name. Columns and units: `REQUESTS`.

    Events are paired in the order in which they were recorded, by device (the disk, also of a bio
    of a partition), operation and first sector; a flush of the device's cache has no sector.

    - A completion ends the oldest request in flight of its length, or else of a greater length:
      then it is a part, and the rest completes behind it. The last part ends the request; its
      error is the first that is not 0. A completion that is longer than all of them, or has no
      sectors though its operation has, ends none. Where events were lost since the oldest of
      several that fit was issued, it is not known whose the completion is, and none of them has
      one.
    - A request begins when it is inserted, or else when it is issued. It belongs to a bio queued
      before that, which no other request took and which was not merged into another request. Of
      more such bios than requests, the latest are taken: the others failed before they became a
      request. Of as many, the oldest is the first request's. Inserted requests are issued before
      others; of several inserted ones, inserts and issues are paired like bios and requests.
      Those that are never issued keep the bio that was the latest when they were inserted.
    - No event tells which of several requests that wait at one sector is merged, or grows at its
      front. It is taken to be the latest inserted one, or else the latest one.
    - One flush serves all bios without data that waited for a flush when it was issued;
      `queue_ns` is the latest one's. Flushes in flight together have a bio each where there are
      as many, as requests have.
    - A requeue sends back the request of its length that was issued last. The next insert and
      the next issue of its length are its own; or else that of a longer request, into which it
      grew. It is one row, of its last issue; without another issue it has none. Where a part was
      done before, the row has the sectors that were left, and the part's error stays.

    Needs table block.
    """
    return REQUESTS.make(trace)
