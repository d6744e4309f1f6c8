"""Heat maps of write-backs: by place on the disk and time, and by file and time.

Disks are large, and most of their pages are never written. Each disk is therefore cut into pieces
of equal size (a power of two of pages). The size is the smallest one for which the number of
written pieces is within the limit. The written pieces, in the order of their place, are the rows.
Pieces without writes are left out.
"""

from __future__ import annotations

import pandas as pd

from tracer.analysis.timeline.axis import Axis
from tracer.analysis.timeline.lane import Kind, Lane
from tracer.analysis.views.writing.flushes import flushes
from tracer.store.trace import Trace

MOST_COLUMNS = 600
MOST_ROWS = 400
MOST_FILES = 25
_LARGEST_RUN = 1 << 17
"""Most pages of one write bio that are drawn: 512 MiB."""
_MOST_PARTS = 20_000_000
_FIRST_SHIFT = 8
_LAST_SHIFT = 62
_OTHERS = "all other files"
_NO_FILE = "no file known (metadata, journal, or gone)"


def heat_lanes(trace: Trace, axis: Axis) -> list[Lane]:
    """Returns both heat maps, in at most `MOST_COLUMNS` bins. Empty heat maps are left out.

    Needs the table block.
    """
    coarse = axis.coarser(MOST_COLUMNS)
    lanes = [places(trace, coarse), files(trace, coarse)]
    return [lane for lane in lanes if len(lane.frame)]


def places(trace: Trace, axis: Axis, most_rows: int = MOST_ROWS) -> Lane:
    """Returns the pages written back by place and time, without the recorder's own files.

    Columns: from_s, to_s, row (number of the piece, from 0, in the order of dev and page), dev,
    first_page and last_page of the piece, pages (written back to it in that time; a page that is
    written twice counts twice). Cells without pages have no row. Needs the table block.
    """
    _make_runs(trace, axis)
    shift = _make_pieces(trace, most_rows)
    frame = trace.sql(
        f"""
        WITH ranked AS (
            SELECT disk, piece, row_number() OVER (ORDER BY disk, piece) - 1 AS row
            FROM (SELECT DISTINCT disk, piece FROM heat_pieces)
        ), cells AS (
            SELECT disk, piece, bin, sum(pages) AS pages FROM heat_pieces GROUP BY ALL
        )
        SELECT {axis.span("bin")}, row::INTEGER AS row, dev,
            piece * (1::UBIGINT << {shift}) AS first_page,
            (piece + 1) * (1::UBIGINT << {shift}) - 1 AS last_page, pages::BIGINT AS pages
        FROM cells JOIN ranked USING (disk, piece) JOIN heat_disks USING (disk) ORDER BY row, bin
        """
    )
    long = trace.sql(f"SELECT count(*) AS n FROM heat_runs WHERE pages > {_LARGEST_RUN}")
    trace.drop("heat_runs", "heat_pieces", "heat_disks")
    size = (1 << shift) * 4096
    notes = [
        f"Each row is a piece of a disk of {_size(size)}, aligned to its size. Pieces without"
        " writes are left out."
    ]
    if n := int(long["n"].iloc[0]):
        notes.append(f"{n:,} write bios are longer than 512 MiB; only their start is drawn.")
    title = "Pages written back, by place and time"
    query = _cut_query("dev", _runs_query(flushes(trace), axis), shift)
    return Lane("Heat maps", title, "pages", Kind.PLACES, frame, " ".join(notes), query)


def _runs_query(view: str, axis: Axis) -> str:
    """Returns SQL for the runs of pages: one row per place, length and bin."""
    return (
        "SELECT coalesce(dev, 'not known') AS dev, page::UBIGINT AS page, pages,"
        f" {axis.bin('ts')} AS bin, count(*) AS times FROM {view}"
        f" WHERE NOT own AND NOT below AND pages > 0 AND {axis.within('ts')} GROUP BY ALL"
    )


def _make_runs(trace: Trace, axis: Axis) -> None:
    """Makes the tables `heat_runs`, see `_runs_query`, and `heat_disks`, which numbers disks."""
    query = _runs_query(flushes(trace), axis)
    trace.execute(f"CREATE OR REPLACE TEMP TABLE heat_runs AS {query}")
    trace.execute(
        "CREATE OR REPLACE TEMP TABLE heat_disks AS"
        " SELECT dev, row_number() OVER (ORDER BY dev) - 1 AS disk"
        " FROM (SELECT DISTINCT dev FROM heat_runs)"
    )


def _make_pieces(trace: Trace, most_rows: int) -> int:
    """Makes the table of written pieces. Returns the power of two of the pages in a piece."""
    shift = _FIRST_SHIFT
    while shift < _LAST_SHIFT and _parts(trace, shift) > _MOST_PARTS:
        shift += 2
    _cut(trace, shift)
    if _pieces(trace) <= most_rows:
        # There are few pieces, so smaller ones are tried while the intermediate rows stay few.
        finer = shift
        while finer > 0 and _parts(trace, finer - 1) <= _MOST_PARTS:
            _cut(trace, finer - 1)
            if _pieces(trace) > most_rows:
                break
            finer -= 1
        _cut(trace, finer)
        return finer
    while _pieces(trace) > most_rows and shift < _LAST_SHIFT:
        shift += 1
        trace.execute(
            "CREATE OR REPLACE TEMP TABLE heat_pieces AS"
            " SELECT disk, piece // 2 AS piece, bin, sum(pages) AS pages"
            " FROM heat_pieces GROUP BY ALL"
        )
    return shift


