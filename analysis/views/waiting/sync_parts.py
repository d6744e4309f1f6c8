"""The parts of a wait for the journal: what the journal's thread did while a thread waited for it.

A part lasts from one mark to the next one of the same thread:

- journal: an earlier commit, changes under way that belong to it, or the journal's blocks;
- data: the thread submits the data of files in the commit, and waits for it. It waits for data
  first, then for the journal's blocks. So once all that it submitted itself is written, the rest of
  the time until the commit record is for data that the flusher submitted;
- flush: from the first bio that has the device empty its cache, mostly the commit record. On a file
  system without barriers the record is the commit's last bio, and ends the part `data`.

A bio is written when completions have covered all of its sectors, since a device may take it in
several requests. Bios whose completion is not known do not count.

With the mount option journal_async_commit, the record is written before the data has arrived; the
part `data` is then too short.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import pyarrow as pa

from tracer.analysis.views.covering import Ints, Sectors, last_cover, meets, stops
from tracer.analysis.views.disks.volumes import make_partitions
from tracer.analysis.views.writing.data_owners import make_no_owners, split_by_owner
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

# The commits of a thread follow one another, so an event lies in the last one that began before it.
_WRITES = """
CREATE OR REPLACE TEMP TABLE commit_writes AS
WITH bios AS (
    SELECT * FROM block_rows
    WHERE event = 'bio_queue' AND (nr_sector > 0 OR starts_with(rwbs, 'F'))
        AND tid IN (SELECT tid FROM commits)
), writes AS (
    SELECT c.tid, c.logging, c.ended, b.ts, b.row, coalesce(p.disk, b.dev) AS disk, b.sector,
        b.nr_sector, b.ts < c.logging AS data, starts_with(b.rwbs, 'F') AS flushes
    FROM bios b ASOF JOIN (FROM commits WHERE ended > flushing) c
        ON b.tid = c.tid AND b.ts >= c.flushing
    LEFT JOIN partitions p ON b.dev = p.dev
    WHERE b.ts < c.ended
)
SELECT *, row = coalesce(arg_min(row, ts) FILTER (flushes AND NOT data) OVER by_commit,
    arg_max(row, ts) FILTER (NOT data) OVER by_commit) AS record
FROM writes WINDOW by_commit AS (PARTITION BY tid, logging)
"""

_WRITTEN = """
CREATE OR REPLACE TEMP TABLE commits_written AS
WITH done AS (
    SELECT w.tid, w.logging, w.data, w.ts AS queued, e.ts
    FROM commit_writes w JOIN bio_ends e USING (row) WHERE e.ts < w.ended
), records AS (
    SELECT tid, logging, min(ts) AS record, bool_or(flushes) AS flushes FROM commit_writes
    WHERE record GROUP BY ALL
)
SELECT r.*, max(d.ts) FILTER (d.data) AS data, max(d.ts) FILTER (d.queued < r.record) AS own
FROM records r LEFT JOIN done d USING (tid, logging) GROUP BY ALL
"""

_BIOS = """
SELECT disk, row, ts, sector, nr_sector FROM commit_writes
WHERE NOT record AND disk IS NOT NULL AND sector IS NOT NULL AND nr_sector > 0 ORDER BY ts, row
"""
_COMPLETIONS = """
SELECT coalesce(p.disk, b.dev) AS disk, ts, sector, nr_sector
FROM block_rows b LEFT JOIN partitions p USING (dev)
WHERE event = 'complete' AND nr_sector > 0 AND sector IS NOT NULL
    AND coalesce(p.disk, b.dev) IN (SELECT disk FROM commit_writes)
