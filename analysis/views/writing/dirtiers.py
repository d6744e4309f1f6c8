"""The processes that dirtied an inode's pages since all of its pages were last clean.

A write to a page that is already dirty leaves no event of its own. On ext4 it marks the inode if it
changes the file's times: once a tick, whichever process is the first to write in it. On xfs and
btrfs it does not. So a process that writes only to dirty pages may not be seen.

Every process that dirtied a page of the inode, or marked the inode while it had dirty pages, since
its last complete write-out may have a part in the next one. These write-outs are complete: a
flusher's bracket after which no page of the inode is dirty, ext4's write-out of a whole file that
waits, and the system calls fsync and fdatasync on xfs and btrfs. A removed file has no dirty pages,
either. Kernel threads, and a process that marks a file during ext4's write-out of it, dirty no page
of their own and have no part.

A flusher's bracket names the disk. On a disk that several file systems share, it belongs to the
file systems that it wrote to. If it wrote nothing, or if their places on the disk are not known, it
belongs to none.
"""

from __future__ import annotations

from tracer.analysis.views.calls_around import LATEST
from tracer.analysis.views.disks.volumes import of_files
from tracer.analysis.views.threads import owns
from tracer.store.trace import Trace

_LOOK_AT = 200_000
"""Number of events that are searched for the kernel's bit for dirty pages."""

# Marking a folio dirty marks its inode at once. include/linux/fs.h has had several values for that
# flag, and the print format does not give it.
_DIRTY_PAGES = f"""
SELECT mode(flags) AS bit FROM (
    SELECT event, flags, ino, lag(event) OVER by_thread AS before, lag(ino) OVER by_thread AS whose
    FROM (SELECT * FROM dirty_rows WHERE event != 'balance_dirty_pages' LIMIT {_LOOK_AT})
    WINDOW by_thread AS (PARTITION BY tid ORDER BY ts, row)
) WHERE event = 'mark_inode_dirty' AND before = 'dirty_folio' AND ino = whose
    AND flags > 0 AND flags & (flags - 1) = 0
"""

# One number per written inode: it joins faster than two names.
_NODES = """
CREATE OR REPLACE TEMP TABLE nodes AS
SELECT disk, fs, ino, row_number() OVER () AS node FROM (
    SELECT DISTINCT disk, fs, ino FROM submissions WHERE ino IS NOT NULL AND NOT metadata
)
"""

_CLEANED = f"""
CREATE OR REPLACE TEMP TABLE cleaned AS
WITH inodes AS (
    SELECT ts, tid, event, dev AS disk, ino, state, lag(ts) OVER by_thread AS start,
        lag(event) OVER by_thread AS before,
        lag(ino) OVER by_thread = ino AND lag(dev) OVER by_thread = dev AS same
    FROM inode_writeback_rows WHERE event IN ('start', 'end')
    WINDOW by_thread AS (PARTITION BY tid ORDER BY ts, row)
), files AS (
    SELECT ts, tid, event, fs, ino, "offset", "last", nr_to_write, sync_mode,
        lead(ts) OVER by_thread AS "end", lead(event) OVER by_thread AS after,
        lead(ino) OVER by_thread = ino AND lead(fs) OVER by_thread = fs AS same
    FROM {of_files("file_writes_rows")}
    WHERE event IN ('writepages_start', 'writepages_end', 'fsync')
    WINDOW by_thread AS (PARTITION BY tid ORDER BY ts, row)
), freed AS (
    -- A removed file has no dirty pages: the next file of its number begins clean.
    SELECT fs, ino, ts FROM {of_files("file_writes")}
    WHERE event = 'free_inode' AND ino IS NOT NULL
), by_file_system AS (
    SELECT fs, ino, ts AS start, ts AS "end" FROM freed
    UNION ALL
    SELECT fs, ino, ts, "end" FROM files
    WHERE event = 'writepages_start' AND after = 'writepages_end' AND same
        AND "offset" = 0 AND "last" = 9223372036854775807 AND sync_mode = 1
        AND nr_to_write > 4611686018427387904
    UNION ALL
    SELECT fs, ino, f.ts, c.returned
    FROM (SELECT * FROM files WHERE event = 'fsync') f
    ASOF JOIN calls_of_fsyncs c ON f.tid = c.tid AND f.ts >= c.ts
    WHERE c.call IN ('fsync', 'fdatasync') AND f.ts <= c.returned AND c.returned < {LATEST}
), found AS (
    SELECT node, start, "end" FROM by_file_system JOIN nodes USING (fs, ino)
    UNION ALL
    SELECT node, start, ts AS "end" FROM inodes i JOIN nodes USING (disk, ino), ({_DIRTY_PAGES})
    WHERE event = 'end' AND before = 'start' AND same AND state & bit = 0
        AND (disk NOT IN (FROM shared_disks) OR EXISTS (
            FROM submissions s WHERE s.in_bracket AND s.by_tid = i.tid AND s.bracket_at = start
                AND s.at_ns <= i.ts AND s.fs = nodes.fs AND s.ino = nodes.ino AND s.fs != disk))
), ordered AS (
    SELECT node, max(start) AS since, "end" FROM found GROUP BY node, "end"
), later AS (
    -- A write-out that began before another one, and ended later, adds nothing.
    SELECT node, since, "end", max(since) OVER (PARTITION BY node ORDER BY "end"
        ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING) AS known
    FROM ordered QUALIFY known IS NULL OR since > known
)
SELECT node, since, "end", row_number() OVER (PARTITION BY node ORDER BY "end") AS number FROM later
UNION ALL
SELECT node, -1, -1, 0 FROM nodes
"""

