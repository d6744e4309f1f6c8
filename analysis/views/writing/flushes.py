"""Flushes: the pages written back, with the reason, the inode, and the process that dirtied them.

A write bio takes its reason from the writeback_start .. writeback_written bracket of its thread,
and its inode from the writeback_single_inode bracket. Outside of brackets the file system names the
inode, and the reason is the journal, a direct write, or the system call (`submissions`). The
dirtier is the process that last dirtied a page of the inode (`dirtiers`).

`certainty` says which parts of a row are facts:

- exact: recorded events name the reason and the inode, and only the dirtier made pages dirty. If
  the dirtier is null (the journal's writes; no event of dirtying), only reason and inode are facts;
- ambiguous: recorded events name the reason and the inode, but other processes may have dirtied
  pages of the inode, too, since it was last clean. The column `dirtiers` counts those seen;
- inferred: the reason comes from a system call that can have other causes;
- unknown: events were lost, or no event names the reason.

Pages that others dirtied before the recording show only in the flusher's events, which give the
age of what it writes. An fsync of a file that was not clean since the start is `exact` as far as
the recording goes.
"""

from __future__ import annotations

from tracer.analysis.views.calls_around import LATEST
from tracer.analysis.views.disks.volumes import below_others, make_volumes, of_files
from tracer.analysis.views.phases.phase_times import make_phase_times
from tracer.analysis.views.threads import make_threads, owns
from tracer.analysis.views.view import View
from tracer.analysis.views.writing.carried import make_carried
from tracer.analysis.views.writing.dirtiers import make_dirtiers
from tracer.analysis.views.writing.submissions import make_submissions
from tracer.analysis.views.writing.whose import COLUMN, make_undirtied
from tracer.probes.schema import DEV, TS, Column, Type
from tracer.store.trace import Trace

VIEW = "flushes"

_OPTIONAL = (
    *("loss", "writeback", "inode_writeback", "file_writes", "dirty"),
    *("processes", "syscalls", "phases", "files"),
)
_STAGES = ("data_load", "model_load", "train", "inference")
_STEPS_ON_THE_WAY = (
    *("bios", "works", "file_steps", "queued", "worked", "placed"),
    *("brackets", "in_call", "in_step", "lost", "after_loss"),
    *("calls_of_bios", "calls_of_fsyncs", "sync_calls"),
    *("submissions", "nodes", "cleaned", "dirtied", "parts"),
    *("stage_steps", "dirtied_by", "in_phase", "undirtied", "own_inodes", "carried"),
)

# The innermost stage at any moment, of each process and of the only one that marks any.
_STAGES_SQL = f"""
CREATE OR REPLACE TEMP TABLE stage_steps AS
WITH stages AS (
    SELECT start, least(coalesce(until, {LATEST}), {LATEST} - 1) AS ended, pid, name
    FROM phase_times WHERE name IN {_STAGES}
), moments AS (
    SELECT pid, start AS ts FROM stages UNION SELECT pid, ended + 1 FROM stages
)
SELECT m.pid, m.ts, arg_max(s.name, s.start) AS name
FROM moments m LEFT JOIN stages s ON m.pid = s.pid AND s.start <= m.ts AND m.ts <= s.ended
GROUP BY ALL
UNION ALL
SELECT NULL, m.ts, CASE WHEN count(DISTINCT s.pid) = 1 THEN arg_max(s.name, s.start) END
FROM (SELECT DISTINCT ts FROM moments) m
LEFT JOIN stages s ON s.start <= m.ts AND m.ts <= s.ended GROUP BY m.ts
"""

