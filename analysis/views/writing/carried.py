"""Bios that carry the data of a bio to a stacked device, and that bio.

Device mapper and md hand bios on: the event `remap` names the place that a bio came from and the
place that it goes to. A bio follows the last remap to its place. A partition adds a remap of its
own. A loop device on a block device has no such event: its sectors are those of that device.
Neither has bcache: the thread that writes to it sends the copies itself, to the device behind and
to the cache. A layer that keeps data and writes it to the disk later (dm-writecache, dm-cache,
bcache) hands on what it takes, but its later writes carry no known bio.

A read is followed by remaps alone. A loop device reads ahead, and bcache reads for itself, too: no
event tells these reads from those that they hand on.
"""

from __future__ import annotations

from tracer.analysis.views.disks.requests import OPERATION
from tracer.analysis.views.disks.volumes import make_partitions, make_stacked
from tracer.analysis.views.view import make_once
from tracer.store.trace import Trace

UPPER_READS = "upper_reads"
"""The table of `make_upper_reads`."""

_MOST_LEVELS = 16
"""Most stacked devices on each other that are followed."""
_SECTORS_A_PAGE = 8
_LONGEST = 1 << 23
"""Most sectors of a bio: the kernel counts its bytes in 32 bits."""

# Bios and remaps of one operation: a read at the place of a write has nothing to do with it.
_MOVES = f"""
CREATE OR REPLACE TEMP TABLE moves AS
SELECT row, lag(row) OVER (PARTITION BY tid ORDER BY row) AS behind, event = 'remap' AS remap,
    dev, sector, nr_sector, from_dev, from_sector
FROM block_rows
WHERE sector IS NOT NULL AND {OPERATION} = '$operation'
    AND (event = 'bio_queue' AND nr_sector > 0 OR event = 'remap' AND from_dev IS NOT NULL)
"""

# Each row: a bio, and its origin, which a remap from a stacked device to its place on a whole disk
# names. A remap by a partition takes its origin from the remap to the same place on that partition:
# the one that its thread logged right before, as device mapper hands bios on, or else the last one.
# The next one at that place is of another bio, perhaps of the partition itself.
_HANDED = """
CREATE OR REPLACE TEMP TABLE handed AS
WITH to_partitions AS (
    SELECT m.row, m.behind, m.dev, m.sector, m.from_dev AS part, m.from_sector AS within
    FROM moves m JOIN partitions p ON remap AND m.from_dev = p.dev AND m.dev = p.disk
), from_stacked AS (
    SELECT m.row, m.dev, m.sector, m.from_dev, m.from_sector, s.below
    FROM moves m JOIN stacked s ON remap AND m.from_dev = s.dev AND m.dev = s.disk
), at_once AS (
    SELECT p.row, p.dev, p.sector, f.from_dev, f.from_sector, f.row AS handed_by
    FROM to_partitions p JOIN from_stacked f
        ON p.behind = f.row AND p.part = f.below AND p.dev = f.dev AND p.within = f.sector
), later AS (
    SELECT p.row, p.dev, p.sector, f.from_dev, f.from_sector, f.row AS handed_by
    FROM (SELECT * FROM to_partitions ANTI JOIN at_once USING (row)) p ASOF JOIN from_stacked f
        ON p.part = f.below AND p.dev = f.dev AND p.within = f.sector AND p.row >= f.row
), origins AS (
    SELECT row, dev, sector, from_dev, from_sector FROM from_stacked WHERE below = dev
    UNION ALL
    SELECT row, dev, sector, from_dev, from_sector FROM (
        SELECT *, 0 AS turn FROM at_once UNION ALL SELECT *, 1 FROM later)
    QUALIFY row_number() OVER (PARTITION BY handed_by ORDER BY turn, row) = 1
), ordered AS (
    SELECT row, dev, sector, nr_sector, remap, lag(remap) OVER place AS follows,
        lag(row) OVER place AS before
    FROM (
        SELECT row, dev, sector, nr_sector, false AS remap FROM moves WHERE NOT remap
        UNION ALL SELECT row, dev, sector, 0, true FROM origins
    ) WINDOW place AS (PARTITION BY dev, sector ORDER BY row)
)
SELECT b.row, o.from_dev AS dev, o.from_sector AS sector, b.nr_sector
FROM ordered b JOIN origins o ON NOT b.remap AND b.follows AND o.row = b.before
"""
_LOOPS = """
INSERT INTO handed
SELECT b.row, l.dev, b.sector - l.first, b.nr_sector
FROM moves b JOIN stacked_loops l
    ON NOT b.remap AND b.dev = l.disk AND b.sector >= l.first AND b.sector < l."end"
"""

