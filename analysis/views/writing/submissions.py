"""Write bios and the context that each was submitted in: bracket, system call, file system.

A bio's context is taken at the place of the decision to write: for a bio of a btrfs worker, that is
the time and the thread that queued the worker's task. The last events of that thread then tell
whether it is in a write-back bracket, whether it is in a system call, and which inode its file
system named last.

A statement of a file system holds until its system call ends, and until the next bracket begins or
ends. A clock may be too coarse for brackets: if as many begin as end at one time, the thread stays
as it was, in a bracket or outside. Events lost between the evidence and the bio make a row
`unknown`. System calls lost since the call began make it `inferred`, if the call is the evidence.
"""

from __future__ import annotations

from tracer.analysis.views.calls_around import make_calls_before
from tracer.analysis.views.calls_by_kind import SYNC, SYNC_ALL, SYNC_FILE
from tracer.analysis.views.disks.requests import OPERATION
from tracer.analysis.views.disks.volumes import of_bios, of_files
from tracer.analysis.views.threads import owns
from tracer.analysis.views.view import apart
from tracer.probes.loss import OF_EVENTS
from tracer.store.trace import Trace

SECTORS_PER_PAGE = 8
"""A page of 4096 bytes; sectors have 512."""

WRITE_CALLS = (
    *("write", "pwrite64", "writev", "pwritev", "pwritev2"),
    *("io_submit", "io_uring_enter"),
)
_NAMING = ("writepages_start", "map_blocks", "ordered_extent", "fsync", "direct_start")
"""Events that name the inode of the following bios."""

_BIOS = f"""
CREATE OR REPLACE TEMP TABLE bios AS
SELECT row AS id, ts, tid, pid, comm, dev, disk, fs, on_btrfs, sector, nr_sector, rwbs,
    contains(rwbs, 'M') AS metadata,
    CAST(sector // {SECTORS_PER_PAGE} AS UBIGINT) AS page,
    CAST((sector + nr_sector - 1) // {SECTORS_PER_PAGE}
        - sector // {SECTORS_PER_PAGE} + 1 AS BIGINT) AS pages
FROM {of_bios("block_rows")}
WHERE event = 'bio_queue' AND nr_sector > 0 AND {OPERATION} = 'write'
"""

# Each work has a number in order of time; rows give the order of those at one time.
_WORKS = """
CREATE OR REPLACE TEMP TABLE works AS
SELECT row, work, row_number() OVER (ORDER BY ts, row) AS place FROM file_writes_rows
WHERE event IN ('work_queued', 'work_start', 'work_end')
"""


