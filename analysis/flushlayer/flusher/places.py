"""The place in its file of each page that a bio wrote, as the file system reported it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from tracer.analysis.flushlayer.flusher import paired
from tracer.analysis.flushlayer.trace.bio_parts import (
    BioParts,
    bio_parts,
    check_parts,
    part_sectors,
)
from tracer.analysis.flushlayer.trace.page_count import MODEL_PAGE, MOST_PAGES
from tracer.analysis.views.reading.file_pages import NOT_MAPPED, FilePages, file_pages
from tracer.analysis.views.writing.submissions import SECTORS_PER_PAGE
from tracer.probes.events.block import SECTOR_BYTES
from tracer.store.devices import EVERYWHERE, Devices
from tracer.store.trace import Trace


def cached_runs(trace: Trace, cached: pd.DataFrame) -> tuple[pd.DataFrame, NDArray[np.int64]]:
    """Returns the bios of dirtied pages as runs of pages, and the place of each page in its file.

    Runs, in the order of `cached`: its columns, of which page and pages count the pages of the
    file. These need not begin where pages of the disk do: page is the page of the disk in which the
    first one begins. The pages of a run follow each other, and all begin at the same sector of a
    page of the disk. Metadata has the pages of the disk, and so has a file of unknown place on a
    file system whose blocks are smaller than a page. Places are those that the file system
    reported, in the order of the pages; -1: not known.
    """
    sector = cached["sector"].to_numpy(np.uint64)
    dev, data = cached["bio_dev"].to_numpy(), ~cached["metadata"].to_numpy(bool)
    size = part_sectors(trace, sector, dev, sector)
    check_parts(trace, cached["pages"].to_numpy(np.int64), size)
    parts, found = _in_files(trace, cached, cached["nr_sector"].to_numpy(np.int64), data, size)
    ahead = (sector % np.uint64(SECTORS_PER_PAGE)).astype(np.int64)[parts.bio] + parts.ahead
    inside = ahead % SECTORS_PER_PAGE
    begin = np.where(data, _first_of_pages(trace, sector, dev), 0)[parts.bio]
    begin = np.where(found.file >= 0, inside - found.within.astype(np.int64), begin)
    begin %= SECTORS_PER_PAGE
    page = np.maximum(parts.page.astype(np.int64) - (begin > inside), 0)
    kept = replace(parts, page=page.astype(np.uint64)).begin_pages(found)
    bio, page, begin = parts.bio[kept], page[kept], begin[kept]
    goes_on = np.zeros(len(bio), bool)
    goes_on[1:] = (bio[1:] == bio[:-1]) & (page[1:] == page[:-1] + 1) & (begin[1:] == begin[:-1])
    first = np.flatnonzero(~goes_on)
    runs = cached.iloc[bio[first]].reset_index(drop=True)
    runs = runs.assign(page=page[first], pages=np.diff(np.append(first, len(bio))))
    known = (found.file >= 0) & (found.index < paired.NOWHERE)
    return runs, np.where(known, found.index, np.int64(-1))[kept]


def _first_of_pages(
    trace: Trace, sector: NDArray[np.uint64], dev: NDArray[Any]
) -> NDArray[np.int64]:
    """Returns the sector, 0 to 7, of a page of the disk at which pages of files begin.

    A row per bio, by its first sector and device. It is 0 if the blocks of the file system do not
    tell it.
    """
    devices = Devices(trace.manifest)
    found = np.zeros(len(sector), np.int64)
    for system in trace.manifest.get("file_systems", []):
        lies = devices.place(system["dev"])
        if lies is not None and system["block_bytes"] % MODEL_PAGE == 0:
            named = (dev == system["dev"]) | (dev == lies.disk)
            inside = (sector >= np.uint64(lies.first)) & (sector < np.uint64(lies.end))
            found[named & inside] = lies.first % SECTORS_PER_PAGE
    return found


def passed_runs(trace: Trace, passed: pd.DataFrame) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Returns the bios that no knob moves as runs of pages, and the files of these runs.

    Runs, in the order of `passed`: ts, dev, reason, dirtier, page (the first on the disk), pages,
    file (row of the files, or NO_FILE or NOT_MAPPED of `file_pages`), index (the first page in the
    file; 0 without one). The pages of a run follow each other on the disk and in the file. Files:
    the columns FILE of `lives.py`. A bio that no disk takes (MOST_PAGES) is one run without a file.
    Needs the table `lives`.
    """
    pages = passed["pages"].to_numpy(np.int64)
    possible = pages <= MOST_PAGES
    data = ~passed["metadata"].to_numpy(bool) & (passed["reason"] != "journal").to_numpy(bool)
    sector = passed["sector"].to_numpy(np.uint64)
    size = part_sectors(trace, sector, passed["bio_dev"].to_numpy(), sector)
    check_parts(trace, pages[possible], size[possible])
    length = np.where(possible, passed["nr_sector"].to_numpy(np.int64), 1)
    parts, found = _in_files(trace, passed, length, data & possible, size)
    kept = parts.begin_pages(found)
    parts, file, index = parts.chosen(kept), found.file[kept], found.index[kept]
    bio, page = parts.bio, parts.page.astype(np.int64)
    file = np.where((file < 0) | ((index >= 0) & (index < paired.NOWHERE)), file, NOT_MAPPED)
    index = np.where(file >= 0, index, 0)
    goes_on = np.zeros(len(bio), bool)
    goes_on[1:] = (
        (bio[1:] == bio[:-1]) & (page[1:] == page[:-1] + 1) & (file[1:] == file[:-1])
        & ((file[1:] < 0) | (index[1:] == index[:-1] + 1))
    )  # fmt: skip
    first = np.flatnonzero(~goes_on)
    runs = passed[["ts", "dev", "reason", "dirtier"]].iloc[bio[first]].reset_index(drop=True)
    runs = runs.assign(
        page=page[first],
        pages=np.where(
            possible[bio[first]], np.diff(np.append(first, len(bio))), pages[bio[first]]
        ),
        file=file[first].astype(np.int64),
        index=index[first],
    )
    return runs, _files(trace, found.files)


