"""Accesses of the page cache, inferred from system calls and faults if the kernel logs none.

Before Linux 6.10, no event tells which cached pages a call reads. The recorded calls have their
descriptors, offsets and results. `OpenFiles` follows them to open file descriptions and positions.
The file of a description is that whose pages the kernel adds to the cache during its calls, by the
thread that calls; or the one that was opened by the same name, or has this name at the end.

A call's pages are used when it returns: its own additions are logged before. A fault of a mapped
file has the name and offset in the mapping: a minor one maps the cached pages around it, a major
one reads its page first.

Bytes that calls read from files that are not known, or from places that are not known, are counted.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa

from tracer.analysis.views.reading.open_files import (
    CALLS,
    CURRENT_FOLDER,
    FORK,
    NOT_KNOWN,
    OPENING,
    THERE,
    TO_ANOTHER,
    OpenFiles,
)
from tracer.probes.events import page_cache
from tracer.store.manifest import page_bytes
from tracer.store.trace import Trace

EVENTS = "inferred_events"
"""Temporary table of inferred events, with the columns of page_cache, in order of time."""
UNPLACED = "unplaced_reads"
"""Temporary table of reads of unknown files or places: ts, pid, tid, bytes."""
CALL_READS, CALL_WRITES, CALL_ENDS = "call_reads", "call_writes", "call_ends"
"""Events that bracket a call during which its thread adds pages."""
HIT, MIXED = False, True
"""Values of `continues` of an inferred access: whether its call has added pages."""

_ACCESSES = (page_cache.ACCESS, page_cache.FAULT, page_cache.MAP)
_READING = (page_cache.SYNC, page_cache.ASYNC, page_cache.AHEAD)
_MADE_AGAIN = (-516, -512)
"""Results of an interrupted call that the kernel makes again. Kernel: ERESTARTSYS and the like in
include/linux/errno.h."""
_MOVING = ("read", "readv", "preadv2", "write", "writev", "pwritev2", "lseek", *TO_ANOTHER)
# All descriptors of one description are there when the first of them is looked at. Its position is
# not known if a call may have moved it during that look, or if nobody knows who shares it. Those of
# processes that are followed already are looked at last, and come first.
_CALLED = f"""
WITH calls AS (
    SELECT if(name = 'close', ts, ts + dur_ns) AS moment, pid, tid, name, ts, fd, "offset", length,
        flags, ret, row AS number
    FROM syscalls_rows WHERE name IN {CALLS} AND dur_ns >= 0 AND (ret >= 0 OR name = 'close')
        AND pid IS NOT NULL AND ts BETWEEN 0 AND {1 << 61} AND dur_ns <= {1 << 61}
), opening AS (
    -- A call that fails takes its name, too.
    SELECT row AS number, tid, ts, lag(ts, 1, -1) OVER (PARTITION BY tid ORDER BY ts) AS previous,
        fd, name
    FROM syscalls_rows WHERE name IN {OPENING} AND ts BETWEEN 0 AND {1 << 61}
        AND coalesce(ret NOT BETWEEN {_MADE_AGAIN[0]} AND {_MADE_AGAIN[1]}, true)
), named AS (
    -- A name that begins in another folder than the current one is not followed.
    SELECT c.number, o.path FROM opening c ASOF JOIN $opens o ON c.tid = o.tid AND c.ts >= o.ts
    WHERE o.ts > c.previous
        AND (starts_with(o.path, '/') OR c.name = 'open' OR c.fd = {CURRENT_FOLDER})
), held AS (
    SELECT *, coalesce(description, -row_number() OVER ()) AS key FROM $descriptors
    WHERE ts BETWEEN 0 AND {1 << 61} AND dur_ns BETWEEN 0 AND {1 << 61}
), looks AS (
    SELECT key, min(ts) AS ts, arg_min(ts + dur_ns, ts) AS until, arg_min(position, ts) AS position
    FROM held GROUP BY key
), moved AS (
    SELECT DISTINCT key FROM calls c JOIN held h ON c.pid = h.pid AND c.fd = h.fd
    JOIN looks l USING (key)
    WHERE c.name IN {_MOVING} AND c.ts <= l.until AND c.moment >= l.ts
)
SELECT moment, pid, tid, name, ts, fd, "offset", length, flags, ret, path, number
FROM calls LEFT JOIN named USING (number)
UNION ALL
SELECT l.ts, h.pid, h.pid, '{THERE}', l.ts, h.fd,
    if(m.key IS NULL AND h.description IS NOT NULL, l.position, NULL),
    h.description, h.flags, 0, h.path, -h.ts
