"""The place in its file of each written page, as the file system reported it."""

from __future__ import annotations

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from tracer.analysis.flushlayer.flusher import paired
from tracer.analysis.flushlayer.trace.page_count import MODEL_PAGE, MOST_PAGES
from tracer.analysis.views.file_pages import NOT_MAPPED, FilePages, file_pages
from tracer.probes.block import SECTOR_BYTES
from tracer.store.devices import Devices
from tracer.store.trace import Trace


def told_places(trace: Trace, cached: pd.DataFrame) -> NDArray[np.int64]:
    """Returns each bio's pages as positions in their files, by the file system; -1: not known."""
    _, _, found = _of_pages(trace, cached, ~cached["metadata"].to_numpy(bool))
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
    bios = passed.assign(pages=np.where(possible, pages, 1))
    bio, page, found = _of_pages(trace, bios, data & possible)
    kept = ~found.again(bio)
    bio, page, file, index = bio[kept], page[kept], found.file[kept], found.index[kept]
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


def _of_pages(
    trace: Trace, bios: pd.DataFrame, data: NDArray[np.bool_]
) -> tuple[NDArray[np.int64], NDArray[np.int64], FilePages]:
    """Returns the bio of each page, its page on the disk, and the file of each page.

    `data`: whether each bio has data of a file.
    """
    counts = bios["pages"].to_numpy(np.int64)
    bio = np.repeat(np.arange(len(bios)), counts)
    within = np.arange(len(bio)) - np.repeat(np.cumsum(counts) - counts, counts)
    page = bios["page"].to_numpy(np.int64)[bio] + within
    begin = bios["sector"].to_numpy(np.uint64)[bio] * np.uint64(SECTOR_BYTES)
    places = pd.DataFrame(
        {
            "ts": bios["ts"].to_numpy(np.int64)[bio],
            "dev": bios["bio_dev"].to_numpy()[bio],
            "byte": np.maximum(begin, page.astype(np.uint64) * np.uint64(MODEL_PAGE)),
            "data": data[bio],
        }
    )
    return bio, page, file_pages(trace, places)


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
