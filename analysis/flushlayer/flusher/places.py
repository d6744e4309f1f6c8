"""The place in its file of each written page, as the file system reported it."""

from __future__ import annotations

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
from tracer.analysis.flushlayer.trace.page_count import MOST_PAGES
from tracer.analysis.views.file_pages import NOT_MAPPED, FilePages, file_pages
from tracer.analysis.views.submissions import SECTORS_PER_PAGE
from tracer.probes.block import SECTOR_BYTES
from tracer.store.devices import EVERYWHERE, Devices
from tracer.store.trace import Trace


def told_places(trace: Trace, cached: pd.DataFrame) -> NDArray[np.int64]:
    """Returns each bio's pages as positions in their files, by the file system; -1: not known."""
    length = cached["nr_sector"].to_numpy(np.int64)
    whole = np.full(len(cached), SECTORS_PER_PAGE, np.int64)
    _, found = _in_files(trace, cached, length, ~cached["metadata"].to_numpy(bool), whole)
    known = (found.file >= 0) & (found.index < paired.NOWHERE)
    return np.where(known, found.index, np.int64(-1))


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