def _steps(table: str, threads: str, rows: str) -> str:
    """Returns SQL for a table of the last statements of each thread's file systems.

    `threads` and `rows` are SQL conditions: the threads, and the events that get a row.
    """
    return f"""
CREATE OR REPLACE TEMP TABLE {table} AS
WITH named AS (
    SELECT f.ts, f.row, f.tid, f.event, f.fs, f.root, f.ino, w.work, w.place
    FROM {of_files("file_writes_rows")} f LEFT JOIN works w USING (row)
    WHERE f.event NOT IN ('free_inode', 'alloc_da_blocks') AND {threads}
), begun AS (
    -- A direct write may end in an interrupt, whatever its thread does at that time.
    SELECT *, event = 'direct_start' OR event = 'direct_end' AND file = last_value(
        CASE WHEN event = 'direct_start' THEN file END IGNORE NULLS)
        OVER (PARTITION BY tid ORDER BY ts, row ROWS UNBOUNDED PRECEDING) AS own_direct
    FROM (SELECT *, {{'fs': fs, 'ino': ino}} AS file FROM named)
), packed AS (
    SELECT ts, row, tid, event, work, place, own_direct,
        CASE WHEN place IS NULL
            THEN {{'ts': ts, 'event': event, 'fs': fs, 'root': root, 'ino': ino}} END AS step,
        CASE WHEN event IN ('work_start', 'work_end') THEN {{'ts': ts, 'place': place,
            'work': CASE WHEN event = 'work_start' THEN work END}} END AS run
    FROM begun
), numbered AS MATERIALIZED (
    SELECT *, row_number() OVER (PARTITION BY tid ORDER BY ts, row) AS n FROM packed
), told AS (
    SELECT ts, tid, work, place,
        max(n) FILTER (event != 'direct_end' AND step IS NOT NULL) OVER until AS latest,
        max(n) FILTER (own_direct AND step IS NOT NULL) OVER until AS direct,
        max(n) FILTER (event IN ('fsync', 'fsync_start', 'fsync_end') AND step IS NOT NULL)
            OVER until AS synced,
        max(n) FILTER (event IN ('fast_commit_start', 'fast_commit_end') AND step IS NOT NULL)
            OVER until AS committed,
        max(n) FILTER (run IS NOT NULL) OVER until AS run,
        -- A worker makes compressed extents itself: take the last one within its task, if any.
        max(n) FILTER (event = 'ordered_extent' OR run IS NOT NULL) OVER until AS extent
    FROM numbered WINDOW until AS (PARTITION BY tid ORDER BY n ROWS UNBOUNDED PRECEDING),
        by_thread AS (PARTITION BY tid ORDER BY n)
    QUALIFY {rows}
)
SELECT t.ts, t.tid, t.work, t.place, latest.step AS latest, direct.step AS direct,
    synced.step AS synced, committed.step AS committed, run.run,
    CASE WHEN extent.event = 'ordered_extent' THEN {{'made': extent.step}}
        WHEN extent.run IS NOT NULL THEN {{'made': extent.step}} END AS extent
FROM told t
LEFT JOIN numbered latest ON t.tid = latest.tid AND t.latest = latest.n
LEFT JOIN numbered direct ON t.tid = direct.tid AND t.direct = direct.n
LEFT JOIN numbered synced ON t.tid = synced.tid AND t.synced = synced.n
LEFT JOIN numbered committed ON t.tid = committed.tid AND t.committed = committed.n
LEFT JOIN numbered run ON t.tid = run.tid AND t.run = run.n
LEFT JOIN numbered extent ON t.tid = extent.tid AND t.extent = extent.n
"""


# The last event of a time covers the others of that time.
_STEPS = _steps("file_steps", "true", "lead(ts) OVER by_thread IS DISTINCT FROM ts")
_QUEUED = _steps(
    "queued",
    "f.tid IN (SELECT tid FROM file_writes WHERE event = 'work_queued')",
    "event = 'work_queued'",
)
_NONE_QUEUED = "CREATE OR REPLACE TEMP TABLE queued AS FROM file_steps LIMIT 0"

# A worker's task may have been queued by another worker's task (compressed, then summed).
_WORKED = """
CREATE OR REPLACE TEMP TABLE worked AS
WITH first_run AS (
    SELECT b.id, b.ts, s.run, s.extent FROM (SELECT id, tid, ts FROM bios WHERE on_btrfs) b
    ASOF JOIN file_steps s ON b.tid = s.tid AND b.ts >= s.ts WHERE s.run.work IS NOT NULL
), first_queue AS (
    SELECT f.id, f.ts, f.extent, q AS queue
    FROM first_run f ASOF LEFT JOIN queued q ON f.run.work = q.work AND f.run.place >= q.place
), second_queue AS (
    SELECT f.*, q AS queue2 FROM first_queue f
    ASOF LEFT JOIN queued q ON f.queue.run.work = q.work AND f.queue.run.place >= q.place
), begun AS (
    SELECT id, ts, extent, queue, CASE WHEN queue.run.work IS NULL THEN queue ELSE queue2 END AS q
    FROM second_queue
)
-- A task without a recorded queueing has no context: no thread has the number -1.
SELECT id, coalesce(q.tid, -1) AS by_tid, coalesce(q.ts, ts) AS at_ns, q.latest, q.direct, q.synced,
    q.committed,
    coalesce(extent.made, CASE WHEN queue.run.work IS NOT NULL THEN queue.extent.made END) AS extent
FROM begun
"""

# Joins are apart and narrow: DuckDB's ASOF join sorts all columns of both sides.
_PLACED = f"""
CREATE OR REPLACE TEMP TABLE placed AS
WITH placed AS (
    SELECT b.id, b.ts, coalesce(w.by_tid, b.tid) AS by_tid, coalesce(w.at_ns, b.ts) AS at_ns,
        w.extent
    FROM bios b LEFT JOIN worked w USING (id)
)
SELECT p.*, o.begun, o.role FROM placed p LEFT JOIN threads o ON {owns("o", "p", "by_tid", "at_ns")}
"""