_DIRTIER = f"""
CREATE OR REPLACE TEMP TABLE dirtied_by AS
WITH asked AS (
    -- A direct write belongs to its caller, even if another thread submits it.
    SELECT id, ts, at_ns, node, CASE WHEN r.tid = by_tid THEN r.pid ELSE o.pid END AS pid, direct,
        extents
    FROM submissions r JOIN nodes USING (fs, ino)
    LEFT JOIN threads o ON {owns("o", "r", "by_tid", "at_ns")}
    WHERE NOT metadata
), cleaned_at AS (
    SELECT a.*, c.since FROM asked a
    ASOF JOIN cleaned c ON a.node = c.node AND a.at_ns >= c."end"
), last_dirtied AS (
    SELECT a.id, d.ts, d.who.pid, d.who.life FROM (SELECT id, node, at_ns FROM asked) a
    -- The last of several at one time.
    ASOF JOIN (
        SELECT ts, node, arg_max({{'pid': pid, 'life': life}}, row) AS who FROM dirtied WHERE folio
        GROUP BY ts, node) d
        ON a.node = d.node AND a.at_ns >= d.ts
), with_parts AS (
    -- Pages of others may have been in the way of a direct write.
    SELECT id, node, since, at_ns, direct FROM cleaned_at WHERE NOT direct OR extents
), writers AS (
    SELECT a.id, a.pid, o.life, o.target, o.container
    FROM (SELECT id, pid, at_ns FROM cleaned_at WHERE direct) a
    LEFT JOIN threads o ON {owns("o", "a", "pid", "at_ns")}
), parted AS (
    SELECT a.id, p.dirtiers, p.mine, p.known, p.target, p.container
    FROM with_parts a ASOF JOIN parts p
        ON a.node = p.node AND a.since = p.since AND a.at_ns >= p.ts
), has_part AS (
    SELECT w.id FROM (SELECT * FROM with_parts WHERE direct) a JOIN writers w USING (id)
    JOIN parts p ON a.node = p.node AND a.since = p.since AND w.pid = p.pid
        AND w.life IS NOT DISTINCT FROM p.life AND a.at_ns >= p.ts
), strangers AS (
    -- Direct writers that dirtied none of the pages.
    SELECT * FROM writers ANTI JOIN has_part USING (id)
), whose AS (
    SELECT a.id, a.ts, a.since,
        CASE WHEN a.direct THEN a.pid WHEN d.ts >= a.since THEN d.pid END AS dirtier,
        CASE WHEN a.direct THEN a.at_ns WHEN d.ts >= a.since THEN d.ts END AS dirtied_ns,
        if(a.direct, v.life, d.life) AS life,
        coalesce(p.dirtiers, 0) + (w.id IS NOT NULL)::BIGINT AS dirtiers,
        CASE WHEN w.id IS NULL THEN p.target
            WHEN p.id IS NULL OR p.target = w.target THEN w.target END AS target,
        CASE WHEN w.id IS NULL THEN p.container
            WHEN p.id IS NULL OR p.container = w.container THEN w.container END AS container,
        coalesce(p.mine, 0) + (w.target IS NOT NULL)::BIGINT AS mine,
        coalesce(p.known, 0) + (w.life IS NOT NULL)::BIGINT AS known
    FROM cleaned_at a LEFT JOIN last_dirtied d USING (id) LEFT JOIN parted p USING (id)
    LEFT JOIN strangers w USING (id) LEFT JOIN writers v USING (id)
)
SELECT w.* EXCLUDE (mine, known, life, target, container), o.comm, w.target, w.container,
    CASE WHEN mine = dirtiers THEN 'target' WHEN mine > 0 THEN 'shared'
        WHEN known > 0 THEN 'other' END AS whose,
    o.until
FROM whose w LEFT JOIN threads o USING (life) WHERE dirtier IS NOT NULL
"""

_PHASE = f"""
CREATE OR REPLACE TEMP TABLE in_phase AS
WITH own AS (
    SELECT d.id, s.name FROM dirtied_by d
    ASOF JOIN stage_steps s ON d.dirtier = s.pid AND d.ts >= s.ts
    -- The stages of a later process with the dirtier's number are not the dirtier's.
    WHERE d.ts < coalesce(d.until, {LATEST})
), sole AS (
    SELECT b.id, s.name FROM (SELECT id, ts FROM submissions) b
    ASOF JOIN (SELECT * FROM stage_steps WHERE pid IS NULL) s ON b.ts >= s.ts
)
SELECT id, coalesce(own.name, sole.name) AS phase FROM sole LEFT JOIN own USING (id)
"""

_SQL = f"""
CREATE OR REPLACE TEMP TABLE {VIEW} AS
SELECT *, coalesce($below, false) AS below FROM (
WITH subvolumes AS (
    SELECT fs, ino FROM {of_files("file_writes")} WHERE root IS NOT NULL
    GROUP BY ALL HAVING count(DISTINCT root) > 1
), freed AS (
    SELECT fs, ino, max(ts) AS last_freed FROM {of_files("file_writes")}
    WHERE event = 'free_inode' GROUP BY ALL
)
SELECT $b.ts, $b.dev, $b.sector, $b.nr_sector, $b.rwbs, $b.page, $b.pages, r.ino, r.root,
    CASE WHEN NOT r.metadata AND r.ts >= coalesce(f.born_ns, r.ts)
        AND r.ts > coalesce(z.last_freed, -1) THEN f.path END AS path,
    r.reason, r.call, $b.pid, $b.comm, d.dirtier, d.comm AS dirtier_comm, d.dirtied_ns, d.target,
    d.container, p.phase,
    CASE WHEN d.id IS NOT NULL THEN d.whose ELSE o.whose END AS whose,
    CASE WHEN r.certainty = 'exact' AND (d.dirtiers > 1 OR NOT r.direct AND d.id IS NOT NULL AND (
            -- Others may have dirtied it before the recording, while events were lost, or it may
            -- be another of the same number on the disk or in another subvolume.
            r.machine_lost >= d.since OR (r.in_bracket AND r.dirty_since < $start)
            OR sd.disk IS NOT NULL OR sv.ino IS NOT NULL))
        THEN 'ambiguous' ELSE r.certainty END AS certainty,
    d.dirtiers::INTEGER AS dirtiers, own.ino IS NOT NULL AS own, $b.id AS row
FROM $bios
LEFT JOIN dirtied_by d ON r.id = d.id
LEFT JOIN in_phase p ON r.id = p.id
LEFT JOIN undirtied o ON r.id = o.id
LEFT JOIN shared_disks sd ON r.disk = sd.disk
LEFT JOIN subvolumes sv ON r.fs = sv.fs AND r.ino = sv.ino
LEFT JOIN own_inodes own ON r.fs = own.fs AND r.ino = own.ino
LEFT JOIN files f
    ON r.fs = f.dev AND r.ino = f.ino AND coalesce(r.root, 0) = coalesce(f.root, 0)
LEFT JOIN freed z ON r.fs = z.fs AND r.ino = z.ino
) ORDER BY ts, row
"""
_CARRIED = (
    "submissions b LEFT JOIN carried c ON b.id = c.id"
    " JOIN submissions r ON r.id = coalesce(c.top, b.id)"
)
"""Each bio (b), and the bio (r) whose data it carries: it may be the same."""


