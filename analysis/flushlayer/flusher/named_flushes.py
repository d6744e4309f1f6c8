"""The write bios of a trace, with the device's own inode where they write its dirtied pages.

ext4 dirties its metadata as pages of the inode of its device. If the flusher does not write them
in time, a journal that makes room for itself does, and no event names the inode then. A page that
it writes is one of that inode if the page was dirtied since it was last written. Each page of a bio
counts by itself: blocks of the journal, or of a file, may lie beside it.
"""

from __future__ import annotations

from tracer.analysis.flushlayer.trace.page_count import MOST_PAGES, check_pages
from tracer.analysis.views.disks.volumes import of_bios
from tracer.analysis.views.writing.submissions import SECTORS_PER_PAGE
from tracer.store.trace import Trace

_BIOS = f"""
CREATE OR REPLACE TEMP TABLE written_bios AS
SELECT ts, disk AS dev, ino, page::BIGINT AS page, pages, reason, certainty, dirtier,
    dev AS bio_dev, sector, nr_sector, row, contains(rwbs, 'M') AS metadata,
    ino IS NOT NULL AND reason != 'direct' AS cached
FROM {of_bios("flushes")} WHERE NOT own AND NOT below AND pages > 0
"""

# A page of the kernel has $unit pages; those of a partition need not begin where those of its disk
# do.
_NAMED = f"""
CREATE OR REPLACE TEMP TABLE named_flushes AS
WITH begins AS (
    SELECT DISTINCT disk AS dev, first_page % $unit AS begin FROM device_inodes
), dirtied AS (
    SELECT d.dev, i.first_page % $unit AS begin, ("index"::BIGINT + i.first_page) // $unit AS n,
        d.ts, min(d.ino) AS ino
    FROM dirtied_folios d JOIN device_inodes i ON d.dev = i.disk AND d.ino = i.ino GROUP BY ALL
), asked AS (
    SELECT b.row, b.ts, b.dev, b.ino, unnest(range(b.page, b.page + b.pages)) AS page
    FROM written_bios b SEMI JOIN (SELECT DISTINCT dev FROM dirtied) d ON b.dev = d.dev
    WHERE b.reason != 'direct' AND b.pages <= {MOST_PAGES} AND (b.ino IS NULL OR EXISTS (
        SELECT 1 FROM device_inodes i WHERE i.disk = b.dev AND i.ino = b.ino))
), pages AS (
    SELECT *, lag(ts) OVER (PARTITION BY dev, page ORDER BY ts, row) AS before FROM asked
), placed AS (
    SELECT p.row, p.page, p.ts, p.dev, p.before, g.begin, (p.page - g.begin) // $unit AS n
    FROM pages p JOIN begins g ON p.dev = g.dev WHERE p.ino IS NULL AND p.page >= g.begin
), named AS (
    SELECT p.row, p.page, min(d.ino) AS ino FROM placed p ASOF JOIN dirtied d
        ON p.dev = d.dev AND p.begin = d.begin AND p.n = d.n AND p.ts >= d.ts
    WHERE p.before IS NULL OR d.ts > p.before GROUP BY ALL
), told AS (
    SELECT p.row, p.page, n.ino,
        p.page - row_number() OVER (PARTITION BY p.row, n.ino ORDER BY p.page) AS run
    FROM pages p SEMI JOIN named s ON p.row = s.row
    LEFT JOIN named n ON p.row = n.row AND p.page = n.page
), runs AS (
    SELECT row, ino, min(page) AS page, count(*) AS pages FROM told GROUP BY row, ino, run
), cut AS (
    SELECT b.row, r.ino, r.page, r.pages,
        greatest(b.sector::HUGEINT, r.page::HUGEINT * {SECTORS_PER_PAGE}) AS first,
        least(b.sector::HUGEINT + b.nr_sector, (r.page + r.pages)::HUGEINT * {SECTORS_PER_PAGE})
            AS "end"
    FROM runs r JOIN written_bios b ON r.row = b.row
)
SELECT b.* EXCLUDE (cached) FROM written_bios b ANTI JOIN cut c ON b.row = c.row
UNION ALL
SELECT b.* EXCLUDE (cached) REPLACE (c.ino AS ino, c.page AS page, c.pages AS pages,
    c.first::UBIGINT AS sector, (c."end" - c.first)::BIGINT AS nr_sector)
FROM written_bios b JOIN cut c ON b.row = c.row
"""


def make_named_flushes(trace: Trace, unit: int, bytes_a_page: int) -> None:
    """Makes the table `named_flushes`: the bios that count, one row per run of pages of an inode.

    Columns: ts (ns), dev (the disk), ino (null: not known), page (the first on the disk), pages,
    reason, certainty, dirtier, bio_dev (as the bio names it), sector, nr_sector, row (in the table
    block) and metadata (by its flags). Needs the view flushes and the tables `dirtied_folios` and
    `device_inodes`. `unit`: how many pages a page of the kernel has. Raises the errors of
    `check_pages`, with `bytes_a_page` of memory per page.
    """
    trace.execute(_BIOS)
    pages = trace.sql("SELECT pages FROM written_bios WHERE cached OR pages <= ?", MOST_PAGES)
    check_pages(trace, pages["pages"].to_numpy(), bytes_a_page)
    trace.execute(_NAMED.replace("$unit", str(unit)))
    trace.drop("written_bios")