_BRACKETS = """
CREATE OR REPLACE TEMP TABLE brackets AS
WITH instants AS (
    SELECT ts, tid, count(*) FILTER (event = 'start') AS begun,
        count(*) FILTER (event = 'written') AS ended,
        arg_max(reason, row) FILTER (event = 'start') AS reason
    FROM writeback_rows WHERE event IN ('start', 'written') GROUP BY ALL
), work AS (
    -- A coarse clock shows an empty bracket like the end of one and the start of the next: as many
    -- of both leave the thread as it was.
    SELECT ts, tid, CASE WHEN last_value(CASE WHEN begun != ended THEN begun > ended END
            IGNORE NULLS) OVER (PARTITION BY tid ORDER BY ts) THEN reason END AS reason
    FROM instants
), inodes AS (
    SELECT * FROM (
        SELECT ts, row, tid, event, dev, ino, age,
            count(*) OVER (PARTITION BY tid, ts, dev, ino) > 1 AS over
        FROM inode_writeback_rows WHERE event IN ('start', 'end')
    ) QUALIFY row_number() OVER (
        PARTITION BY tid, ts ORDER BY event = 'start' AND NOT over DESC, row DESC) = 1
), in_work AS (
    SELECT p.id, w.ts AS work_at, w.reason AS work_reason
    FROM (SELECT id, by_tid, at_ns FROM placed) p
    ASOF LEFT JOIN work w ON p.by_tid = w.tid AND p.at_ns >= w.ts
), in_inode AS (
    SELECT p.id, i.ts AS inode_at, i.age, i.dev AS inode_dev,
        CASE WHEN i.event = 'start' THEN i.ino END AS bracket_ino
    FROM (SELECT id, by_tid, at_ns FROM placed) p
    ASOF LEFT JOIN inodes i ON p.by_tid = i.tid AND p.at_ns >= i.ts
)
SELECT * FROM in_work JOIN in_inode USING (id)
"""

_CALLS = """
CREATE OR REPLACE TEMP TABLE in_call AS
WITH found AS (
    SELECT p.id, p.begun, c.call, c.ts, c.returned,
        p.at_ns <= c.returned AND c.ts >= coalesce(p.begun, c.ts) AS lasts
    FROM (SELECT id, by_tid, at_ns, begun FROM placed) p
    ASOF LEFT JOIN calls_of_bios c ON p.by_tid = c.tid AND p.at_ns >= c.ts
)
SELECT id, CASE WHEN lasts THEN call END AS call, CASE WHEN lasts THEN ts END AS call_at,
    -- A statement ends with its call, and with its thread.
    CASE WHEN lasts THEN ts
        ELSE greatest(CASE WHEN ts >= coalesce(begun, ts) THEN returned + 1 END, begun)
        END AS told_from
FROM found
"""

_IN_STEP = """
CREATE OR REPLACE TEMP TABLE in_step AS
SELECT p.id, s.latest, s.direct, s.synced, s.committed
FROM (SELECT id, tid, ts FROM bios ANTI JOIN worked USING (id)) p
ASOF LEFT JOIN file_steps s ON p.tid = s.tid AND p.ts >= s.ts
UNION ALL
SELECT id, latest, direct, synced, committed FROM worked
"""

_LOST = f"""
CREATE OR REPLACE TEMP TABLE lost AS
SELECT contains(stream, 'machine') AS machine, coalesce("from", 0) AS start,
    max(coalesce("to", 9223372036854775807)) OVER (
        PARTITION BY contains(stream, 'machine') ORDER BY coalesce("from", 0)) AS until
FROM loss WHERE {OF_EVENTS}
"""

_AFTER_LOSS = """
CREATE OR REPLACE TEMP TABLE after_loss AS
WITH of_machine AS (
    SELECT b.id, m.until AS machine_lost FROM (SELECT id, ts FROM bios) b
    ASOF LEFT JOIN (SELECT * FROM lost WHERE machine) m ON b.ts >= m.start
), of_target AS (
    -- System calls are looked up at that time only.
    SELECT p.id, k.until AS target_lost FROM (SELECT id, at_ns FROM placed) p
    ASOF LEFT JOIN (SELECT * FROM lost WHERE NOT machine) k ON p.at_ns >= k.start
)
SELECT * FROM of_machine JOIN of_target USING (id)
"""