FROM held h JOIN looks l USING (key) LEFT JOIN moved m USING (key)
UNION ALL
SELECT start_ns, pid, ppid, '{FORK}', start_ns, NULL, NULL, NULL, NULL, 0, NULL, -1
FROM processes WHERE tid = pid AND start_ns IS NOT NULL AND ppid IS NOT NULL
ORDER BY moment, number
"""
_NONE = {
    "opens": "(SELECT 0 AS tid, 0::BIGINT AS ts, '' AS path WHERE false)",
    "descriptors": "(SELECT 0::BIGINT AS ts, 0::BIGINT AS dur_ns, 0 AS pid, 0::BIGINT AS fd, "
    "0::BIGINT AS description, 0::BIGINT AS position, 0::BIGINT AS flags, '' AS path WHERE false)",
}
"""Tables without rows in place of those that a trace lacks."""
_TRANSFERS = """
CREATE OR REPLACE TEMP TABLE transfers (
    ts BIGINT, until BIGINT, pid INTEGER, tid INTEGER, opened BIGINT, "offset" BIGINT,
    bytes BIGINT, writes BOOLEAN, two BOOLEAN
)
"""
_ADDED = """
CREATE OR REPLACE TEMP TABLE call_additions AS
SELECT t.tid, t.ts, a.dev, a.ino, min(a."index") AS first, max(a."index" + a.pages) AS until,
    any_value(t.opened) AS opened, any_value(t."offset") AS "offset", any_value(t.bytes) AS bytes,
    any_value(t.two) AS two, min(a.ts) AS added
FROM (
    SELECT ts, tid, dev, ino, "index", coalesce(pages, 1) AS pages FROM page_cache
    WHERE event = 'add' AND dev IS NOT NULL AND ino IS NOT NULL AND "index" < $most
) a ASOF JOIN transfers t ON a.tid = t.tid AND a.ts >= t.ts
WHERE a.ts <= t.until
GROUP BY ALL
"""
# A call that reads metadata, too, adds pages of the device: most calls decide, and those calls
# first whose own pages were added. A call between two files adds pages of both, first those that it
# reads; if it adds pages of one file, this may be the other one.
_FILES = """
CREATE OR REPLACE TEMP TABLE opened_files AS
WITH votes AS (
    SELECT opened, dev, ino, count(*) AS calls,
        count_if("offset" >= 0 AND first * $page < "offset" + bytes AND until * $page > "offset")
            AS covered
    FROM (
        FROM call_additions QUALIFY NOT two
            OR (count(*) OVER (PARTITION BY tid, ts) > 1
                AND row_number() OVER (PARTITION BY tid, ts ORDER BY added) = 1)
    ) GROUP BY ALL
), seen AS (
    SELECT opened, arg_max({dev: dev, ino: ino}, (covered, calls)) AS file
    FROM votes GROUP BY opened
)
SELECT o.number AS opened, coalesce(s.file, n.file, f.file).dev AS dev,
    coalesce(s.file, n.file, f.file).ino AS ino, o.reads
