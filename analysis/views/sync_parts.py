"""The parts of a wait for the journal: what the journal's thread did while a thread waited for it.

A part lasts from one mark to the next one of the same thread:

- journal: an earlier commit, changes under way that belong to it, or the journal's blocks;
- data: the thread submits the data of files in the commit, and waits for it. It waits for data
  first, then for the journal's blocks. So once all that it submitted itself is written, the rest of
  the time until the commit record is for data that the flusher submitted;
- flush: from the first bio that has the device empty its cache, mostly the commit record. On a file
  system without barriers the record is the commit's last bio, and ends the part `data`.

A bio is written when a completion covers its first sector. Bios whose completion is not known do
not count.

With the mount option journal_async_commit, the record is written before the data has arrived; the
part `data` is then too short.
"""

from __future__ import annotations

from tracer.analysis.views.data_owners import make_no_owners, split_by_owner
from tracer.analysis.views.volumes import make_partitions
from tracer.store.trace import Trace

PAGES, JOURNAL, DATA, FLUSH = "pages", "journal", "data", "flush"
AWAITED = {
    PAGES: "the pages of its own file",
    JOURNAL: "the file system's journal",
    DATA: "data of files in the same commit of the journal",
    FLUSH: "the device, which empties its cache",
}
"""The details of waits of calls that make data durable, in words."""

_COMMITS = """
CREATE OR REPLACE TEMP TABLE commits AS
SELECT tid, if(last = 'commit_flushing', flushing, ts) AS flushing, ts AS logging, ended FROM (
    SELECT tid, ts, event, lead(ts) OVER by_thread AS ended, lead(event) OVER by_thread AS next,
        lag(ts) OVER by_thread AS flushing, lag(event) OVER by_thread AS last
    FROM journal_rows
    WHERE event IN ('commit_start', 'commit_flushing', 'commit_logging', 'commit_end')
    WINDOW by_thread AS (PARTITION BY tid ORDER BY ts, row)
) WHERE event = 'commit_logging' AND next = 'commit_end'
"""

_WRITES = """
CREATE OR REPLACE TEMP TABLE commit_writes AS
WITH writes AS (
    SELECT c.tid, c.logging, c.ended, b.ts, b.row, coalesce(p.disk, b.dev) AS disk, b.sector,
        b.ts < c.logging AS data, starts_with(b.rwbs, 'F') AS flushes
    FROM commits c JOIN block_rows b ON b.tid = c.tid AND b.ts >= c.flushing AND b.ts < c.ended
    LEFT JOIN partitions p ON b.dev = p.dev
    WHERE b.event = 'bio_queue' AND (b.nr_sector > 0 OR starts_with(b.rwbs, 'F'))
)
SELECT *, row = coalesce(arg_min(row, ts) FILTER (flushes AND NOT data) OVER by_commit,
    arg_max(row, ts) FILTER (NOT data) OVER by_commit) AS record
FROM writes WINDOW by_commit AS (PARTITION BY tid, logging)
"""

_WRITTEN = """
CREATE OR REPLACE TEMP TABLE commits_written AS
WITH done AS (
    SELECT w.tid, w.logging, w.row, w.data, w.ts AS queued, min(e.ts) AS ts
    FROM commit_writes w JOIN (
        SELECT b.*, coalesce(p.disk, b.dev) AS disk FROM block b LEFT JOIN partitions p USING (dev)
        WHERE event = 'complete' AND nr_sector > 0
    ) e ON e.disk = w.disk AND e.ts > w.ts AND e.ts < w.ended
        AND w.sector >= e.sector AND w.sector < e.sector + e.nr_sector::UBIGINT
    WHERE NOT w.record GROUP BY ALL
), records AS (
    SELECT tid, logging, min(ts) AS record, bool_or(flushes) AS flushes FROM commit_writes
    WHERE record GROUP BY ALL
)
SELECT r.*, max(d.ts) FILTER (d.data) AS data, max(d.ts) FILTER (d.queued < r.record) AS own
FROM records r LEFT JOIN done d USING (tid, logging) GROUP BY ALL
"""