_JOINED = f"""
CREATE OR REPLACE TEMP TABLE submissions AS
WITH joined AS (
    SELECT b.*, p.by_tid, p.at_ns, p.extent, k.work_at, k.work_reason, k.inode_at, k.age,
        CASE WHEN k.inode_dev = b.disk THEN k.bracket_ino END AS bracket_ino, c.call, c.call_at,
        c.told_from, p.role, s.latest, s.direct, s.synced, s.committed, l.machine_lost,
        l.target_lost
    FROM bios b JOIN placed p USING (id) JOIN in_call c USING (id)
    -- These are empty if the trace has none of their events.
    LEFT JOIN brackets k USING (id) LEFT JOIN in_step s USING (id)
    LEFT JOIN after_loss l USING (id)
), fresh AS (
    -- The last statement of a file system holds in the same system call, outside of brackets that
    -- have ended since, and for its own volume.
    SELECT * EXCLUDE (latest, direct, synced, committed),
        CASE WHEN latest.fs = fs AND latest.ts >= coalesce(told_from, 0)
            AND latest.ts >= coalesce(work_at, 0) AND latest.ts >= coalesce(inode_at, 0)
            THEN latest END AS latest,
        CASE WHEN direct.event = 'direct_start' AND direct.fs = fs AND NOT metadata
            AND direct.ts >= coalesce(told_from, 0) THEN direct END AS direct,
        CASE WHEN synced.event != 'fsync_end' AND synced.fs = fs
            AND synced.ts >= coalesce(told_from, 0) THEN synced END AS synced,
        CASE WHEN committed.event = 'fast_commit_start' AND committed.fs = fs
            AND committed.ts >= coalesce(told_from, 0) THEN committed END AS committed
    FROM joined
), told AS (
    SELECT *,
        coalesce(extent, CASE
            WHEN latest.event IN {_NAMING} THEN latest
            WHEN latest.event IN ('writepages_end', 'log') THEN direct END) AS named,
        CASE
            WHEN work_reason IS NOT NULL THEN 'bracket'
            WHEN role = 'journal' OR (latest.event = 'log' AND metadata)
                OR (committed IS NOT NULL AND metadata) OR (on_btrfs AND metadata) THEN 'log'
            WHEN direct IS NOT NULL THEN 'direct'
            WHEN synced.event = 'fsync_start' THEN 'fsync'
            WHEN call IN {SYNC_FILE} THEN 'fsync_call'
            WHEN call IN {SYNC_ALL} THEN 'sync_call'
            WHEN call IS NOT NULL AND synced IS NOT NULL THEN 'fsync'
            WHEN call IN {WRITE_CALLS} THEN 'write_call'
            WHEN call IS NOT NULL THEN 'call'
            WHEN synced IS NOT NULL AND latest.ino = synced.ino THEN 'after_fsync'
            ELSE 'nothing' END AS evidence
    FROM fresh
), judged AS (
    SELECT * EXCLUDE (named),
        CASE WHEN metadata AND bracket_ino IS NULL THEN CASE WHEN on_btrfs THEN 1 END
            ELSE coalesce(bracket_ino, named.ino) END::UBIGINT AS ino,
        CASE WHEN NOT metadata AND named.ino = coalesce(bracket_ino, named.ino)
            THEN named.root END AS root,
        least(
            CASE WHEN evidence = 'bracket' THEN work_at END,
            CASE WHEN bracket_ino IS NOT NULL THEN inode_at END,
            CASE WHEN evidence = 'direct' THEN direct.ts END,
            -- A recorded system call is evidence enough.
            CASE WHEN evidence IN ('fsync', 'after_fsync') AND NOT coalesce(
                call IN {SYNC_FILE} AND coalesce(target_lost < call_at, true), false)
                THEN synced.ts END,
            CASE WHEN evidence = 'log' AND metadata THEN committed.ts END,
            CASE WHEN evidence = 'log' AND latest.event = 'log' THEN latest.ts END,
            CASE WHEN bracket_ino IS NULL THEN named.ts END,
            CASE WHEN at_ns < ts THEN at_ns END
        ) AS since
    FROM told
)
SELECT id, ts, at_ns, by_tid, dev, disk, fs, sector, nr_sector, rwbs, metadata, page, pages, pid,
    tid, comm, ino, root, call, bracket_ino IS NOT NULL AS in_bracket,
    inode_at AS bracket_at, {apart("inode_at", "age")} AS dirty_since,
    -- A direct write writes the caller's data, except pages of others that are in its way.
    evidence = 'direct' AND latest.event IS DISTINCT FROM 'writepages_start' AS direct,
    latest.event IN ('map_blocks', 'ordered_extent') AS extents, machine_lost,
    CASE evidence
        WHEN 'bracket' THEN work_reason
        WHEN 'log' THEN 'journal'
        WHEN 'direct' THEN 'direct'
        WHEN 'fsync' THEN 'fsync' WHEN 'fsync_call' THEN 'fsync' WHEN 'after_fsync' THEN 'fsync'
        WHEN 'sync_call' THEN 'sync'
        WHEN 'write_call' THEN 'direct'
        ELSE 'other' END AS reason,
    CASE
        -- The end of a bracket may be among the lost events.
        WHEN machine_lost >= since OR by_tid = -1 THEN 'unknown'
        WHEN evidence IN ('bracket', 'log', 'direct') THEN 'exact'
        -- ext4 records the end, too: no system call is needed.
        WHEN evidence = 'fsync' AND synced.event = 'fsync_start' THEN 'exact'
        WHEN evidence IN ('write_call', 'after_fsync') THEN 'inferred'
        WHEN target_lost >= call_at THEN 'inferred'
        WHEN evidence IN ('fsync', 'fsync_call', 'sync_call') THEN 'exact'
        WHEN evidence = 'call' THEN CASE WHEN ino IS NULL THEN 'inferred' ELSE 'exact' END
        ELSE 'unknown' END AS certainty
FROM judged
"""