_DIRTIED = f"""
CREATE OR REPLACE TEMP TABLE dirtied AS
WITH asked AS (
    -- Kernel threads dirty inodes as they write them, or for another process.
    SELECT ts, row, d.tid, node, d.ino, d.pid, p.life, event = 'dirty_folio' AS folio
    FROM dirty_rows d JOIN nodes n ON d.dev = n.disk AND d.ino = n.ino
    ANTI JOIN (SELECT * FROM threads WHERE kernel) k ON {owns("k", "d")}
    LEFT JOIN threads p ON {owns("p", "d", "pid")}
    WHERE event IN ('dirty_folio', 'mark_inode_dirty')
), marks AS (
    -- A process that writes out pages marks their inode, too.
    SELECT m.*, s.latest.event = 'writepages_start' AND s.latest.ino = m.ino AS writes_out
    FROM (SELECT * FROM asked WHERE NOT folio) m
    ASOF LEFT JOIN file_steps s ON m.tid = s.tid AND m.ts >= s.ts
)
SELECT * EXCLUDE (tid, ino) FROM asked WHERE folio
UNION ALL
SELECT * EXCLUDE (tid, ino, writes_out) FROM marks WHERE writes_out IS DISTINCT FROM true
"""

# Pages dirtied during a write-out belong to it or to the next one: they count for both.
_PARTS = """
CREATE OR REPLACE TEMP TABLE parts AS
WITH held AS (
    SELECT h.* EXCLUDE (number), c.since FROM (
        -- From the last write-out that had ended to the last one that had begun.
        SELECT d.*, unnest(range(o.number, greatest(o.number, b.number) + 1)) AS number
        FROM dirtied d ASOF JOIN cleaned o ON d.node = o.node AND d.ts >= o."end"
        ASOF JOIN cleaned b ON d.node = b.node AND d.ts >= b.since
    ) h JOIN cleaned c ON h.node = c.node AND h.number = c.number
), begun AS (
    SELECT node, since, min(ts) AS first_page FROM held WHERE folio GROUP BY ALL
), firsts AS (
    -- Before the first dirty page, a mark of the inode stands for no page.
    SELECT node, since, pid, life, min(ts) AS ts FROM held JOIN begun USING (node, since)
    WHERE ts >= first_page GROUP BY ALL
)
SELECT node, since, f.ts, f.pid, f.life, count(*) OVER until AS dirtiers,
    count(t.target) OVER until AS mine, count(f.life) OVER until AS known,
    CASE WHEN min(coalesce(t.target, '')) OVER until = max(coalesce(t.target, '')) OVER until
        THEN t.target END AS target,
    CASE WHEN min(coalesce(t.container, '')) OVER until = max(coalesce(t.container, '')) OVER until
        THEN t.container END AS container
FROM firsts f LEFT JOIN threads t ON f.life = t.life
-- Processes whose parts begin at the same time count together.
WINDOW until AS (PARTITION BY node, since ORDER BY f.ts RANGE UNBOUNDED PRECEDING)
"""


def make_dirtiers(trace: Trace) -> bool:
    """Makes the tables `nodes`, `cleaned`, `dirtied` and `parts` for the inodes in `submissions`.

    Returns whether the dirtier of a bio may be known. If not, the tables but `nodes` are empty.

    `nodes`: a number (node) for each inode (disk, fs, ino). `cleaned`: node, since and end (ns):
    from `end` on, only pages dirtied from `since` on can be dirty; number (of the node's row, in
    order of time). `dirtied`: ts, row (of the table dirty), node, pid, life (of the process, in
    `threads`; null: not known), folio (true: a page; false: only the inode). `parts`, a row
    when a process begins to have a part: node, since (of `cleaned`), ts, pid, life, dirtiers
    (processes until now), mine (of them of targets), known (of them in the table processes), target
    and container (null: not the same for all of them).

    Needs what `make_submissions` needs, and the table dirty, which may be empty.
    """
    nodes = trace.create(_NODES)
    dirtied = trace.create(_DIRTIED, empty=not nodes or trace.is_empty("dirty"))
    known = bool(dirtied or trace.rows("SELECT 1 FROM submissions WHERE direct LIMIT 1"))
    trace.create(_CLEANED, empty=not known)
    trace.create(_PARTS, empty=not dirtied)
    return known