# A stacked device may split a bio: its parts begin within it. The last bio at a place is the one
# whose data is handed on, also if the part begins where an older bio did.
_CARRIED = f"""
CREATE OR REPLACE TEMP TABLE carried AS
WITH uppers AS (
    SELECT row AS id, dev, sector, nr_sector FROM moves
    WHERE NOT remap AND dev IN (SELECT dev FROM stacked)
), same AS MATERIALIZED (
    SELECT h.row, h.dev, h.sector, u.id, coalesce(h.nr_sector < u.nr_sector, true) AS is_part
    FROM handed h
    ASOF LEFT JOIN uppers u ON h.dev = u.dev AND h.sector = u.sector AND h.row >= u.id
), splitting AS (
    SELECT DISTINCT dev FROM same WHERE is_part
), touched AS (
    SELECT id, dev, sector, nr_sector, unnest(range((sector // {_SECTORS_A_PAGE})::BIGINT,
        ((sector + nr_sector - 1) // {_SECTORS_A_PAGE})::BIGINT + 1)) AS page
    FROM uppers WHERE nr_sector <= {_LONGEST} AND dev IN (SELECT dev FROM splitting)
), within AS (
    SELECT s.row, s.dev, t.id, t.sector FROM (
        SELECT *, (sector // {_SECTORS_A_PAGE})::BIGINT AS page FROM same) s
    ASOF JOIN touched t ON s.dev = t.dev AND s.page = t.page AND s.row >= t.id
    WHERE s.sector >= t.sector AND s.sector < t.sector + t.nr_sector
)
SELECT s.row AS id, greatest(s.id, w.id) AS top,
    CAST(CASE WHEN w.id > coalesce(s.id, -1) THEN s.sector - w.sector ELSE 0 END AS HUGEINT)
        AS ahead
FROM same s LEFT JOIN within w USING (row, dev)
WHERE s.id IS NOT NULL OR w.id IS NOT NULL
"""
_UP = """
UPDATE carried SET top = c.top, ahead = carried.ahead + c.ahead FROM carried c
WHERE carried.top = c.id
"""