def _build(trace: Trace) -> None:
    for table in _OPTIONAL:
        trace.empty_if_missing(table)
    make_volumes(trace)
    make_threads(trace)
    make_phase_times(trace)
    make_submissions(trace)
    trace.create(_DIRTIER, empty=not make_dirtiers(trace))
    stages = trace.create(_STAGES_SQL, empty=trace.is_empty("phases"))
    trace.create(_PHASE, empty=not stages)
    make_undirtied(trace)
    sql = _SQL
    carried = make_carried(trace)
    disks = [
        dev for (dev,) in trace.rows("SELECT DISTINCT dev FROM submissions WHERE dev IS NOT NULL")
    ]
    for name, text in {
        "$start": str(trace.manifest["clock"]["start_ns"]),
        "$below": below_others(trace, disks),
        "$bios": _CARRIED if carried else "submissions r",
        "$b.": "b." if carried else "r.",
    }.items():
        sql = sql.replace(name, text)
    trace.execute(sql)
    trace.drop(*_STEPS_ON_THE_WAY)


FLUSHES = View(
    VIEW,
    "One row per write bio, in order of time.",
    (
        TS,
        DEV,
        Column("sector", Type.UINT64, "first sector", "sectors"),
        Column("nr_sector", Type.INT64, "length", "sectors"),
        Column("rwbs", Type.TEXT, "operation and flags, as the kernel writes them"),
        Column("page", Type.UINT64, "its first page on the device", "pages"),
        Column("pages", Type.INT64, "pages of 4096 bytes that it covers", "pages"),
        Column("ino", Type.UINT64, "inode; null: not known"),
        Column("root", Type.UINT64, "btrfs: the subvolume in which `ino` counts"),
        Column(
            "path",
            Type.TEXT,
            "a name of the file at the end of the recording; null: removed, metadata, or not found",
        ),
        Column(
            "reason",
            Type.TEXT,
            "background, periodic, sync, vmscan, ... as the flusher names it; fsync (and O_SYNC "
            "writes); journal; direct; other",
        ),
        Column("call", Type.TEXT, "system call in which it was submitted"),
        Column("pid", Type.INT32, "process that submitted it"),
        Column("comm", Type.TEXT, "name of that thread"),
        Column(
            "dirtier",
            Type.INT32,
            "process that last dirtied a page of the inode, or wrote directly",
        ),
        Column("dirtier_comm", Type.TEXT, "name of that process"),
        Column("dirtied_ns", Type.INT64, "time at which it did so last", "ns"),
        Column(
            "target", Type.TEXT, "target of the dirtier; null also if the dirtiers have several"
        ),
        Column(
            "container",
            Type.TEXT,
            "id of the dirtier's container; null also if the dirtiers have several",
        ),
        Column(
            "phase",
            Type.TEXT,
            "data_load, model_load, train or inference of the dirtier; if that marks none, or is "
            "not known: of the only process that marks some",
        ),
        COLUMN,
        Column("certainty", Type.TEXT, "exact, ambiguous, inferred or unknown"),
        Column("dirtiers", Type.INT32, "processes seen to dirty the inode since it was last clean"),
        Column("own", Type.BOOL, "belongs to a file of the recorder"),
        Column("row", Type.INT64, "row of its event in the table block"),
        Column(
            "below",
            Type.BOOL,
            "its data has a row of its own on a device above (loop, device mapper, md, bcache)",
        ),
    ),
    needs=("block",),
    build=_build,
    example="SELECT reason, certainty, sum(pages) FROM flushes WHERE NOT own GROUP BY ALL",
)


def flushes(trace: Trace) -> str:
    """Makes the view `flushes` and returns its name. `FLUSHES` gives columns and units.

    Needs the table block; other tables make the answers more certain. A process that writes to a
    page that is already dirty, within a tick of another process, leaves no event.
    """
    return FLUSHES.make(trace)