ORDER BY ts, row
"""
_NEVER = (1 << 63) - 1

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

# The marks within a wait follow the last one before it.
_PIECES = f"""
CREATE OR REPLACE TEMP TABLE sync_pieces AS
WITH marks AS (
    SELECT *, row_number() OVER (PARTITION BY tid ORDER BY ts) AS number FROM commit_marks
), whole AS (
    SELECT row, ts, ts::HUGEINT + dur_ns AS upto, by_tid FROM sync_waits
    WHERE detail = '{JOURNAL}' AND kind = 'sync' AND dur_ns > 0 AND by_tid IS NOT NULL
), begun AS (
    SELECT w.*, m.part, coalesce(m.number, 0) AS number
    FROM whole w ASOF LEFT JOIN marks m ON w.by_tid = m.tid AND w.ts >= m.ts
), within AS (
    SELECT b.* EXCLUDE (part, number), unnest(range(b.number + 1, m.number + 1)) AS number
    FROM begun b ASOF JOIN marks m ON b.by_tid = m.tid AND b.upto > m.ts
), pieces AS (
    SELECT row, ts AS began, upto, ts, coalesce(part, '{JOURNAL}') AS part FROM begun
    UNION ALL
    SELECT w.row, w.ts, w.upto, m.ts, m.part
    FROM within w JOIN marks m ON w.by_tid = m.tid AND w.number = m.number
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
CREATE OR REPLACE TEMP TABLE sync_waits AS
SELECT w.* REPLACE (coalesce(s.ts, w.ts) AS ts, coalesce(s.dur_ns, w.dur_ns) AS dur_ns,
    coalesce(s.part, w.detail) AS detail)
FROM sync_waits w LEFT JOIN sync_pieces s ON w.row = s.row AND w.ts = s.began AND w.kind = 'sync'
"""


def split(trace: Trace) -> None:
    """Splits the waits for the journal in `sync_waits` where the journal's thread went on.

    `sync_waits` has row, ts, dur_ns, kind, detail and by_tid, among others. A wait for the journal
    has the kind sync and the detail journal. Its pieces follow one another and fill it. The owners
    of data split those for data, too; makes their table `data_owners`
    (`tracer.analysis.views.writing.data_owners`).
    """
    make_no_owners(trace)
    found = f"SELECT 1 FROM sync_waits WHERE kind = 'sync' AND detail = '{JOURNAL}' LIMIT 1"
    if "journal" not in trace.tables or not trace.rows(found):
        return
    trace.empty_if_missing("block")
    make_partitions(trace)
    trace.execute(_COMMITS, _WRITES)
    _keep_bio_ends(trace)
    trace.execute(_WRITTEN, _MARKS, _PIECES, _SPLIT)
    split_by_owner(trace)
    trace.drop("commits", "commit_writes", "bio_ends", "commits_written", "commit_marks")
    trace.drop("sync_pieces")


def _keep_bio_ends(trace: Trace) -> None:
    """Makes the table bio_ends: row of a bio in `commit_writes`, and ts when all of it was written.

    The records of commits are left out, and so are bios with a sector that no completion covers.
    """
    bios = trace.sql(_BIOS)
    rows, ends = [np.zeros(0, np.int64)], [np.zeros(0, np.int64)]
    if len(bios):
        begin = bios["sector"].to_numpy(np.uint64)
        stop = stops(begin, bios["nr_sector"].to_numpy(np.int64))
        of_disk = _completions(trace, np.sort(begin), np.sort(stop))
        for disk, mine in bios.groupby("disk", sort=False).indices.items():
            done = of_disk.get(str(disk))
            if done is None:
                continue
            queued = bios["ts"].to_numpy(np.int64)[mine]
            written = last_cover(
                begin[mine],
                stop[mine],
                np.searchsorted(queued, done.ts),
                done.first,
                done.end,
                done.ts,
                _NEVER,
            )
            rows.append(bios["row"].to_numpy(np.int64)[mine][written < _NEVER])
            ends.append(written[written < _NEVER])
    trace.keep("bio_ends", pa.table({"row": np.concatenate(rows), "ts": np.concatenate(ends)}))


class _Done(NamedTuple):
    """Completions on a disk in order of time: ts (ns), first sector, the one behind the last."""

    ts: Ints
    first: Sectors
    end: Sectors


def _completions(trace: Trace, begins: Sectors, ends: Sectors) -> dict[str, _Done]:
    """Returns the completions on each disk that may be of bios in `commit_writes`.

    `begins` are the bios' first sectors, `ends` the ones behind them, each in ascending order.
    """
    disks, times, firsts, lasts = [], [], [], []
    for batch in trace.batches(_COMPLETIONS):
        first = batch["sector"].to_numpy()
        end = stops(first, batch["nr_sector"].to_numpy())
        near = meets(first, end, begins, ends)
        disks.append(batch["disk"].filter(pa.array(near)))
        times.append(batch["ts"].to_numpy()[near])
        firsts.append(first[near])
        lasts.append(end[near])
    if not disks:
        return {}
    names = pa.chunked_array(disks).to_pandas()
    ts, first, end = (np.concatenate(arrays) for arrays in (times, firsts, lasts))
    return {
        str(disk): _Done(ts[mine], first[mine], end[mine])
        for disk, mine in names.groupby(names, sort=False).indices.items()
    }
