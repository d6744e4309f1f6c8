"""The lives of inode numbers: which of the files that had one number an event is about.

A job that writes its checkpoint to a temporary file and renames it removes the old file, and ext4
gives that file's number to the next checkpoint. Events of dirtying and of the flusher name the disk
and the inode, the end of a file also names its file system. Where the files of a number may lie on
several file systems of a disk, and on xfs (`analysis/views/reading/inode_ends.py`), the files are
not told apart: the number has one life.
"""

from __future__ import annotations

from tracer.analysis.views.disks.volumes import of_bios, of_files
from tracer.analysis.views.reading.inode_ends import make_inode_ends
from tracer.store.trace import Trace

FILE = ("dev", "ino", "life")
"""The columns that tell a file from all others."""

# The place of a bio tells the file system, unless it is not known where partitions begin.
_ENDED = f"""
CREATE OR REPLACE TEMP TABLE ended AS
WITH freed AS (
    SELECT ts, disk AS dev, fs, ino, ends, n FROM {of_files("inode_ends")}
), bios AS (
    SELECT DISTINCT disk AS dev, fs, ino FROM {of_bios("flushes")}
    WHERE NOT own AND NOT below AND ino IS NOT NULL AND NOT coalesce(contains(rwbs, 'M'), false)
), placed AS (
    SELECT * FROM bios WHERE fs != dev
), systems AS (
    SELECT * FROM placed UNION SELECT dev, fs, ino FROM freed ANTI JOIN placed USING (dev, ino)
), counted AS (
    SELECT dev, ino, count(*) = 1 AS one FROM systems GROUP BY ALL
), anywhere AS (
    SELECT dev, ino FROM bios WHERE fs = dev AND dev IN (SELECT disk FROM shared_disks)
), known AS (
    SELECT f.*, f.ends AND c.one AND a.dev IS NULL AS told
    FROM freed f SEMI JOIN systems USING (dev, fs, ino) JOIN counted c USING (dev, ino)
    LEFT JOIN anywhere a ON f.dev = a.dev AND f.ino = a.ino
)
SELECT ts, dev, ino, told, if(told, n - 1, 0) AS life FROM known
"""
_LIVES = """
CREATE OR REPLACE TEMP TABLE lives AS
SELECT dev, ino, ts, max(life) + 1 AS life FROM ended WHERE told GROUP BY ALL
"""


def make_lives(trace: Trace) -> None:
    """Makes the tables `ended` and `lives`. Needs the view flushes and what `make_volumes` makes.

    `ended`: ts, dev (the disk) and ino of each inode that was freed; told (its number has lives);
    life (how many files had the number before this one; 0 if it has no lives). `lives`: dev, ino,
    life, and ts, from which on the number has this life.
    """
    make_inode_ends(trace)
    trace.execute(_ENDED, _LIVES)


def in_life(rows: str) -> str:
    """Returns SQL that adds the life to `rows`, a table or query with ts, dev (the disk) and ino.

    It adds the columns life (from 0) and born_ns (ns; null: the first life). Needs `lives`.
    """
    return f"""(
        SELECT r.*, coalesce(l.life, 0) AS life, l.ts AS born_ns
        FROM {rows} r ASOF LEFT JOIN lives l
            ON r.dev = l.dev AND r.ino = l.ino AND r.ts >= l.ts
    )"""