# Of several marks at one time, the last one.
_MARKS = f"""
CREATE OR REPLACE TEMP TABLE commit_marks AS
SELECT tid, ts, arg_max(part, place) AS part FROM (
    SELECT tid, ts, CASE event WHEN 'commit_flushing' THEN '{DATA}' ELSE '{JOURNAL}' END AS part,
        CASE event WHEN 'commit_end' THEN 9 ELSE 1 END AS place
    FROM journal_rows
    WHERE event IN ('commit_start', 'commit_flushing', 'commit_logging', 'commit_end')
    UNION ALL
    SELECT tid, logging, '{DATA}', 2 FROM commits_written WHERE data > logging
    UNION ALL
    SELECT tid, data, '{JOURNAL}', 3 FROM commits_written WHERE data > logging AND data < record
    UNION ALL
    SELECT tid, greatest(own, logging), '{DATA}', 4 FROM commits_written WHERE own < record
    UNION ALL
    SELECT tid, record, if(flushes, '{FLUSH}', '{JOURNAL}'), 5 FROM commits_written
) GROUP BY tid, ts
"""

_PIECES = f"""
CREATE OR REPLACE TEMP TABLE sync_pieces AS
WITH whole AS (
    SELECT row, ts, ts::HUGEINT + dur_ns AS upto, by_tid FROM wait_parts
    WHERE detail = '{JOURNAL}' AND kind = 'sync' AND dur_ns > 0 AND by_tid IS NOT NULL
), pieces AS (
    SELECT w.row, w.ts AS began, w.upto, w.ts, coalesce(m.part, '{JOURNAL}') AS part
    FROM whole w ASOF LEFT JOIN commit_marks m ON w.by_tid = m.tid AND w.ts >= m.ts
    UNION ALL
    SELECT w.row, w.ts, w.upto, m.ts, m.part
    FROM whole w JOIN commit_marks m ON w.by_tid = m.tid AND m.ts > w.ts AND m.ts < w.upto
), joined AS (
    -- Marks that follow one another with the same part make one piece.
    SELECT * FROM pieces
    QUALIFY part IS DISTINCT FROM lag(part) OVER (PARTITION BY row, began ORDER BY ts)
)
SELECT row, began, ts, part, CAST(coalesce(lead(ts) OVER (PARTITION BY row, began ORDER BY ts),
    upto) - ts AS BIGINT) AS dur_ns
FROM joined
"""

_SPLIT = """
CREATE OR REPLACE TEMP TABLE wait_parts AS
SELECT w.* REPLACE (coalesce(s.ts, w.ts) AS ts, coalesce(s.dur_ns, w.dur_ns) AS dur_ns,
    coalesce(s.part, w.detail) AS detail)
FROM wait_parts w LEFT JOIN sync_pieces s ON w.row = s.row AND w.ts = s.began AND w.kind = 'sync'
"""


def split(trace: Trace) -> None:
    """Splits the waits for the journal in `wait_parts` where the journal's thread went on.

    `wait_parts` has row, ts, dur_ns, kind, detail and by_tid, among others. A wait for the journal
    has the kind sync and the detail journal. Its pieces follow one another and fill it. The owners
    of data split those for data, too; makes their table `data_owners`
    (`tracer.analysis.views.data_owners`).
    """
    make_no_owners(trace)
    found = f"SELECT 1 FROM wait_parts WHERE kind = 'sync' AND detail = '{JOURNAL}' LIMIT 1"
    if "journal" not in trace.tables or not trace.rows(found):
        return
    trace.empty_if_missing("block")
    make_partitions(trace)
    for made in (_COMMITS, _WRITES, _WRITTEN, _MARKS, _PIECES, _SPLIT):
        trace.execute(made)
    split_by_owner(trace)
    for table in ("commits", "commit_writes", "commits_written", "commit_marks", "sync_pieces"):
        trace.execute(f"DROP TABLE {table}")
