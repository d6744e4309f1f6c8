"""Uses of the page cache: the effect of each of its events, in pages.

- accessed: pages that a call reads, that a fault touches, or that are mapped around a fault. The
  latter (`mapped`) count when a thread maps them for the first time, used or not. A row with counts
  below 0 takes back those of pages that turn out not to have been there, at the time of their use.
- missed: those of them that the call or fault itself had to bring in.
- read: all pages that calls and faults brought in. Those that are not missed are read ahead.
- written: pages that came into the cache otherwise, mostly to be written to.
- unused: pages read ahead that left the cache, or were there at the end, before anybody used them.
- evicted: pages that reclaim took out of the cache; removed: pages taken out for another reason
  (the file was truncated or removed, or somebody asked for it).
- refaulted: pages read that had been evicted before.

A page that was in the cache since before the recording counts as a hit. Pages of files that are
longer than 1 TiB are not followed.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import chain

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from tracer.analysis.views.calls_around import LATEST
from tracer.analysis.views.calls_by_kind import LOOKUPS, READ
from tracer.analysis.views.context import COLUMNS, PASS, make_in_context
from tracer.analysis.views.disks.volumes import bios_on_one_level
from tracer.analysis.views.lives import Lives, lives_of
from tracer.analysis.views.reading.file_numbers import FileNumbers
from tracer.analysis.views.reading.held_back import BY_KERNEL, OF_DATA, held_back
from tracer.analysis.views.reading.inferred_accesses import (
    EVENTS as INFERRED,
)
from tracer.analysis.views.reading.inferred_accesses import (
    UNPLACED,
    accesses_are_logged,
    infer_accesses,
    read_ahead_is_logged,
)
from tracer.analysis.views.reading.page_keys import with_keys, with_numbers
from tracer.analysis.views.reading.page_states import (
    BEGIN,
    BIO,
    COUNTS,
    END,
    EVENT,
    KINDS,
    NOTHING,
    RETURN,
    USE,
    WAIT,
)
from tracer.analysis.views.reading.page_tracking import PageTracking
from tracer.analysis.views.reading.written_mappings import written_folios
from tracer.analysis.views.threads import make_threads
from tracer.analysis.views.view import View
from tracer.analysis.views.waiting.waits import WAITS, waits
from tracer.probes.events.page_cache import AHEAD, ASYNC, SYNC
from tracer.probes.proc import KTHREADD
from tracer.probes.schema import DEV, INO, Column, Type
from tracer.store.devices import IN_MEMORY
from tracer.store.manifest import page_bytes
from tracer.store.trace import Trace

VIEW = "page_uses"
_EVENTS = "page_use_events"
IN_CONTEXT = "page_uses_in_context"
"""The rows of the view with the pages of each use: row, file, kind, first, pages."""
SECTOR = 512

_LARGEST_FILE = 1 << 28
_MOST_PAGES = 1 << 29
"""Pages that are followed: of the largest file, and of all files."""

_FILES = f"""
CREATE OR REPLACE TEMP TABLE page_files AS
WITH named AS (
    SELECT dev, ino, count(*) AS events,
        -- A call may want more pages than the file has, but the first one is there.
        max("index"::HUGEINT + if(event IN ('add', 'delete', 'map'), coalesce(pages, 1), 1)) AS seen
    FROM $events ANTI JOIN memory_devices USING (dev)
    WHERE dev IS NOT NULL AND ino IS NOT NULL AND "index" IS NOT NULL
        AND event NOT IN ('{SYNC}', '{ASYNC}', '{AHEAD}')
    GROUP BY ALL
), sized AS (
    SELECT n.*, greatest(seen, coalesce(f.size::HUGEINT + $page - 1, 0) // $page) AS pages
    FROM named n LEFT JOIN (
        SELECT dev, ino, max(size) AS size FROM files WHERE root IS NULL GROUP BY ALL
    ) f ON n.dev = f.dev AND n.ino = f.ino
), placed AS (
    SELECT *, sum(pages) OVER (ORDER BY events DESC, dev, ino ROWS UNBOUNDED PRECEDING) AS upto
    FROM sized WHERE pages <= {_LARGEST_FILE}
)
SELECT row_number() OVER (ORDER BY events DESC, dev, ino) - 1 AS file, dev, ino,
    (upto - pages)::BIGINT AS base, pages::BIGINT AS pages
FROM placed WHERE upto <= {_MOST_PAGES}
"""

_ACCESSES_TOO = f"""
(SELECT event, dev, ino, "index", pages FROM page_cache UNION ALL
SELECT if(event = 'access', 'map', event), dev, ino, "index", if(event = 'map', 1, pages)
FROM {INFERRED} WHERE event IN ('access', 'fault', 'map'))
"""
"""The events that tell how long files are. An inferred access ends within its file."""

# DuckDB makes a join of an IN with five values or more, and a join by several threads loses the
# order of the rows. The condition with list_position stays a filter, which keeps it.
_ROWS = f"""
SELECT ts, list_position({list(KINDS)}, event) - 1 AS kind, coalesce(pid, 0) AS pid, tid, dev, ino,
    least("index", {1 << 52})::BIGINT AS "index", coalesce(pages, 1) AS pages,
    coalesce(continues::TINYINT, -1) AS continues
FROM page_cache WHERE "index" IS NOT NULL AND list_position({list(KINDS[:BIO])}, event) > 0
"""

_INFERRED = f"""
SELECT ts, list_position({list(KINDS)}, event) - 1 AS kind, coalesce(pid, 0) AS pid, tid, dev, ino,
    least("index", {1 << 52})::BIGINT AS "index", pages, coalesce(continues::TINYINT, -1)
        AS continues
FROM {INFERRED}
"""
_UNPLACED = f"SELECT ts, coalesce(pid, 0) AS pid, tid, bytes AS unplaced FROM {UNPLACED}"

_BIOS = f"""
SELECT ts, {BIO} AS kind, coalesce(pid, 0) AS pid, tid, nr_sector * {SECTOR} AS pages,
    0 AS continues
FROM block WHERE {OF_DATA} AND NOT {BY_KERNEL} AND $once
"""
_BRACKETS = f"""
SELECT ts, if(ends_with(event, '_begin'), {BEGIN}, {END}) AS kind, coalesce(pid, 0) AS pid, tid,
    0 AS pages, 0 AS continues
FROM reclaim WHERE ends_with(event, '_begin') OR ends_with(event, '_end')
"""
# A call that looks up names waits for no pages of files.
_WAITS = f"""
SELECT ts, {WAIT} AS kind, coalesce(pid, 0) AS pid, tid, dur_ns AS pages,
    (kind = 'disk' AND detail IS NOT NULL)::INTEGER AS continues
FROM waits
WHERE dur_ns > 0 AND (kind = 'fault' OR kind = 'disk' AND coalesce(call NOT IN {LOOKUPS}, true))
"""
_AGAIN = -11  # -EAGAIN of Linux: the call does not wait for the device
_RETURNS = f"""
SELECT try_cast(ts::HUGEINT + dur_ns AS BIGINT) AS ts, {RETURN} AS kind, coalesce(pid, 0) AS pid,
    tid, ts AS "index", ret AS pages, length AS asked, "offset"
FROM syscalls WHERE list_position({list(READ)}, name) > 0
    AND (ret > 0 OR ret = {_AGAIN}) AND dur_ns >= 0
"""
_RECLAIMERS = f"""
SELECT DISTINCT tid::BIGINT AS tid, coalesce(start_ns, {-LATEST}) AS ts FROM processes
WHERE tid > 0 AND (starts_with(comm, 'kswapd') OR starts_with(comm, 'kdamond'))
    -- A program can have such a name; an imported trace may not tell parents.
    AND coalesce(ppid, {KTHREADD}) = {KTHREADD}
"""

_MADE = f"""
CREATE OR REPLACE TEMP VIEW {VIEW} AS
SELECT u.ts, nullif(u.pid, 0) AS pid, nullif(u.tid, 0) AS tid, u.by_pid, u.by_tid, f.dev, f.ino,
    -- A file that was made after this use has the number of the one that was used.
    if(n.born_ns > u.ts, NULL, n.path) AS path,
    $counts,
    CASE WHEN u.evicted + u.removed > 0 THEN if(u.brought_by = 0, u.target, b.target) END
        AS brought_by,
    $inferred AS inferred, u.comm, u.role, u.target, u.container, u.phase, u.stage, u.epoch, u.step,
    u.pass
FROM {IN_CONTEXT} u LEFT JOIN page_files f USING (file) LEFT JOIN threads b ON u.brought_by = b.life
LEFT JOIN (FROM files WHERE root IS NULL) n ON f.dev = n.dev AND f.ino = n.ino
"""


def _in_memory(trace: Trace) -> pa.Table:
    """Returns the devices (dev) whose files are in memory only and never read from a disk.

    Those of shared memory and of a container's tmpfs are mounted nowhere that the recorder sees.
    The kernel adds no pages to them by the page cache's event.
    """
    kinds = {mount["dev"]: mount["type"] for mount in trace.manifest.get("mounts", [])}
    comes = ("add", SYNC, ASYNC, AHEAD)
    devices = trace.rows(
        f"SELECT dev, bool_or(event IN {comes}) FROM page_cache WHERE dev IS NOT NULL GROUP BY dev"
    )
    found = [
        dev
        for dev, added in devices
        if (kinds[dev] in IN_MEMORY if dev in kinds else dev.startswith("0:") and not added)
    ]
    return pa.table({"dev": pa.array(found, pa.string())})


def _build(trace: Trace) -> None:
    for table in ("files", "block", "reclaim", "processes", "phases"):
        trace.empty_if_missing(table)
    page = page_bytes(trace.manifest)
    trace.keep("memory_devices", _in_memory(trace))
    make_threads(trace)
    inferred = not accesses_are_logged(trace) and infer_accesses(trace)
    named = _ACCESSES_TOO if inferred else "page_cache"
    trace.execute(_FILES.replace("$page", str(page)).replace("$events", named))
    files = trace.arrow("SELECT dev, ino, base, pages FROM page_files ORDER BY file")
    lives = lives_of(trace)
    reclaimers = (column.to_numpy() for column in trace.arrow(_RECLAIMERS).columns)
    tracking = PageTracking(
        files["base"].to_numpy(), files["pages"].to_numpy(), page, lives.keys,
        lives.keys_of(*reclaimers), read_ahead_is_logged(trace), inferred,
        bool(trace.manifest.get("kernel", {}).get("maps_folios")),
    )  # fmt: skip
    numbers = FileNumbers(files)
    others = _others(trace, numbers, page)
    if inferred:
        others = _with_accesses(trace, numbers, others)
    counts = ", ".join(f"{name} BIGINT" for name in COUNTS)
    trace.execute(
        f"CREATE OR REPLACE TEMP TABLE {_EVENTS} (ts BIGINT, pid INTEGER, tid INTEGER,"
        " by_pid INTEGER, by_tid INTEGER, used BIGINT, file BIGINT, kind TINYINT, first BIGINT,"
        f" pages BIGINT, brought_by INTEGER, {counts}, row BIGINT)"
    )
    returns = _Returns(trace, not inferred)
    events = _in_order(trace, numbers, lives, others, returns)
    uses = chain(_used(tracking, events, lives), [_unplaced(trace)] if inferred else [])
    trace.append(_EVENTS, _numbered(uses))
    make_in_context(trace, _EVENTS, IN_CONTEXT, passes=True, lived="used")
    evidence = {"disk_bytes": "block", "wait_ns": "off_cpu"}
    missing = {name for name, table in evidence.items() if table not in trace.tables}
    known = (f"NULL::BIGINT AS {n}" if n in missing else f"u.{n}" for n in COUNTS)
    made = _MADE.replace("$counts", ", ".join(known))
    trace.execute(made.replace("$inferred", str(inferred)))


def _with_accesses(trace: Trace, files: FileNumbers, others: NDArray[np.void]) -> NDArray[np.void]:
    """Returns the rare events with those inferred from calls and faults, in order of time."""
    rows = trace.arrow(_INFERRED)
    events = _events(rows)
    events["file"] = files.numbers(rows["dev"].combine_chunks(), rows["ino"].combine_chunks())
    return _in_time(events, others)


def _in_time(*parts: NDArray[np.void]) -> NDArray[np.void]:
    """Returns events in order of time; at one time, in the order of the parts."""
    both = np.concatenate(parts)
    return both[np.argsort(both["ts"], kind="stable")]


def _unplaced(trace: Trace) -> NDArray[np.void]:
    """Returns the reads of unknown files or places (`USE`)."""
    rows = trace.arrow(_UNPLACED)
    uses = np.zeros(rows.num_rows, USE)
    for name in ("ts", "pid", "tid", "unplaced"):
        uses[name] = rows[name].to_numpy()
    uses["by_pid"], uses["by_tid"] = uses["pid"], uses["tid"]
    uses["file"] = uses["kind"] = NOTHING
    return uses


def _others(trace: Trace, files: FileNumbers, page: int) -> NDArray[np.void]:
    """Returns the rare events of other tables, in order of time."""
    queries = [_BIOS.replace("$once", bios_on_one_level(trace, None, OF_DATA)), _BRACKETS]
    if all(table in trace.tables for table in WAITS.needs):
        waits(trace)
        queries.append(_WAITS)
    events = _events(trace.arrow(f"FROM ({' UNION ALL '.join(queries)}) ORDER BY ts"))
    written = written_folios(trace, files.numbers)
    return _in_time(events, held_back(trace, files.numbers, page), written)


def _events(rows: pa.Table | pa.RecordBatch) -> NDArray[np.void]:
    events = np.zeros(rows.num_rows, EVENT)
    for name in ("ts", "kind", "pid", "tid", "index", "pages", "continues", "asked", "offset"):
        if name in rows.schema.names:
            filled = rows.column(name).fill_null(NOTHING)
            events[name] = filled.to_numpy(zero_copy_only=False)
    events["file"] = NOTHING
    return events


class _Returns:
    """The returns of calls that read, in the order in which the table `syscalls` has them."""

    def __init__(self, trace: Trace, wanted: bool) -> None:
        self._batches: Iterator[NDArray[np.void]] = iter(())
        if wanted and "syscalls" in trace.tables:
            self._batches = (_events(b) for b in trace.batches(_RETURNS, beside=True))
        self._next = np.zeros(0, EVENT)

    def until(self, ts: int) -> NDArray[np.void]:
        """Returns those before this time (ns) that were not returned yet."""
        found = []
        while True:
            before = int(np.searchsorted(self._next["ts"], ts))
            found.append(self._next[:before])
            self._next = self._next[before:]
            if len(self._next) or (batch := next(self._batches, None)) is None:
                return np.concatenate(found)
            self._next = batch


def _in_order(
    trace: Trace, files: FileNumbers, lives: Lives, others: NDArray[np.void], returns: _Returns
) -> Iterator[NDArray[np.void]]:
    """Yields all events in order of time; at one time, those of the page cache first."""
    done = 0
    for batch in trace.batches(_ROWS, beside=True):
        events = _events(batch)
        events["file"] = files.numbers(batch.column("dev"), batch.column("ino"))
        last = int(events["ts"].max(initial=0))
        upto = done + int(np.searchsorted(others["ts"][done:], last))
        both = np.concatenate([events, others[done:upto], returns.until(last)])
        done = upto
        if len(both):
            yield with_keys(both[np.argsort(both["ts"], kind="stable")], lives)
    rest = np.concatenate([others[done:], returns.until(LATEST)])
    if len(rest):
        yield with_keys(rest[np.argsort(rest["ts"], kind="stable")], lives)


def _used(
    tracking: PageTracking, batches: Iterable[NDArray[np.void]], lives: Lives
) -> Iterator[NDArray[np.void]]:
    """Yields what events did, and at their end, what became of the pages."""
    last = 0
    for events in batches:
        last = int(events["ts"][-1])
        for uses in tracking.add(events):
            yield with_numbers(uses, lives)
    for uses in tracking.finish(last):
        yield with_numbers(uses, lives)


def _numbered(batches: Iterable[NDArray[np.void]]) -> Iterator[pa.Table]:
    """Yields what events did, as numbered rows of the table of uses."""
    row = 0
    for uses in batches:
        columns = {name: uses[name] for name in USE.names or ()}
        columns["used"] = np.where(uses["used"] == 0, uses["ts"], uses["used"])
        yield pa.table({**columns, "row": np.arange(row, row + len(uses))})
        row += len(uses)


_DOCS = {
    "ts": "when the event was logged; of pages that a call reads or misses: when it began to read;"
    " of pages taken back: when they seemed to be mapped",
    "tid": "thread that uses the pages; of evicted and removed pages, the one that used the file"
    " last (null: none did in the recording)",
    "accessed": "pages that it uses: of a call, of a fault, or mapped around one",
    "mapped": "those of them that are mapped around a fault, whether they are used or not",
    "missed": "accessed pages that were not in the cache, and that the access itself brought in",
    "read": "pages brought in by calls and faults, missed ones and those read ahead",
    "written": "pages that came into the cache without a read, mostly to be written to",
    "unused": "pages that were read ahead, and left the cache or the recording unused",
    "evicted": "pages that reclaim took out of the cache",
    "removed": "pages that left the cache for another reason (truncated, removed, dropped)",
    "refaulted": "pages read that had been evicted in the recording",
    "refault_distance": "pages evicted between the eviction of each of these and its return, added",
    "disk_bytes": "bytes that the device reads for it; null: the table block is missing. A row"
    " without a file has those of which only a thread of the kernel is known",
    "wait_ns": "time for which it waits for the device to read pages of files; null: the view waits"
    " cannot be made",
    "unplaced": "bytes that it reads from a file or a place that is not known; such a row has no "
    "file, and exists only if accesses are inferred",
}
_BROUGHT_BY = (
    "target that had brought in the evicted or removed pages; if they were there before the"
    " recording, the one that used the file last; null: others"
)
_UNITS = {"disk_bytes": "bytes", "wait_ns": "ns", "unplaced": "bytes"}
INFERRED_COLUMN = Column(
    "inferred",
    Type.BOOL,
    "the kernel logged no accesses; they follow from system calls and page faults",
)

PAGE_USES = View(
    VIEW,
    "One row per event of the page cache that uses, brings in or takes out pages of a file. Pages"
    " mapped around a fault have one row per run of consecutive ones. Without files that are in"
    " memory only (tmpfs, shared memory).",
    (
        Column("ts", Type.INT64, _DOCS["ts"], "ns", nullable=False),
        Column("pid", Type.INT32, "process of the thread `tid`"),
        Column("tid", Type.INT32, _DOCS["tid"]),
        Column("by_pid", Type.INT32, "process of the event; that of an eviction is the evicter"),
        Column("by_tid", Type.INT32, "thread of the event"),
        DEV,
        INO,
        Column("path", Type.TEXT, "name at the end of the recording; null: not known"),
        *(Column(name, Type.INT64, _DOCS[name], _UNITS.get(name, "pages")) for name in COUNTS),
        Column("brought_by", Type.TEXT, _BROUGHT_BY),
        INFERRED_COLUMN,
        *COLUMNS,
        PASS,
    ),
    needs=("page_cache",),
    build=_build,
    example="SELECT epoch, sum(accessed), sum(missed) FROM page_uses GROUP BY ALL ORDER BY 1",
)


def page_uses(trace: Trace) -> str:
    """Makes the view `page_uses` and returns its name. Columns and units: `PAGE_USES`."""
    return PAGE_USES.make(trace)
