"""Flushes: what was written back, why, for which inode, and who had made it dirty.

The chain: a write bio's reason is that of the writeback_start .. writeback_written bracket that
its thread is in, its inode that of the writeback_single_inode bracket; outside of brackets the
file system names the inode, and the reason is the journal's, a direct write's, or that of the
system call (`submissions`). The dirtier is whoever last dirtied a page of that inode (`dirtiers`).

`certainty` says what of a row is fact:

- exact: reason and inode by events, and nobody but the dirtier had a part in it;
- ambiguous: as exact, but other processes may have dirtied pages of the inode, too, since it
  was last clean: `dirtiers` of them were seen;
- inferred: the reason from a system call that can have other causes;
- unknown: events are missing, or nothing tells.
"""

from __future__ import annotations

from analysis.views.dirtiers import make_dirtiers
from analysis.views.submissions import make_submissions
from analysis.views.volumes import make_volumes
from tracer.store.trace import Trace

VIEW = "flushes"

_OPTIONAL = (
    *("loss", "writeback", "inode_writeback", "file_writes", "dirty"),
    *("processes", "syscalls", "phases", "files"),
)
_STAGES = ("data_load", "model_load", "train", "inference")
_KTHREADD = 2

_THREADS = f"""
CREATE OR REPLACE TEMP TABLE threads AS
SELECT tid, CASE WHEN count(DISTINCT role) = 1 THEN any_value(role) END AS role,
    CASE WHEN count(DISTINCT target) = 1 THEN any_value(target) END AS target,
    CASE WHEN count(DISTINCT container_id) = 1 THEN any_value(container_id) END AS container,
    -- A flusher is one even where its parent is not known.
    bool_and(ppid IS NOT DISTINCT FROM {_KTHREADD} OR role IN ('flusher', 'journal')) AS kernel
FROM processes GROUP BY tid
"""

_SQL = f"""
CREATE TEMP TABLE {VIEW} AS
WITH stages AS (
    SELECT start, coalesce("end", 9223372036854775807) AS ended, pid, name
    FROM phases WHERE name IN {_STAGES}
), subvolumes AS (
    SELECT coalesce(n.bdi, w.fsid) AS fs, ino FROM file_writes w
    LEFT JOIN btrfs_names n ON w.fsid = n.name WHERE root IS NOT NULL
    GROUP BY ALL HAVING count(DISTINCT root) > 1
), freed AS (
    SELECT dev AS fs, ino, max(ts) AS last_freed FROM file_writes
    WHERE event = 'free_inode' GROUP BY ALL
), dirtied_by AS (
    SELECT s.*, c.since,
        CASE WHEN d.ts >= c.since THEN d.pid END AS last_dirtier
    FROM submissions s
    ASOF LEFT JOIN cleaned c ON s.disk = c.disk AND s.ino = c.ino AND s.at_ns >= c."end"
    ASOF LEFT JOIN (SELECT * FROM dirtied WHERE folio) d
        ON s.disk = d.disk AND s.ino = d.ino AND s.at_ns >= d.ts
), shared AS (
    SELECT s.* EXCLUDE (last_dirtier),
        CASE WHEN metadata THEN NULL WHEN direct THEN s.pid ELSE last_dirtier END AS dirtier,
        CASE WHEN NOT direct THEN p.dirtiers
            -- Pages of others may have been in its way.
            WHEN extents AND p.dirtiers > 0 AND last_dirtier IS DISTINCT FROM s.pid
                THEN p.dirtiers + 1
            WHEN extents THEN coalesce(p.dirtiers, 1) ELSE 1 END AS dirtiers,
        p.target AS of_target, p.container AS of_container
    FROM dirtied_by s
    ASOF LEFT JOIN parts p
        ON s.disk = p.disk AND s.ino = p.ino AND s.since = p.since AND s.at_ns >= p.ts
), whose AS (
    SELECT s.*, NOT direct AND (
            machine_lost >= since OR (in_bracket AND dirty_since < $start)
            OR sd.disk IS NOT NULL OR sv.ino IS NOT NULL) AS others
    FROM shared s LEFT JOIN shared_disks sd ON s.disk = sd.disk
    LEFT JOIN subvolumes sv ON s.fs = sv.fs AND s.ino = sv.ino
)
SELECT r.ts, r.dev, r.sector, r.nr_sector, r.rwbs, r.page, r.pages, r.ino, r.root,
    CASE WHEN NOT r.metadata AND r.ts >= coalesce(f.born_ns, r.ts)
        AND r.ts > coalesce(z.last_freed, -1) THEN f.path END AS path,
    r.reason, r.call, r.pid, r.comm, r.dirtier,
    CASE WHEN r.dirtier IS NULL THEN NULL
        WHEN r.dirtiers > 1 AND NOT r.direct THEN r.of_target ELSE t.target END AS target,
    CASE WHEN r.dirtier IS NULL THEN NULL
        WHEN r.dirtiers > 1 AND NOT r.direct THEN r.of_container ELSE t.container END AS container,
    -- The innermost stage of the dirtier's process; of the only process that marks any.
    (SELECT coalesce(
        arg_max(s.name, s.start) FILTER (s.pid = r.dirtier),
        CASE WHEN count(DISTINCT s.pid) = 1 THEN arg_max(s.name, s.start) END
     ) FROM stages s WHERE s.start <= r.ts AND r.ts <= s.ended) AS phase,
    CASE WHEN r.certainty = 'exact' AND r.dirtier IS NOT NULL AND (r.dirtiers > 1 OR r.others)
        THEN 'ambiguous' ELSE r.certainty END AS certainty,
    CASE WHEN r.dirtier IS NOT NULL THEN r.dirtiers END::INTEGER AS dirtiers,
    own.ino IS NOT NULL AS own
FROM whose r
LEFT JOIN threads t ON r.dirtier = t.tid
LEFT JOIN own_inodes own ON r.disk = own.disk AND r.ino = own.ino
LEFT JOIN files f
    ON r.fs = f.dev AND r.ino = f.ino AND coalesce(r.root, 0) = coalesce(f.root, 0)
LEFT JOIN freed z ON r.fs = z.fs AND r.ino = z.ino
ORDER BY r.ts
"""