def _in_files(
    trace: Trace,
    bios: pd.DataFrame,
    length: NDArray[np.int64],
    data: NDArray[np.bool_],
    size: NDArray[np.int64],
) -> tuple[BioParts, FilePages]:
    """Returns the parts of bios, and their files.

    `length`: the sectors of each bio; `data`: whether it has data of a file; `size`: see
    `part_sectors`.
    """
    sector = bios["sector"].to_numpy(np.uint64)
    parts = bio_parts(sector, length, size)
    bio = parts.bio
    # No device has the sectors beyond: a trace may name any.
    begin = np.minimum(sector, np.uint64(EVERYWHERE))[bio] + parts.ahead.astype(np.uint64)
    places = pd.DataFrame(
        {
            "ts": bios["ts"].to_numpy(np.int64)[bio],
            "dev": bios["bio_dev"].to_numpy()[bio],
            "byte": begin * np.uint64(SECTOR_BYTES),
            "data": data[bio],
        }
    )
    return parts, file_pages(trace, places)


def _files(trace: Trace, files: pd.DataFrame) -> pd.DataFrame:
    """Returns the files of `file_pages` as events of dirtying name them, with their lives."""
    devices = Devices(trace.manifest)
    disks = [devices.names(dev).bdi for dev in files["dev"]]
    told = set(trace.rows("SELECT DISTINCT dev, ino FROM lives"))
    each = zip(disks, files["ino"].tolist(), files["born"].tolist(), strict=True)
    lives = [born if (disk, ino) in told else 0 for disk, ino, born in each]
    return pd.DataFrame(
        {
            "dev": pd.Series(disks, dtype=object),
            "ino": files["ino"].to_numpy(np.uint64),
            "life": np.array(lives, np.int64),
        }
    )
