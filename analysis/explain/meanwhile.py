"""The requests that disks served while threads waited for storage."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pandas as pd
import pyarrow as pa

from tracer.analysis.views.calls_around import LATEST
from tracer.analysis.views.disks.requests import OPERATION, requests
from tracer.analysis.views.disks.rest_queues import REST_QUEUES
from tracer.analysis.views.disks.volumes import make_partitions
from tracer.analysis.views.writing.request_data import make_request_data
from tracer.probes.loss import OF_EVENTS
from tracer.probes.schema import Scope
from tracer.store.devices import Devices
from tracer.store.trace import Trace

STORAGE = ("disk", "fault", "sync", "dirty")
"""Kinds of waits for storage."""
_SECTOR_BYTES = 512
_MOST = 5

# A wait for a known device asks for the disks that serve it; another one for all of them. A request
# without a recorded completion lasts until the end of the next loss, or else of the recording.
_SERVED = f"""
CREATE OR REPLACE TEMP TABLE served AS
WITH gaps AS (
    SELECT coalesce("to", {LATEST}) AS over FROM loss
    WHERE {OF_EVENTS} AND NOT contains(stream, '{Scope.TARGET.value}')
), unfinished AS (
    SELECT r.row, coalesce(g.over, {LATEST}) AS until
    FROM (FROM requests WHERE complete_ns IS NULL) r ASOF LEFT JOIN gaps g ON r.issue_ns <= g.over
)
SELECT s.number, s.tid AS waiter, r.row AS request, r.dev, r.operation, r.pid, r.tid, r.comm,
    r.sector, r.nr_sector, r.queue_ns, r.issue_ns, coalesce(q.sector, r.sector) AS bio_sector,
    coalesce(r.queue_ns, q.queue_ns) AS bio_ns
FROM storage_waits s JOIN (
    SELECT r.*, coalesce(complete_ns, u.until) AS until
    FROM requests r LEFT JOIN unfinished u USING (row)
) r ON r.issue_ns < s.until AND r.until > s.ts AND (s.device IS NULL OR r.dev = s.device)
LEFT JOIN rest_queues q USING (row)
WHERE r.nr_sector >= 0
"""

# The block layer may hand a request to a thread of its own, which issues it (kernel: kblockd). Then
# the request is that of the thread that queued the bio.
_ASKED = f"""
CREATE OR REPLACE TEMP TABLE asked AS
WITH wanted AS (
    SELECT DISTINCT dev, operation, bio_sector, bio_ns FROM served WHERE bio_ns IS NOT NULL
), bios AS (
    SELECT w.*, any_value({{'pid': b.pid, 'tid': b.tid, 'comm': b.comm}}) AS by
    FROM block b LEFT JOIN partitions p ON b.dev = p.dev
    JOIN wanted w ON coalesce(p.disk, b.dev) = w.dev AND b.sector = w.bio_sector
        AND b.ts = w.bio_ns AND {OPERATION} = w.operation
    WHERE b.event = 'bio_queue' AND b.nr_sector > 0 GROUP BY ALL
)
SELECT s.* REPLACE (coalesce(b.by.pid, s.pid) AS pid, coalesce(b.by.tid, s.tid) AS tid,
    coalesce(b.by.comm, s.comm) AS comm)
FROM served s LEFT JOIN bios b USING (dev, operation, bio_sector, bio_ns)
"""

# A process whose data another thread writes is named if it alone dirtied the file, or if all who
# did share a container or a target.
_WHOM = """
if(w.dirtier != r.pid, coalesce('container ' || left(w.container, 12), 'target ' || w.target,
    if(w.dirtiers = 1, w.comm, NULL)), NULL)
"""

_SUMS = f"""
SELECT r.number, r.dev, r.operation, r.comm, {_WHOM} AS for_whom, r.tid = r.waiter AS own,
    count(*) AS requests,
    sum(r.nr_sector::HUGEINT * {_SECTOR_BYTES})::DOUBLE AS bytes
FROM asked r LEFT JOIN request_data w USING (request)
GROUP BY ALL ORDER BY r.number, bytes DESC, r.dev, r.operation, r.comm, for_whom
"""


def add_meanwhile(trace: Trace, segments: Sequence[dict[str, Any]]) -> None:
    """Adds to segments that wait for storage what the disks served in that time.

    The key `meanwhile` gets at most five entries, the most bytes first: dev, operation, comm (of
    the thread that queued the bios of the requests, or else issued them), for_whom (container,
    target or process whose data another thread wrote; null: its own, or not known), own (it is the
    segment's thread), requests, bytes.
    Other segments, and those of a trace without the table block, have none.
    """
    chosen = [one for one in segments if one["kind"] in STORAGE]
    for one in segments:
        one["meanwhile"] = []
    if not chosen or "block" not in trace.tables:
        return
    requests(trace)
    REST_QUEUES.make(trace)
    make_partitions(trace)
    trace.empty_if_missing("loss")
    devices = Devices(trace.manifest)
    asked = [
        (number, one["tid"], one["ts"], one["ts"] + one["dur_ns"], device)
        for number, one in enumerate(chosen)
        for device in _served_by(devices, one)
    ]
    types = {"number": pa.int64(), "tid": pa.int64(), "ts": pa.int64(), "until": pa.int64()}
    schema = pa.schema({**types, "device": pa.string()})
    columns = [
        pa.array(column, schema.field(number).type)
        for number, column in enumerate(zip(*asked, strict=True))
    ]
    trace.keep("storage_waits", pa.Table.from_arrays(columns, schema=schema))
    trace.execute(_SERVED)
    trace.execute(_ASKED)
    make_request_data(trace, "(FROM served WHERE operation = 'write')")
    found = trace.sql(_SUMS)
    trace.drop("storage_waits", "served", "asked", "request_data")
    rows = found.astype(object).where(found.notna(), None)
    for number, own in rows.groupby("number", sort=True):
        listed = own.drop(columns="number").head(_MOST).to_dict("records")
        chosen[int(str(number))]["meanwhile"] = [
            {**row, "requests": int(row["requests"]), "bytes": _bytes(row["bytes"])}
            for row in listed
        ]


def _bytes(value: Any) -> int | None:
    return None if value is None or pd.isna(value) else int(value)


def _served_by(devices: Devices, wait: dict[str, Any]) -> list[str | None]:
    """Returns the disks whose requests a wait may be for; [None]: all."""
    if wait["kind"] != "disk" or wait["detail"] is None:
        return [None]
    return [*(devices.requested(wait["detail"]) or [wait["detail"]])]