def _parts(trace: Trace, shift: int) -> float:
    """Returns the number of intermediate rows that `_cut` would make."""
    found = trace.sql(
        f"SELECT sum((least(pages, {_LARGEST_RUN}) >> {shift}) + 2)::DOUBLE AS n FROM heat_runs"
    )["n"].iloc[0]
    return float(found) if found == found else 0.0


def _pieces(trace: Trace) -> int:
    found = trace.sql("SELECT count(*) AS n FROM (SELECT DISTINCT disk, piece FROM heat_pieces)")
    return int(found["n"].iloc[0])


def _cut(trace: Trace, shift: int) -> None:
    """Cuts the runs of pages into the table `heat_pieces`."""
    query = _cut_query("disk", "FROM heat_runs JOIN heat_disks USING (dev)", shift)
    trace.execute(f"CREATE OR REPLACE TEMP TABLE heat_pieces AS {query}")


def _cut_query(disk: str, runs: str, shift: int) -> str:
    """Returns SQL for the pages of each piece of 2^shift pages and each bin.

    `runs`: a query for page, pages, bin, times, and the column `disk`.
    """
    size = f"(1::UBIGINT << {shift})"
    return f"""
        WITH runs AS (
            SELECT {disk}, bin, times, page, page + least(pages, {_LARGEST_RUN})::UBIGINT AS beyond
            FROM ({runs})
        ), parts AS (
            SELECT *, unnest(range((page // {size})::BIGINT, ((beyond - 1) // {size})::BIGINT + 1))
                ::UBIGINT AS piece
            FROM runs
        )
        SELECT {disk}, piece, bin,
            sum((least(beyond, (piece + 1) * {size}) - greatest(page, piece * {size}))::DOUBLE
                * times) AS pages
        FROM parts GROUP BY ALL
        """


def files(trace: Trace, axis: Axis, most: int = MOST_FILES) -> Lane:
    """Returns the pages written back by file and time, without the recorder's own files.

    Columns: from_s, to_s, row (0 is the file with the most pages; the last row may be all other
    files), file (path, or "inode N of DEV" if the path is not known), pages. Cells without pages
    have no row. Needs the table block.
    """
    name = (
        "CASE WHEN path IS NOT NULL THEN path WHEN ino IS NOT NULL"
        f" THEN concat('inode ', ino, ' of ', dev) ELSE '{_NO_FILE}' END"
    )
    rows = f"SELECT ts, {name} AS file, pages FROM {flushes(trace)} WHERE NOT own AND NOT below"
    frame, query = by_file(trace, axis, rows, most)
    return Lane("Heat maps", "Files written back, by time", "pages", Kind.FILES, frame, "", query)


def by_file(
    trace: Trace, axis: Axis, rows: str, most: int = MOST_FILES
) -> tuple[pd.DataFrame, str]:
    """Returns the frame of a heat map of files, and the SQL that gives its numbers.

    `rows`: a query for ts (ns), file and pages. Columns: as those of `files`.
    """
    query = (
        f"SELECT file, {axis.bin('ts')} AS bin, sum(pages) AS pages"
        f" FROM ({rows}) WHERE pages > 0 AND {axis.within('ts')} GROUP BY ALL"
    )
    frame = trace.sql(
        f"""
        WITH cells AS MATERIALIZED ({query}), ranked AS (
            SELECT file, row_number() OVER (ORDER BY sum(pages) DESC, file) AS place,
                count(*) OVER () AS of
            FROM cells GROUP BY file
        )
        SELECT {axis.span("bin")}, (least(place, {most}) - 1)::INTEGER AS row,
            CASE WHEN place < {most} OR of <= {most} THEN file ELSE '{_OTHERS}' END AS file,
            least(sum(pages), 9e18)::BIGINT AS pages
        FROM cells JOIN ranked USING (file)
        GROUP BY bin, least(place, {most}), 4 ORDER BY row, bin
        """
    )
    return frame, query


def _size(bytes_: int) -> str:
    """Formats a power of two of bytes, for example "64 KiB"."""
    units = ("B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB", "ZiB")
    power = (bytes_.bit_length() - 1) // 10
    return f"{bytes_ >> 10 * power} {units[power]}"


def table_of(lane: Lane) -> pd.DataFrame:
    """Returns the files of the lane `files` by pages.

    Columns: row (from 1), file, pages, share (of all pages; the shares sum to 1).
    """
    sums = lane.frame.groupby(["row", "file"], as_index=False)["pages"].sum()
    sums["row"] += 1
    whole = max(1, int(sums["pages"].sum()))
    return pd.DataFrame(sums.assign(share=sums["pages"] / whole))
