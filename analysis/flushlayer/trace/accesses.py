"""A trace's page write-backs in time order: the input of the flush layer."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from enum import StrEnum
from functools import cached_property

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from tracer.analysis.flushlayer.trace.bio_parts import (
    BioParts,
    PageBegins,
    bio_parts,
    check_parts,
    page_begins,
    part_sectors,
)
from tracer.analysis.flushlayer.trace.file_paths import file_paths
from tracer.analysis.flushlayer.trace.loop_reads import (
    LoopFiles,
    LoopReads,
    loop_files,
    reads_of_loops,
)
from tracer.analysis.flushlayer.trace.page_count import check_pages
from tracer.analysis.flushlayer.trace.writers import Writers, taken, writers
from tracer.analysis.views.disks.requests import OPERATION
from tracer.analysis.views.disks.volumes import below_others, on_devices
from tracer.analysis.views.in_phase import with_phase
from tracer.analysis.views.reading.file_pages import NO_FILE, NOT_MAPPED, FilePages, file_pages
from tracer.analysis.views.threads import make_threads, owns
from tracer.analysis.views.writing.carried import UPPER_READS, make_upper_reads
from tracer.analysis.views.writing.flushes import flushes
from tracer.analysis.views.writing.submissions import SECTORS_PER_PAGE
from tracer.analysis.views.writing.whose import everybody_because
from tracer.store.devices import EVERYWHERE
from tracer.store.trace import Trace

PATH_NOT_KNOWN = "path not known"
_SECTOR = 512
_SUBMITTER = "CASE WHEN target IS NOT NULL THEN 'target' WHEN role IS NOT NULL THEN 'other' END"
"""SQL: the owner of a read or a flush, by the thread that submitted it."""
_WITH_THREAD = f"block_rows_in_phase b LEFT JOIN threads o ON {owns('o', 'b')}"
_UPPER_PLACE = """coalesce(upper_dev, dev) AS upper_dev,
 coalesce(upper_sector, sector) AS upper_sector"""


class Identity(StrEnum):
    """The identity of a page: two accesses with the same identity access the same page.

    BLOCK: device and page of the device, as in a layer below the file system. FILE: inode and page
    of the file, as in a layer below the page cache. PATH: as FILE, but a file that a rename puts in
    the place of another one has the other's pages. INDEX: page of the file alone, without the file,
    as the index in the kernel's events of dirtying. Pages of no file (metadata, journal) and pages
    of unknown files are identified by block, and pages of unknown paths by file.
    """

    BLOCK = "block"
    FILE = "file"
    PATH = "path"
    INDEX = "index"


@dataclass(frozen=True)
class Bios:
    """The bios of the pages, in time order; arrays of one length, with codes into `names`.

    ts (ns), row (in the table block), write, waited (somebody waits for it: S or F in rwbs), flush
    and fua (F before and after the operation in rwbs), device, sector (first sector of 512 bytes),
    sectors (length), first (its first page access), pages (0 for a flush alone), pid (submitting
    process), data (False: journal or metadata), reason, tenant, phase (codes; -1: not known).
    """

    ts: NDArray[np.int64]
    row: NDArray[np.int64]
    write: NDArray[np.bool_]
    waited: NDArray[np.bool_]
    flush: NDArray[np.bool_]
    fua: NDArray[np.bool_]
    device: NDArray[np.int16]
    sector: NDArray[np.uint64]
    sectors: NDArray[np.int64]
    first: NDArray[np.int64]
    pages: NDArray[np.int32]
    pid: NDArray[np.int64]
    data: NDArray[np.bool_]
    reason: NDArray[np.int16]
    tenant: NDArray[np.int16]
    phase: NDArray[np.int16]
    names: dict[str, list[str]]
    """Names of the codes of device, reason, tenant and phase."""
    begins: PageBegins | None = None
    """Begins of the pages of the accesses; None: pages begin at every eighth sector."""

    def __len__(self) -> int:
        return len(self.ts)

    def of_pages(self) -> NDArray[np.int64]:
        """Returns the number of the bio of each page access."""
        return np.repeat(np.arange(len(self)), self.pages)


@dataclass(frozen=True)
class Accesses:
    """Page accesses: `page[i]` is the dense id (0 ..) of the page of access i."""

    page: NDArray[np.int32]
    unique: int
    by_reason: dict[str, int]
    by_device: dict[str, int]
    own: int
    """Write-backs left out, because they are of files that the recorder itself wrote."""
    identity: Identity = Identity.BLOCK
    by_mapping: dict[str, int] = field(default_factory=dict)
    """Numbers of accesses: of known files (file), of no file, and not mapped. With identity PATH,
    also those of files of unknown paths (path not known), which are not in `file`. Empty by BLOCK.
    """
    bios: Bios | None = None
    writers: Writers | None = None
    """Writers of the pages; None: not known (regenerated write-back)."""
    below: dict[str, int] = field(default_factory=dict)
    """Pages left out by device: they are those of a stacked device above, which count."""
    loop_reads: LoopReads = field(default_factory=LoopReads)

    def __len__(self) -> int:
        return len(self.page)

    @cached_property
    def unique_written(self) -> int:
        """Distinct pages that were written. Pages that were only read do not size a layer."""
        if self.bios is None or self.bios.write.all():
            return self.unique
        return len(np.unique(self.page[self.bios.write[self.bios.of_pages()]]))


def page_writebacks(
    trace: Trace,
    devices: list[str] | None = None,
    identity: Identity = Identity.BLOCK,
    reads: bool = False,
    flushes_too: bool = False,
    all_writers: bool = False,
) -> Accesses:
    """Returns the page write-backs of a trace's targets; with `reads`, also their reads of devices.

    With `all_writers`, it returns the write-backs of all writers. It also does so if the trace has
    no targets or cannot attribute pages to them (`Accesses.writers` has the reason). With
    `flushes_too`, the bios include those that only flush a device's cache; these have no pages.

    Every write bio counts, for any reason, except those of the recorder's own files. A bio is one
    access to each page of 4096 bytes that it touches, in ascending order; a bio of 512 bytes is one
    access. `devices` limits the bios to some disks, partitions or file systems (MAJOR:MINOR, or a
    name of btrfs); a flush concerns a whole disk. Without `devices`, what a stacked device (loop,
    device mapper, md, bcache) hands on to the devices below counts once, on the uppermost one. The
    reads of a loop device below it are those of its file by threads of the kernel (`loop_reads`).
    A bio below a stacked device has the file of the bio above it; reads below loop devices and
    bcache have none. If several of `devices` have its data, the page of each of them is a page of
    its own.

    Raises the errors of `check_pages` for too many pages, and BadTrace if the trace does not record
    the start of a partition.
    """
    rows, loops = _rows(trace, devices, reads, flushes_too)
    pages = rows["pages"].to_numpy(np.uint64)
    check_pages(trace, pages)
    of_loops, loop_reads = reads_of_loops(trace, rows, loops)
    again = rows.pop("below").to_numpy(bool) | of_loops
    below = _sums(rows["dev"][again], pages[again].astype(np.int64))
    own = rows["own"].to_numpy(bool)
    own_pages = int(pages[own & ~again].sum())
    rows = rows[~own & ~again].reset_index(drop=True)
    parts, mapped, begins = _pages_of(trace, rows, identity)
    counts = np.bincount(parts.bio, minlength=len(rows))
    why = everybody_because(trace, all_writers)
    found_writers = writers(rows, counts, why)
    chosen = taken(rows, why)
    of_taken = chosen[parts.bio]
    kept, counts = rows[chosen].reset_index(drop=True), counts[chosen]
    begins = None if begins is None else begins.chosen(of_taken)
    bio = np.repeat(np.arange(len(kept)), counts)
    parts = replace(parts.chosen(of_taken), bio=bio)
    device_codes = pd.factorize(kept["dev"])[0]
    by_mapping: dict[str, int] = {}
    keys = _keys(device_codes[bio], parts.page)
    if mapped is not None:
        mapped = mapped.chosen(of_taken)
        copies = _copies(kept, parts)
        files, index = mapped.file, mapped.index
        found = files >= 0
        by_mapping = {
            "file": int(found.sum()),
            "no file": int((files == NO_FILE).sum()),
            "not mapped": int((files == NOT_MAPPED).sum()),
        }
        if identity is Identity.PATH:
            path, known = file_paths(trace, mapped.files)
            lost = int((~known[files[found]]).sum())
            by_mapping |= {"file": by_mapping["file"] - lost, PATH_NOT_KNOWN: lost}
            files[found] = path[files[found]]
        elif identity is Identity.INDEX:
            files[found] = 0
        beyond = keys.max(initial=0) + 1
        of = pd.factorize(files + (copies << 32))[0]
        keys = np.where(found, beyond + _keys(of, index.astype(np.uint64)), keys)
    dense, names = pd.factorize(keys)
    writes = counts * kept["write"].to_numpy(bool)
    return Accesses(
        dense.astype(np.int32),
        len(names),
        _sums(kept["reason"], writes),
        _sums(kept["dev"], writes),
        own_pages,
        identity,
        by_mapping,
        _bios(kept, counts, device_codes, begins),
        found_writers,
        below,
        loop_reads,
    )


def _rows(
    trace: Trace, devices: list[str] | None, reads: bool, flushes_too: bool
) -> tuple[pd.DataFrame, LoopFiles]:
    """Returns the bios in order of time, and the files of loop devices whose reads may be there."""
    view = flushes(trace)
    make_threads(trace)
    chosen = on_devices(trace, devices)
    if reads or flushes_too:
        with_phase(trace, "block_rows")
    place, joined = "dev, sector", _WITH_THREAD
    if reads and devices:
        make_upper_reads(trace)
        place, joined = _UPPER_PLACE, f"{_WITH_THREAD} LEFT JOIN {UPPER_READS} USING (row)"
    uppers = [] if devices else _written(trace, view)
    below = below_others(trace, uppers)
    files = LoopFiles()
    if reads and not devices:
        uppers = sorted({*uppers, *_read(trace)})
        files = loop_files(trace, uppers)
    below_too = below_others(trace, uppers, inodes=False)
    query = (
        "SELECT ts, row, dev, sector, page, pages, rwbs, pid, reason,"
        " coalesce(container, target) AS tenant, phase, own, true AS write,"
        f" nr_sector, whose, coalesce({below}, false) AS below,"
        " dirtier IS NULL AND (reason = 'journal' OR contains(rwbs, 'M')) AS of_all,"
        f" 0 AS by_kernel, {_UPPER_PLACE}"
        f" FROM {view} LEFT JOIN upper_places USING (row) WHERE pages > 0 AND {chosen}"
    )
    if reads:
        query += (
            f" UNION ALL SELECT ts, row, dev, sector, (sector // {SECTORS_PER_PAGE})::UBIGINT,"
            f" ((sector + nr_sector - 1) // {SECTORS_PER_PAGE}"
            f" - sector // {SECTORS_PER_PAGE} + 1)::BIGINT, rwbs, b.pid, NULL,"
            " coalesce(o.container, o.target), stage, false, false, nr_sector,"
            f" {_SUBMITTER}, {below_too}, false,"
            f" if({files.place} AND NOT contains(rwbs, 'M'), coalesce(o.kernel::TINYINT, -1), 0),"
            f" {place} FROM {joined}"
            " WHERE event = 'bio_queue' AND nr_sector > 0 AND sector IS NOT NULL"
            f" AND {OPERATION} = 'read' AND {chosen}"
        )
    if flushes_too:
        query += (
            " UNION ALL SELECT ts, row, dev, 0::UBIGINT, 0::UBIGINT, 0::BIGINT, rwbs, b.pid, NULL,"
            " coalesce(o.container, o.target), stage, false, true,"
            f" 0, {_SUBMITTER}, {below_too}, true, 0, dev, 0::UBIGINT FROM {_WITH_THREAD}"
            " WHERE event = 'bio_queue' AND nr_sector = 0"
            f" AND rwbs LIKE 'F%' AND {on_devices(trace, devices, whole=True)}"
        )
    return trace.sql(f"SELECT * FROM ({query}) ORDER BY ts, row"), files


def _written(trace: Trace, view: str) -> list[str]:
    """Returns the disks with write-backs."""
    return [dev for (dev,) in trace.rows(f"SELECT DISTINCT dev FROM {view} WHERE dev IS NOT NULL")]


def _read(trace: Trace) -> list[str]:
    """Returns the devices of which bios read."""
    kind = f"event = 'bio_queue' AND nr_sector > 0 AND {OPERATION} = 'read'"
    return [dev for (dev,) in trace.rows(f"SELECT DISTINCT dev FROM block WHERE {kind}") if dev]


def _pages_of(
    trace: Trace, rows: pd.DataFrame, identity: Identity
) -> tuple[BioParts, FilePages | None, PageBegins | None]:
    """Returns the first part of each bio in each page, its file, and its begin.

    There are no files if the identity is the block, and no begins if all pages begin where those of
    the device do.
    """
    sector = rows["sector"].to_numpy(np.uint64)
    length = rows["nr_sector"].to_numpy(np.int64)
    if identity is Identity.BLOCK:
        parts = bio_parts(sector, length, np.full(len(rows), SECTORS_PER_PAGE, np.int64))
        return parts, None, None
    places = rows["upper_dev"].to_numpy(), rows["upper_sector"].to_numpy(np.uint64)
    size = part_sectors(trace, sector, *places)
    check_parts(trace, rows["pages"].to_numpy(np.int64), size)
    parts = bio_parts(sector, length, size)
    found = file_pages(trace, _places(rows, parts))
    first = parts.begin_pages(found)
    parts, found = parts.chosen(first), found.chosen(first)
    return parts, found, page_begins(parts, found, sector)


def _copies(rows: pd.DataFrame, parts: BioParts) -> NDArray[np.int64]:
    """Returns the number of each access's device among the devices that have the same data.

    Devices have the same data if bios to them are of one place on the uppermost device.
    """
    device, names = pd.factorize(rows["dev"], use_na_sentinel=False)
    if len(names) < 2 or (rows["upper_dev"] == rows["dev"]).all():
        return np.zeros(len(parts), np.int64)
    upper = pd.factorize(rows["upper_dev"], use_na_sentinel=False)[0]
    place = {"upper": upper[parts.bio], "byte": _places(rows, parts)["byte"].to_numpy()}
    seen = pd.DataFrame({**place, "device": device[parts.bio]}).drop_duplicates()
    seen = seen.sort_values([*place, "device"])
    seen["before"] = seen["device"].shift(fill_value=0)
    pairs = seen.loc[seen.duplicated([*place]), ["device", "before"]].drop_duplicates()
    copy = np.zeros(len(names), np.int64)
    for after, before in pairs.sort_values("device").itertuples(index=False):
        copy[after] = max(copy[after], copy[before] + 1)
    found: NDArray[np.int64] = copy[device][parts.bio]
    return found


def _places(rows: pd.DataFrame, parts: BioParts) -> pd.DataFrame:
    """Returns the place of each part on the uppermost device: the file system is there."""
    bio = parts.bio
    # No device has the sectors beyond: a trace may name any.
    upper = np.minimum(rows["upper_sector"].to_numpy(np.uint64)[bio], np.uint64(EVERYWHERE))
    return pd.DataFrame(
        {
            "ts": rows["ts"].to_numpy(np.int64)[bio],
            "dev": rows["upper_dev"].to_numpy()[bio],
            "byte": (upper + parts.ahead.astype(np.uint64)) * np.uint64(_SECTOR),
            "data": _data(rows)[bio],
        }
    )


def _data(rows: pd.DataFrame) -> NDArray[np.bool_]:
    """Returns whether each bio has data of files: neither the journal nor metadata."""
    metadata = rows["rwbs"].fillna("").astype(str).str.contains("M", regex=False)
    found: NDArray[np.bool_] = (~metadata & (rows["reason"] != "journal")).to_numpy(bool)
    return found


def _keys(of: NDArray[np.integer], number: NDArray[np.uint64]) -> NDArray[np.int64]:
    codes, names = pd.factorize(number)
    return of.astype(np.int64) * max(1, len(names)) + codes


def _bios(
    rows: pd.DataFrame,
    counts: NDArray[np.int64],
    device: NDArray[np.int64],
    begins: PageBegins | None,
) -> Bios:
    flags = rows["rwbs"].fillna("").astype(str)
    names = {"device": list(dict.fromkeys(rows["dev"].astype(str)))}
    codes = {}
    for name in ("reason", "tenant", "phase"):
        numbers, values = pd.factorize(rows[name], sort=True)
        codes[name] = numbers.astype(np.int16)
        names[name] = [str(value) for value in values]
    return Bios(
        rows["ts"].to_numpy(np.int64),
        rows["row"].to_numpy(np.int64),
        rows["write"].to_numpy(bool),
        flags.str.contains("[SF]").to_numpy(bool),
        flags.str.startswith("F").to_numpy(bool),
        flags.str.contains("(?<!^)F").to_numpy(bool),
        device.astype(np.int16),
        rows["sector"].to_numpy(np.uint64),
        rows["nr_sector"].to_numpy(np.int64),
        np.cumsum(counts) - counts,
        counts.astype(np.int32),
        rows["pid"].fillna(-1).to_numpy(np.int64),
        _data(rows),
        codes["reason"],
        codes["tenant"],
        codes["phase"],
        names,
        begins,
    )


def _sums(keys: pd.Series[str], counts: NDArray[np.int64]) -> dict[str, int]:
    sums = pd.Series(counts, index=keys.to_numpy()).groupby(level=0).sum()
    return {str(key): int(n) for key, n in sums.sort_values(ascending=False).items() if n}