FROM opened o LEFT JOIN seen s ON o.number = s.opened
LEFT JOIN (
    -- A name that stood for several files stands for none.
    SELECT place, path, if(count(DISTINCT s.file) = 1, any_value(s.file), NULL) AS file
    FROM opened o JOIN seen s ON o.number = s.opened WHERE path IS NOT NULL GROUP BY place, path
) n ON o.place = n.place AND o.path = n.path
LEFT JOIN (
    SELECT path, any_value({dev: dev, ino: ino}) AS file FROM files
    WHERE root IS NULL GROUP BY path HAVING count(*) = 1
) f ON o.path = f.path AND n.path IS NULL AND NOT o.moved AND NOT EXISTS (
    -- A name in a container is not one of the recorder's.
    FROM processes p WHERE p.pid = o.pid AND p.container_id IS NOT NULL
)
"""
_EVENTS = f"""
CREATE OR REPLACE TEMP TABLE {EVENTS} AS
WITH adding AS (SELECT DISTINCT tid, ts FROM call_additions), placed AS (
    SELECT t.*, f.dev, f.ino, a.ts IS NOT NULL AS adds
    FROM transfers t JOIN opened_files f USING (opened)
    LEFT JOIN adding a ON t.tid = a.tid AND t.ts = a.ts
), faults AS (
    SELECT p.ts, p.pid, p.tid, n.dev, n.ino, file_offset // $page AS page, kind, access,
        -- The window is aligned in memory, and ends with its page table, which has 8 bytes for each
        -- page. Kernel: do_fault_around() in mm/memory.c.
        greatest(0, page - (address // $page % $around)::BIGINT) AS around,
        least($around, $page // 8 - (address // $page % ($page // 8))::BIGINT + page - around)
            AS pages,
        lead(p.ts) OVER (PARTITION BY p.tid ORDER BY p.ts) AS next
    FROM page_faults p JOIN (
        SELECT path, any_value(dev) AS dev, any_value(ino) AS ino FROM files
        WHERE root IS NULL GROUP BY path HAVING count(*) = 1
    ) n ON p.file = n.path
    WHERE file_offset >= 0 AND kind IN ('minor', 'major')
), made AS (
    SELECT ts, pid, tid, if(writes, '{CALL_WRITES}', '{CALL_READS}') AS event, dev, ino,
        0 AS "index", 1 AS pages, NULL AS continues, 0 AS place
    FROM placed WHERE adds
    UNION ALL
    SELECT until, pid, tid, 'access', dev, ino, "offset" // $page,
        ("offset" + bytes + $page - 1) // $page - "offset" // $page, adds, 1
    FROM placed WHERE NOT writes AND dev IS NOT NULL AND "offset" >= 0
    UNION ALL
    SELECT until, pid, tid, '{CALL_ENDS}', dev, ino, 0, 1, NULL, 2 FROM placed WHERE adds
    UNION ALL
    SELECT ts, pid, tid, 'fault', dev, ino, page, 1, NULL, 3 FROM faults
    UNION ALL
    -- The kernel maps the pages around a fault, and does so again after it has read one.
    SELECT if(kind = 'minor', ts, coalesce(next - 1, ts + 1)), pid, tid, 'map', dev, ino,
        around, pages, NULL, 4
    FROM faults WHERE access IS DISTINCT FROM 'write'
)
SELECT ts, 0::SMALLINT AS cpu, pid, tid, event, dev, ino, "index"::UBIGINT AS "index",
    pages::BIGINT AS pages, continues
FROM made ORDER BY ts, place
"""
_UNPLACED = f"""
CREATE OR REPLACE TEMP TABLE {UNPLACED} AS
SELECT t.until AS ts, t.pid, t.tid, t.bytes
FROM transfers t JOIN opened_files f USING (opened)
WHERE NOT writes AND (dev IS NULL OR "offset" < 0) AND (dev IS NOT NULL OR f.reads)
"""
_LARGEST = 1 << 50
_AROUND_BYTES = 1 << 16
"""Bytes that the kernel maps around a fault. Kernel: fault_around_bytes in mm/memory.c."""
_BATCH = 1 << 16


def accesses_are_logged(trace: Trace) -> bool:
    """Returns whether the kernel of a recording logs the accesses of the page cache."""
    lacks = trace.manifest["capture"].get("missing", {}).get("page_cache", [])
    if page_cache.ACCESSES in lacks:
        return False
    found = f"SELECT 1 FROM page_cache WHERE event IN {_ACCESSES} LIMIT 1"
    return "page_cache" not in trace.tables or bool(trace.rows(found))


def read_ahead_is_logged(trace: Trace) -> bool:
    """Returns whether events tell which pages are read into the cache, also if none was read."""
    recorded = trace.manifest["capture"].get("formats") or {}
    reading = [event for event in page_cache.PROBE.events if event.label in _READING]
    if any(event.name in recorded for event in reading):
        return True
    return bool(trace.rows(f"SELECT 1 FROM page_cache WHERE event IN {_READING} LIMIT 1"))


def infer_accesses(trace: Trace) -> bool:
    """Makes the tables EVENTS and UNPLACED; returns False if the calls have no descriptors.

    Needs the tables page_cache and syscalls. Without page_faults, mapped files are left out.
    """
    if "syscalls" not in trace.tables:
        return False
    if not trace.rows("SELECT 1 FROM syscalls WHERE fd IS NOT NULL LIMIT 1"):
        return False
    for table in ("page_faults", "files", "processes"):
        trace.empty_if_missing(table)
    page = page_bytes(trace.manifest)
    _follow(trace)
    for query in (_ADDED, _FILES, _EVENTS, _UNPLACED):
        query = query.replace("$page", str(page)).replace("$most", str(_LARGEST))
        trace.execute(query.replace("$around", str(max(1, _AROUND_BYTES // page))))
    return True


def _follow(trace: Trace) -> None:
    """Makes the tables `transfers` and `opened` (number, reads, place, path, pid, moved)."""
    files = OpenFiles(trace.manifest["host"].get("machine", ""))
    trace.execute(_TRANSFERS)
    trace.append("transfers", _transfers(trace, files))
    opened = files.opened
    places = [one.name or (0, None) for one in opened]
    trace.keep(
        "opened",
        pa.table(
            {
                "number": pa.array([one.number for one in opened], pa.int64()),
                "reads": pa.array([one.opened or one.seeks for one in opened], pa.bool_()),
                "place": pa.array([place for place, _ in places], pa.int64()),
                "path": pa.array([path for _, path in places], pa.string()),
                "pid": pa.array([one.pid for one in opened], pa.int32()),
                "moved": pa.array([one.moved for one in opened], pa.bool_()),
            }
        ),
    )


def _transfers(trace: Trace, files: OpenFiles) -> Iterator[pa.Table]:
    """Yields the bytes that calls move between files and memory, and follows the files."""
    for rows in _batches(trace):
        found: list[tuple[Any, ...]] = []
        for at, pid, tid, name, ts, fd, offset, length, flags, ret, path, _ in rows:
            if name == FORK:
                files.fork(pid, tid)
                continue
            if name == THERE:
                files.there(pid, fd, offset, flags, path, length)
                continue
            moved = files.call(pid, name, fd, offset, length, flags, ret, path)
            if moved is not None:
                found.append(
                    (
                        ts,
                        at,
                        pid,
                        tid,
                        moved.opened,
                        moved.offset,
                        ret,
                        moved.writes,
                        name in TO_ANOTHER,
                    )
                )
        if found:
            names = ("ts", "until", "pid", "tid", "opened", "offset", "bytes", "writes", "two")
            columns = dict(zip(names, map(np.array, zip(*found, strict=True)), strict=True))
            yield pa.table(columns)


def _batches(trace: Trace) -> Iterator[list[tuple[Any, ...]]]:
    """Yields the calls and forks in the order in which they take effect."""
    query = _CALLED
    for table, none in _NONE.items():
        query = query.replace(f"${table}", table if table in trace.tables else none)
    for batch in trace.batches(query, _BATCH, beside=True):
        columns = [
            column.fill_null(NOT_KNOWN).to_pylist() if not pa.types.is_string(column.type)
            else column.to_pylist()
            for column in batch.columns
        ]  # fmt: skip
        yield list(zip(*columns, strict=True))