def make_submissions(trace: Trace) -> None:
    """Makes the table `submissions`: one row per write bio.

    Columns: id (its row in the table block); those of the bio (ts, dev, sector, nr_sector, rwbs,
    page, pages, pid, tid, comm; metadata: by rwbs); disk and fs (the names of its volume in
    write-back events and in file systems' events); at_ns and by_tid (time and thread of the
    decision to write; -1: not known); reason and certainty (exact, inferred, unknown); call; ino
    and root (null: not known); in_bracket (a write-back bracket names the inode), bracket_at (ns:
    its begin), dirty_since (ns, of that inode); direct (the caller's own data), extents (or pages
    of others that were in its way); machine_lost (ns: the end of the losses that began before it).
    Also makes `calls_of_fsyncs`, the calls in which file systems synced, and `sync_calls`, all
    calls that sync (columns: `make_calls_before`).

    Needs the tables block, writeback, inode_writeback, file_writes, syscalls, loss (any but the
    first may be empty), `threads`, and what `make_volumes` makes.
    """
    trace.execute(_BIOS)
    works = trace.create(_WORKS, empty=trace.is_empty("file_writes"))
    steps = trace.create(_STEPS, empty=trace.is_empty("file_writes"))
    trace.execute(_QUEUED if works else _NONE_QUEUED)
    trace.create(_WORKED, empty=not works)
    trace.execute(_PLACED)
    make_calls_before(
        trace,
        {
            "calls_of_bios": "SELECT by_tid AS tid, at_ns AS ts FROM placed",
            "calls_of_fsyncs": "SELECT tid, ts FROM file_writes"
            " WHERE event IN ('fsync', 'fsync_start')",
        },
        ("sync_calls", f"name IN {SYNC}"),
    )
    no_brackets = trace.is_empty("writeback") and trace.is_empty("inode_writeback")
    trace.create(_BRACKETS, empty=no_brackets)
    trace.execute(_CALLS)
    trace.create(_IN_STEP, empty=not steps)
    lost = trace.create(_LOST)
    trace.create(_AFTER_LOSS, empty=not lost)
    trace.execute(_JOINED)
