"""Flushes: what was written back, why, for which inode, and who had made it dirty.

The chain: a write bio's reason is that of the writeback_start .. writeback_written bracket that
its thread is in, its inode that of the writeback_single_inode bracket; outside of any bracket it
is the journal's or that of the system call that its thread is in. The dirtier is whoever last
dirtied that inode. `certainty` says how each row came by its reason: "exact" from a bracket or
a kernel thread, "inferred" from a system call that can have other causes, "unknown".
"""

from __future__ import annotations

from analysis.views.partitions import make_partitions
from analysis.views.requests import OPERATION
from tracer.store.trace import Trace

VIEW = "flushes"
SECTORS_PER_PAGE = 8
"""A page of 4096 bytes; sectors have 512."""

_OPTIONAL = ("loss", "writeback", "inode_writeback", "dirty", "processes", "syscalls", "phases")
_STAGES = ("data_load", "model_load", "train", "inference")

_SQL = f"""
CREATE TEMP TABLE IF NOT EXISTS {VIEW} AS
WITH bios AS (
    -- Write-back events name the disk, bios the partition.
    SELECT ts, tid, pid, comm, b.dev, coalesce(p.disk, b.dev) AS disk, sector, nr_sector, rwbs,
           CAST(sector // {SECTORS_PER_PAGE} AS UBIGINT) AS page,
           CAST((sector + nr_sector - 1) // {SECTORS_PER_PAGE}
               - sector // {SECTORS_PER_PAGE} + 1 AS BIGINT) AS pages
    FROM block b LEFT JOIN partitions p ON b.dev = p.dev
    WHERE event = 'bio_queue' AND nr_sector > 0 AND {OPERATION} = 'write'
), work AS (
    SELECT ts, tid, event, reason FROM writeback WHERE event IN ('start', 'written')
), inodes AS (
    SELECT ts, tid, event, dev, ino FROM inode_writeback WHERE event IN ('start', 'end')
), calls AS (
    SELECT ts, tid, name, ts + coalesce(dur_ns, 9223372036854775807 - ts) AS returned
    FROM syscalls
), threads AS (
    SELECT tid, CASE WHEN count(DISTINCT role) = 1 THEN any_value(role) END AS role,
           CASE WHEN count(DISTINCT target) = 1 THEN any_value(target) END AS target,
           CASE WHEN count(DISTINCT container_id) = 1 THEN any_value(container_id) END
               AS container
    FROM processes GROUP BY tid
), dirtied AS (
    -- In task context: the flusher marks inodes dirty, too, as it writes them.
    SELECT ts, dev, ino, pid FROM dirty ANTI JOIN (
        SELECT tid FROM threads WHERE role IN ('flusher', 'journal')
    ) kernel ON dirty.tid = kernel.tid
    WHERE event IN ('dirty_folio', 'mark_inode_dirty')
), stages AS (
    SELECT start, coalesce("end", 9223372036854775807) AS ended, pid, name
    FROM phases WHERE name IN {_STAGES}
), lost AS (
    SELECT coalesce("from", 0) AS start, coalesce("to", 9223372036854775807) AS ended
    FROM loss WHERE stream LIKE '%machine%'
), joined AS (
    SELECT b.*,
        CASE WHEN w.event = 'start' THEN w.reason END AS work_reason,
        CASE WHEN i.event = 'start' AND i.dev = b.disk THEN i.ino END AS ino,
        -- The end of a bracket may be among events that were lost since its start.
        w.event = 'start' AND EXISTS (
            SELECT 1 FROM lost WHERE lost.start <= b.ts AND lost.ended >= w.ts
        ) AS doubtful,
        CASE WHEN b.ts <= c.returned THEN c.name END AS call,
        t.role
    FROM bios b
    ASOF LEFT JOIN work w ON b.tid = w.tid AND b.ts >= w.ts
    ASOF LEFT JOIN inodes i ON b.tid = i.tid AND b.ts >= i.ts
    ASOF LEFT JOIN calls c ON b.tid = c.tid AND b.ts >= c.ts
    LEFT JOIN threads t ON b.tid = t.tid
), reasoned AS (
    SELECT *,
        CASE
            WHEN work_reason IS NOT NULL THEN work_reason
            WHEN role = 'journal' THEN 'journal'
            WHEN call IN ('fsync', 'fdatasync', 'sync_file_range', 'msync') THEN 'fsync'
            WHEN call IN ('sync', 'syncfs') THEN 'sync'
            WHEN call IN ('write', 'pwrite64', 'writev', 'pwritev', 'pwritev2', 'io_submit',
                          'io_uring_enter') THEN 'direct'
            ELSE 'other'
        END AS reason,
        CASE
            WHEN doubtful THEN 'unknown'
            WHEN work_reason IS NOT NULL OR role = 'journal' THEN 'exact'
            WHEN call IN ('fsync', 'fdatasync', 'sync_file_range', 'msync', 'sync', 'syncfs')
                THEN 'exact'
            WHEN call IS NOT NULL THEN 'inferred'
            ELSE 'unknown'
        END AS certainty
    FROM joined
)
SELECT r.ts, r.dev, r.sector, r.nr_sector, r.rwbs, r.page, r.pages, r.ino,
    CAST(NULL AS VARCHAR) AS path,
    r.reason, r.call, r.pid, r.comm, d.pid AS dirtier,
    dt.target AS target, dt.container AS container,
    -- The innermost stage of the dirtier's process; of the only process that marks any.
    (SELECT coalesce(
        arg_max(s.name, s.start) FILTER (s.pid = d.pid),
        CASE WHEN count(DISTINCT s.pid) = 1 THEN arg_max(s.name, s.start) END
     ) FROM stages s WHERE s.start <= r.ts AND r.ts <= s.ended) AS phase,
    r.certainty, own.ino IS NOT NULL AS own
FROM reasoned r
ASOF LEFT JOIN dirtied d ON r.disk = d.dev AND r.ino = d.ino AND r.ts >= d.ts
LEFT JOIN (SELECT tid, target, container FROM threads) dt ON d.pid = dt.tid
LEFT JOIN own_inodes own ON r.disk = own.disk AND r.ino = own.ino
ORDER BY r.ts
"""


def flushes(trace: Trace) -> str:
    """Make the view `flushes`; returns its name.

    One row a write bio. Columns: ts (ns); dev; sector, nr_sector (512 bytes); rwbs; page, pages
    (4096 bytes, on the device); ino and path (null: not known); reason (background, periodic, sync,
    vmscan, fsync, journal, direct, other); call (the system call it happened in); pid, comm (who
    submitted it); dirtier (process that last dirtied the inode), its target and container;
    phase (data_load, model_load, train, inference); certainty (exact, inferred, unknown); own
    (the recorder's own file).

    Needs table block; the others sharpen what it says.
    """
    trace.require("block")
    for table in _OPTIONAL:
        trace.empty_if_missing(table)
    connection = trace.connection
    make_partitions(trace)
    connection.execute("CREATE OR REPLACE TEMP TABLE own_inodes (disk VARCHAR, ino UBIGINT)")
    for dev, inodes in trace.manifest["own_files"].items():
        connection.execute(
            "INSERT INTO own_inodes SELECT DISTINCT "
            "coalesce((SELECT disk FROM partitions WHERE dev = ?), ?), unnest(?::UBIGINT[])",
            [dev, dev, inodes],
        )
    trace.execute(_SQL)
    return VIEW