# bcache hands on what a thread writes in that thread: to the device behind, at the same place, and
# to its cache, at any place. A thread may have sent several writes before the copies of the first
# one come. Copies in a cache whose length is not that of the writes before them stay unknown.
_COPIED = f"""
INSERT INTO carried
WITH writes AS MATERIALIZED (
    SELECT row, tid, dev, sector, nr_sector, contains(rwbs, 'M') AS metadata FROM block_rows
    WHERE event = 'bio_queue' AND nr_sector > 0 AND sector IS NOT NULL AND {OPERATION} = 'write'
), uppers AS (
    SELECT * FROM writes WHERE dev IN (SELECT dev FROM stacked_caches)
), behind AS (
    SELECT l.row, u.row AS top, 0::HUGEINT AS ahead FROM (
        SELECT w.row, w.tid, w.nr_sector, c.dev, w.sector - c.first AS sector
        FROM writes w JOIN stacked_caches c ON c.in_order
            AND w.dev = c.disk AND w.sector >= c.first AND w.sector < c."end") l
    ASOF JOIN uppers u
        ON l.tid = u.tid AND l.dev = u.dev AND l.sector = u.sector AND l.row >= u.row
    WHERE l.nr_sector = u.nr_sector
), steps AS (
    SELECT u.row, u.tid, u.nr_sector, c.disk, c.first, true AS is_upper
    FROM uppers u JOIN stacked_caches c ON NOT c.in_order AND u.dev = c.dev
    UNION
    -- Several devices may share a cache. Its own metadata is marked; copies of data never are.
    SELECT w.row, w.tid, w.nr_sector, c.disk, c.first, false
    FROM writes w JOIN stacked_caches c ON NOT c.in_order AND NOT w.metadata
        AND w.dev = c.disk AND w.sector >= c.first AND w.sector < c."end"
), turns AS (
    SELECT *, is_upper AND NOT coalesce(lag(is_upper) OVER steps_of, false) AS is_first FROM steps
    WINDOW steps_of AS (PARTITION BY tid, disk, first ORDER BY row)
), runs AS (
    SELECT *, count(*) FILTER (is_first) OVER (PARTITION BY tid, disk, first ORDER BY row
        ROWS UNBOUNDED PRECEDING) AS run FROM turns
), summed AS (
    SELECT row, tid, disk, first, run, is_upper, sum(nr_sector) OVER until - nr_sector AS done,
        sum(nr_sector) FILTER (is_upper) OVER whole
            = sum(nr_sector) FILTER (NOT is_upper) OVER whole AS adds_up
    FROM runs WINDOW whole AS (PARTITION BY tid, disk, first, run),
        until AS (PARTITION BY tid, disk, first, run, is_upper ORDER BY row
            ROWS UNBOUNDED PRECEDING)
), in_caches AS (
    SELECT l.row, u.row AS top, l.done - u.done AS ahead
    FROM (SELECT * FROM summed WHERE NOT is_upper AND adds_up) l
    ASOF JOIN (SELECT * FROM summed WHERE is_upper) u
        ON l.tid = u.tid AND l.disk = u.disk AND l.first = u.first AND l.run = u.run
        AND l.done >= u.done
)
SELECT c.row, max(c.top), arg_max(c.ahead, c.top)
FROM (SELECT * FROM behind UNION ALL SELECT * FROM in_caches) c
ANTI JOIN carried k ON c.row = k.id GROUP BY c.row
"""

_UPPER = """
CREATE OR REPLACE TEMP TABLE $places AS
SELECT c.id AS row, t.dev AS upper_dev, try_cast(t.sector + c.ahead AS UBIGINT) AS upper_sector
FROM carried c JOIN moves t ON c.top = t.row WHERE upper_sector IS NOT NULL
"""
_NO_UPPER = """
CREATE OR REPLACE TEMP TABLE $places (row BIGINT, upper_dev VARCHAR, upper_sector UBIGINT)
"""


def make_carried(trace: Trace) -> bool:
    """Makes the tables `carried` and `upper_places` of writes; returns whether they have a row.

    `carried`: id (a bio's row in the table block), top (that of the bio to the uppermost device
    whose data it carries) and ahead (the sectors of that bio before its own). Without a stacked
    device there is no such table. `upper_places`: row (as id), upper_dev and upper_sector (the
    place of its data on the uppermost device). Needs the table block.
    """
    return _make_places(trace, "upper_places", "write")


def make_upper_reads(trace: Trace) -> None:
    """Makes the table `upper_reads`, once: that of reads as `upper_places` is that of writes.

    Needs the table block.
    """
    make_once(trace, UPPER_READS, _build_upper_reads)


def _build_upper_reads(trace: Trace) -> None:
    _make_places(trace, UPPER_READS, "read")
    trace.drop("carried")


def _make_places(trace: Trace, places: str, operation: str) -> bool:
    if not make_stacked(trace):
        trace.execute(_NO_UPPER.replace("$places", places))
        return False
    make_partitions(trace)
    trace.execute(_MOVES.replace("$operation", operation), _HANDED)
    if operation == "write":
        trace.execute(_LOOPS)
    trace.execute(_CARRIED)
    if operation == "write" and trace.rows("SELECT 1 FROM stacked_caches LIMIT 1"):
        trace.execute(_COPIED)
    for _ in range(_MOST_LEVELS):
        if not trace.rows("SELECT 1 FROM carried a JOIN carried b ON a.top = b.id LIMIT 1"):
            break
        trace.execute(_UP)
    trace.execute(_UPPER.replace("$places", places))
    trace.drop("stacked", "stacked_loops", "stacked_caches", "moves", "handed")
    return bool(trace.rows("SELECT 1 FROM carried LIMIT 1"))