def flushes(trace: Trace) -> str:
    """Make the view `flushes`; returns its name.

    One row a write bio. Columns: ts (ns); dev; sector, nr_sector (512 bytes); rwbs; page, pages
    (4096 bytes, on the device); ino (null: not known), root (btrfs: the subvolume in which ino
    counts); path (a name of the file at the end of the recording; null: gone, metadata, or not
    found); reason (background, periodic, sync, vmscan, ... as the flusher has it; fsync: also of
    O_SYNC writes; journal, direct, other); call (the system call it happened in); pid, comm (who
    submitted it); dirtier (process that last dirtied a page of the inode, or wrote directly), its
    target and container (null, too, where the dirtiers' differ); phase (data_load, model_load,
    train, inference); certainty (exact, ambiguous, inferred, unknown); dirtiers (processes that
    dirtied the inode since it was last clean); own (the recorder's own file).

    Needs table block; the others sharpen what it says. A process that writes to a page that is
    dirty already, within a tick of somebody else, leaves no event.
    """
    trace.require("block")
    connection = trace.connection
    made = "SELECT 1 FROM duckdb_tables() WHERE table_name = ?"
    if connection.execute(made, [VIEW]).fetchone():
        return VIEW
    for table in _OPTIONAL:
        trace.empty_if_missing(table)
    make_volumes(trace)
    connection.execute("CREATE OR REPLACE TEMP TABLE own_inodes (disk VARCHAR, ino UBIGINT)")
    for dev, inodes in trace.manifest["own_files"].items():
        connection.execute(
            "INSERT INTO own_inodes SELECT DISTINCT "
            "coalesce((SELECT disk FROM partitions WHERE dev = ?), ?), unnest(?::UBIGINT[])",
            [dev, dev, inodes],
        )
    trace.execute(_THREADS)
    make_submissions(trace)
    make_dirtiers(trace)
    trace.execute(_SQL.replace("$start", str(trace.manifest["clock"]["start_ns"])))
    return VIEW
