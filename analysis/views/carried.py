"""Write bios that carry the data of a bio to a stacked device, and that bio.

Device mapper and md hand bios on: the event `remap` names the place that a bio came from and the
place that it goes to. A bio follows the last remap to its place. A partition adds a remap of its
own. A loop device on a block device has no such event: its sectors are those of that device. A
layer that keeps data and writes it to the disk later (dm-writecache, dm-cache, bcache) hands on
what it takes, but its later writes carry no known bio.
"""

from __future__ import annotations

from tracer.analysis.views.requests import OPERATION
from tracer.analysis.views.volumes import make_partitions, make_stacked
from tracer.store.trace import Trace

_MOST_LEVELS = 16
"""Most stacked devices on each other that are followed."""
_SECTORS_A_PAGE = 8

# Each row: a bio, or a remap from a stacked device, at its place on a whole disk. A remap by a
# partition takes its origin from the remap to the same place on that partition.
_HANDED = f"""
CREATE OR REPLACE TEMP TABLE handed AS
WITH moves AS (
    SELECT row, event = 'remap' AS remap, dev, sector, from_dev, from_sector
    FROM block_rows
    WHERE sector IS NOT NULL AND {OPERATION} = 'write'
        AND (event = 'bio_queue' AND nr_sector > 0 OR event = 'remap' AND from_dev IS NOT NULL)
), to_partitions AS (
    SELECT m.row, m.dev, m.sector, m.from_dev AS part, m.from_sector AS within
    FROM moves m JOIN partitions p ON remap AND m.from_dev = p.dev AND m.dev = p.disk
), from_stacked AS (
    SELECT m.row, m.dev, m.sector, m.from_dev, m.from_sector, s.below
    FROM moves m JOIN stacked s ON remap AND m.from_dev = s.dev AND m.dev = s.disk
), origins AS (
    SELECT row, dev, sector, from_dev, from_sector FROM from_stacked WHERE below = dev
    UNION ALL
    SELECT p.row, p.dev, p.sector, f.from_dev, f.from_sector
    FROM to_partitions p ASOF JOIN from_stacked f
        ON p.part = f.below AND p.dev = f.dev AND p.within = f.sector AND p.row >= f.row
), ordered AS (
    SELECT row, dev, sector, remap, lag(remap) OVER place AS follows, lag(row) OVER place AS before
    FROM (
        SELECT row, dev, sector, false AS remap FROM moves WHERE NOT remap
        UNION ALL SELECT row, dev, sector, true FROM origins
    ) WINDOW place AS (PARTITION BY dev, sector ORDER BY row)
)
SELECT b.row, o.from_dev AS dev, o.from_sector AS sector FROM ordered b JOIN origins o
    ON NOT b.remap AND b.follows AND o.row = b.before
UNION ALL
SELECT b.row, l.dev, b.sector - l.first FROM (SELECT * FROM moves WHERE NOT remap) b
JOIN stacked_loops l ON b.dev = l.disk AND b.sector >= l.first AND b.sector < l."end"
"""

# A stacked device may split a bio: its parts begin within it.
_CARRIED = f"""
CREATE OR REPLACE TEMP TABLE carried AS
WITH uppers AS (
    SELECT id, dev, sector, nr_sector FROM submissions WHERE dev IN (SELECT dev FROM stacked)
), same AS (
    SELECT h.row, u.id, u.nr_sector FROM handed h
    ASOF JOIN uppers u ON h.dev = u.dev AND h.sector = u.sector AND h.row >= u.id
), within AS (
    SELECT h.* FROM handed h ANTI JOIN same USING (row)
), touched AS (
    SELECT id, dev, sector, nr_sector, unnest(range((sector // {_SECTORS_A_PAGE})::BIGINT,
        ((sector + nr_sector - 1) // {_SECTORS_A_PAGE})::BIGINT + 1)) AS page
    FROM uppers WHERE dev IN (SELECT dev FROM within)
), parts AS (
    SELECT w.row, t.id FROM (
        SELECT *, (sector // {_SECTORS_A_PAGE})::BIGINT AS page FROM within) w
    ASOF JOIN touched t ON w.dev = t.dev AND w.page = t.page AND w.row >= t.id
    WHERE w.sector >= t.sector AND w.sector < t.sector + t.nr_sector
)
SELECT row AS id, id AS top FROM same UNION ALL SELECT row, id FROM parts
"""
_UP = "UPDATE carried SET top = c.top FROM carried c WHERE carried.top = c.id"


def make_carried(trace: Trace) -> bool:
    """Makes the table `carried`; returns whether it has a row.

    Columns: id (a write bio's row in the table block) and top (that of the bio to the uppermost
    device whose data it carries). Needs the tables block and `submissions`.
    """
    if not make_stacked(trace):
        return False
    make_partitions(trace)
    trace.execute(_HANDED)
    trace.execute(_CARRIED)
    for _ in range(_MOST_LEVELS):
        if not trace.rows("SELECT 1 FROM carried a JOIN carried b ON a.top = b.id LIMIT 1"):
            break
        trace.execute(_UP)
    for table in ("stacked", "stacked_loops", "handed"):
        trace.execute(f"DROP TABLE {table}")
    return bool(trace.rows("SELECT 1 FROM carried LIMIT 1"))
