"""The dirtyings of a trace: which pages became dirty, when, and by which process.

An event of dirtying has no size, so pages are counted from the later writes (`pairing.py`). A write
to a page that is already dirty leaves no event. At settings that write sooner than the recorded
ones, the dirtyings alone therefore give fewer pages than would be written (`regenerate.py`).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pandas as pd
import pyarrow as pa
from numpy.typing import NDArray

from tracer.analysis.flushlayer.flusher import paired, pairing
from tracer.analysis.flushlayer.flusher.lives import FILE, in_life, make_lives
from tracer.analysis.flushlayer.flusher.named_flushes import make_named_flushes
from tracer.analysis.flushlayer.flusher.pieces import paired_pieces
from tracer.analysis.flushlayer.flusher.places import cached_runs, passed_runs
from tracer.analysis.flushlayer.trace.page_count import (
    BYTES_A_PAGE,
    MODEL_PAGE,
    pages_of_kernel,
)
from tracer.analysis.views.disks.volumes import make_device_inodes, make_volumes, of_bios, of_files
from tracer.analysis.views.view import apart
from tracer.analysis.views.writing.flushes import flushes
from tracer.store.devices import Devices
from tracer.store.trace import Trace

_BYTES_A_PAGE = 2 * BYTES_A_PAGE
"""Memory per written page [assumed]."""
_TABLES = ("dirty", "inode_writeback", "writeback", "file_writes", "syscalls", "processes")


@dataclass(frozen=True)
class Dirtyings:
    """The dirtyings of a trace, and the writes of dirtied pages at the recorded settings.

    Pages have 4096 bytes, on a kernel with larger ones, too.

    `inodes`, one row per file: dev (as write-back events name it), ino, life (how many files had
    the number before, see `lives.py`), device_page (for the inode of a block device: its first page
    on the disk; -1: the inode of a file). `pieces`, one row per run of pages that became dirty at
    once: ts (ns), inode (row of `inodes`), index (first page in the file; from paired.NOWHERE on:
    not known), pages, dirtier (pid, -1: not known), page (first page written on the disk; -1: not
    written), until (ns: written, or no longer dirty), how (paired.HOW). `marks`: ts and inode of
    each event that made an inode dirty, with pages or without. `written`, one row per run of
    dirtied pages that a bio writes: ts, inode, reason, pages. `passed`: writes without a dirtied
    page (journal, direct, unknown inode), which no knob moves, one row per run of consecutive
    pages: ts, dev, reason, dirtier, page (first page on the disk), pages, inode (row of `inodes`;
    NO_FILE or NOT_MAPPED of `file_pages`), index (first page in the file; 0 without one).
    `counts`: numbers of what was left out or inferred, by name.
    """

    inodes: pd.DataFrame
    pieces: pd.DataFrame
    marks: pd.DataFrame
    written: pd.DataFrame
    passed: pd.DataFrame
    start_ns: int
    end_ns: int
    counts: dict[str, int]

    @property
    def notes(self) -> list[str]:
        """Sentences about what was inferred."""
        how = self.pieces.groupby("how")["pages"].sum()
        total = int(self.written["pages"].sum())
        earlier = int(how.get(paired.EARLIER, 0))
        said = [
            f"the file system gave the position in the file of {self.counts['pages_told']} of"
            f" {total} pages; the positions of the others are inferred (record the probe extents)",
            f"{earlier} of {total} pages were written without an event of dirtying: they count as"
            " dirty since their inode was, or since the start",
            f"{int(how.get(paired.UNWRITTEN, 0))} pages were still dirty at the end and"
            f" {int(how.get(paired.DROPPED, 0))} were dropped unwritten: their number is inferred"
            " from their neighbours in the file",
            "a write to a page that is already dirty leaves no event: at settings that write sooner"
            " than the recorded ones, least has too few pages, most may have too many (each dirty"
            " page is dirtied again whenever its inode is marked dirty); stores to mapped memory"
            " show in neither",
        ]
        if self.counts["page_bytes"] > MODEL_PAGE:
            said.append(
                f"the kernel's pages have {self.counts['page_bytes']:,} bytes: for its thresholds,"
                f" one is dirty as a whole; the model counts only the parts of {MODEL_PAGE} bytes"
                " that were written"
            )
        if self.counts["elsewhere"]:
            said.append(
                f"{self.counts['elsewhere']} dirtyings on devices without a recorded write-back"
                " are left out (network, memory)"
            )
        if self.counts["mixed"]:
            said.append(
                f"{self.counts['mixed']} inode numbers belong to files on several file systems of"
                " one disk: an event of dirtying does not tell these files apart, and the model"
                " takes each such number for one file"
            )
        if self.counts["untold"]:
            said.append(
                f"{self.counts['untold']} inode numbers were freed and used again, but this does"
                " not tell that the file ended (xfs frees blocks of files that live on, and another"
                " file system of the disk may have the number): the model takes each for one file"
            )
        if self.counts["no_ends"]:
            said.append(
                "no event tells of the end of a file: if a new file has the number of a removed"
                " one, both are one file (record the probe file_writes)"
            )
        return said


def dirtyings(trace: Trace) -> Dirtyings:
    """Returns the dirtyings of a trace, without those of the recorder's own files.

    Needs the tables block and dirty; inode_writeback and file_writes make inference more exact.
    Without file_writes, a new file with the number of a removed one is that file. Raises BadTrace
    if dirty is missing or the trace claims more pages than a disk can have, and UsageError if the
    pages do not fit in memory.
    """
    trace.require("dirty")
    flushes(trace)
    for table in _TABLES:
        trace.empty_if_missing(table)
    make_volumes(trace)
    unit = pages_of_kernel(trace)
    _name_devices(trace, unit)
    make_lives(trace)
    clock = trace.manifest["clock"]
    make_named_flushes(trace, unit, _BYTES_A_PAGE)
    cached, told = cached_runs(trace, trace.sql(_BIOS))
    passed, files = passed_runs(trace, trace.sql(_PASSED))
    folios = trace.sql(_FOLIOS)
    marks = trace.sql(_MARKS.replace("$start", str(clock["start_ns"])))
    visits = trace.sql(_VISITS)
    inodes, codes = _numbered(cached, folios, marks, visits, files)
    inode = passed.pop("file").to_numpy(copy=True)
    inode[inode >= 0] = codes[4][inode[inode >= 0]]
    passed = passed.assign(inode=inode)
    of_devices = trace.sql("SELECT disk AS dev, ino, first_page AS device_page FROM device_inodes")
    inodes = inodes.merge(of_devices, how="left", on=["dev", "ino"]).fillna({"device_page": -1})
    inodes = inodes.astype({"device_page": np.int64})
    last = [frame["ts"].max() for frame in (cached, folios) if len(frame)]
    end = clock["end_ns"] if clock["end_ns"] is not None else max(last, default=clock["start_ns"])
    start = clock["start_ns"]
    pieces = paired_pieces(cached, folios, visits, codes, inodes, told, start, end, unit)
    counts = {
        "elsewhere": int(
            trace.sql(
                "SELECT count(*) n FROM dirtied_folios ANTI JOIN written_devices USING (dev)"
            )["n"].iloc[0]
        ),
        "mixed": int(trace.rows(_MIXED)[0][0]),
        "untold": int(trace.rows(_UNTOLD)[0][0]),
        "no_ends": int("file_writes" not in trace.tables),
        "uncertain": int((cached["certainty"] == "unknown").sum()),
        "pages_told": int((told >= 0).sum()),
        "page_bytes": unit * MODEL_PAGE,
    }
    written = pd.DataFrame(
        {
            "ts": cached["ts"],
            "inode": codes[0],
            "reason": cached["reason"].astype(str),
            "pages": cached["pages"],
        }
    )
    marked = pd.DataFrame({"ts": marks["ts"], "inode": codes[2]})
    return Dirtyings(inodes, pieces, marked, written, passed, start, int(end), counts)


def _name_devices(trace: Trace, unit: int) -> None:
    """Makes the tables `own`, `dirtied_folios`, `written_devices` and `device_inodes`.

    Their column dev has the name of write-back events. The index counts pages of 4096 bytes, of
    which a page of the kernel has `unit`. `own` has the files that do not count: those of the
    recorder and of loop devices, which are written to the loop devices before.
    """
    trace.execute(
        "CREATE OR REPLACE TEMP TABLE own AS SELECT DISTINCT disk AS dev, ino FROM own_inodes"
    )
    trace.execute(
        f"""
        CREATE OR REPLACE TEMP TABLE written_devices AS
        SELECT DISTINCT disk AS dev FROM {of_bios("flushes")}
        """
    )
    written = [
        dev
        for (dev,) in trace.rows(
            "SELECT dev FROM written_devices WHERE dev IS NOT NULL ORDER BY dev"
        )
    ]
    devices = Devices(trace.manifest)
    again = [
        {"dev": disk, "ino": one.ino}
        for one in devices.carrying(written)
        if one.ino is not None
        for disk in devices.disks(one.name)
    ]
    if again:
        trace.append("own", [pa.Table.from_pylist(again)])
    trace.execute(
        f"""
        CREATE OR REPLACE TEMP TABLE dirtied_folios AS
        SELECT ts, row, pid, tid, dev, ino, "index" * {unit} AS "index"
        FROM dirty_rows ANTI JOIN own USING (dev, ino)
        WHERE event = 'dirty_folio' AND ino IS NOT NULL AND "index" < {paired.NOWHERE // unit}
        """
    )
    make_device_inodes(trace, written)


_FOLIOS = f"""
SELECT ts, dev, ino, life, "index"::BIGINT AS "index", coalesce(pid, -1) AS who
FROM {in_life("(FROM dirtied_folios SEMI JOIN written_devices USING (dev))")} ORDER BY ts, row
"""

_CACHED = """(
    SELECT * EXCLUDE (dirtier) REPLACE (metadata OR EXISTS (
        SELECT 1 FROM device_inodes d WHERE d.disk = n.dev AND d.ino = n.ino) AS metadata)
    FROM named_flushes n WHERE ino IS NOT NULL AND reason != 'direct'
)"""
# The start of a write-out tells a folio that it writes from one that was dirtied again meanwhile.
_BIOS = f"""
WITH cached AS (
    SELECT * FROM {in_life(_CACHED)}
), begun AS (
    SELECT ts, dev, ino, {apart("ts", "age")} AS since FROM inode_writeback WHERE event = 'start'
    UNION ALL
    SELECT ts, disk, ino, NULL FROM {of_files("file_writes")}
    WHERE event IN ('writepages_start', 'map_blocks')
), last_begun AS (
    SELECT dev, ino, ts, max(since) AS since FROM begun GROUP BY ALL
)
SELECT c.* EXCLUDE (born_ns),
    CASE WHEN {apart("c.ts", "b.ts")} < 60000000000 AND b.ts >= coalesce(c.born_ns, b.ts)
        THEN b.ts ELSE c.ts END AS started,
    -- A file was not dirty before the number was its own.
    coalesce(greatest(CASE WHEN b.ts >= coalesce(c.born_ns, b.ts) THEN b.since END, c.born_ns),
        {paired.NEVER}) AS since
FROM cached c ASOF LEFT JOIN last_begun b ON c.dev = b.dev AND c.ino = b.ino AND c.ts >= b.ts
ORDER BY c.ts, c.row, c.page
"""

_MIXED = f"""
SELECT count(*) FROM (
    SELECT disk, ino FROM {of_bios("flushes")}
    WHERE NOT own AND NOT below AND ino IS NOT NULL AND NOT contains(rwbs, 'M')
    GROUP BY ALL HAVING count(DISTINCT fs) > 1
)
"""

# Folios that are dirtied later were dirtied by a file that may be a new one.
_UNTOLD = """
SELECT count(*) FROM (
    SELECT dev, ino, min(ts) AS ts FROM ended WHERE NOT told GROUP BY ALL
) e SEMI JOIN dirtied_folios d ON e.dev = d.dev AND e.ino = d.ino AND d.ts >= e.ts
"""

_PASSED = """
SELECT ts, dev, page, pages, reason, dirtier, bio_dev, sector, nr_sector, metadata
FROM named_flushes WHERE ino IS NULL OR reason = 'direct' ORDER BY ts, row, page
"""

# Kernel threads mark inodes as they write them; with other settings they would at other times.
_MARKS = f"""
WITH kernel AS (
    SELECT DISTINCT tid FROM processes WHERE role IN ('flusher', 'journal')
), marked AS (
    SELECT ts, dev, ino FROM dirty
    ANTI JOIN kernel USING (tid) ANTI JOIN own USING (dev, ino)
    WHERE event = 'mark_inode_dirty' AND ino IS NOT NULL
), first_visit AS (
    SELECT dev, ino, min({apart("ts", "age")}) AS ts, min(ts) AS seen FROM inode_writeback
    ANTI JOIN own USING (dev, ino) WHERE event = 'start' AND age IS NOT NULL GROUP BY ALL
), found AS (
    SELECT ts, dev, ino FROM marked SEMI JOIN written_devices USING (dev)
    UNION ALL
    SELECT ts, dev, ino FROM first_visit SEMI JOIN written_devices USING (dev)
    WHERE ts < $start AND ts IS NOT NULL
)
SELECT ts, dev, ino, life FROM {in_life("found")} ORDER BY ts
"""

# The flusher wrote the whole file, unless it was told to stop before.
_VISITS = f"""
WITH steps AS (
    SELECT ts, event, dev, ino, nr_to_write, wrote,
        lag(ts) OVER by_thread AS began, lag(event) OVER by_thread AS before,
        lag(ino) OVER by_thread AS whose
    FROM inode_writeback_rows WHERE event IN ('start', 'end')
    WINDOW by_thread AS (PARTITION BY tid ORDER BY ts, row)
), visits AS (
    SELECT ts, dev, ino, began AS started FROM steps ANTI JOIN own USING (dev, ino)
    WHERE event = 'end' AND before = 'start' AND whose = ino AND wrote < nr_to_write
)
SELECT ts, dev, ino, life, started, {pairing.VISITED} AS kind FROM {in_life("visits")}
UNION ALL
SELECT ts, dev, ino, life, ts, {pairing.FREED} FROM ended
ORDER BY 1
"""


def _numbered(*frames: pd.DataFrame) -> tuple[pd.DataFrame, list[NDArray[np.int32]]]:
    """Returns the files (FILE) of all frames, and each frame's rows as numbers of files."""
    keys = pd.concat([frame[[*FILE]] for frame in frames], ignore_index=True)
    keys["dev"] = keys["dev"].astype(str)
    numbers = keys.groupby([*FILE], sort=True).ngroup().to_numpy(np.int32)
    inodes = keys.drop_duplicates().sort_values([*FILE], ignore_index=True)
    ends = np.cumsum([len(frame) for frame in frames])
    return inodes, np.split(numbers, ends[:-1])
