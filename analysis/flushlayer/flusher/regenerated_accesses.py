"""Regenerated write-back as input of the flush layer's models: dense page ids in time order."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from tracer.analysis.flushlayer.flusher.dirtying import Dirtyings
from tracer.analysis.flushlayer.flusher.regenerate import Regenerated
from tracer.analysis.flushlayer.trace.accesses import Accesses, Identity
from tracer.analysis.views.reading.file_pages import NO_FILE, NOT_MAPPED


def regenerated_accesses(found: Dirtyings, made: Regenerated) -> Accesses:
    """Returns the page write-backs that reach a layer below the page cache.

    The identity of a page is its file and its index in the file, because no knob changes the
    file's blocks. Direct writes are taken as recorded; they have the same identity. Metadata, the
    journal, and pages of unknown files and places are identified by block: a block is one page,
    whether it is written as a page of the device's own inode or by the journal. The result has no
    bios: the model knows the time of a bio, but not its size.
    """
    passed, written = found.passed, made.writes
    disk_page, of_disk = _of_devices(found, written)
    runs = pd.DataFrame(
        {
            "ts": _both(written["ts"], passed["ts"]),
            "dev": np.concatenate([written["dev"].astype(str), passed["dev"].astype(str)]),
            "number": _both(written["first"].mask(of_disk, -1), made.passed),
            "page": _both(disk_page, passed["page"]),
            "pages": _both(written["pages"], passed["pages"]),
        }
    )
    by_block = (runs["number"] < 0).to_numpy(bool)
    number = _pages(runs["number"], runs["pages"])
    # Numbers of blocks follow the numbers of the pages of files.
    number[_each(by_block, runs["pages"])] = made.pages_known + _blocks(runs[by_block])
    order = np.argsort(_each(runs["ts"], runs["pages"]), kind="stable")
    dense, names = pd.factorize(number[order])
    in_place = (written["index"].notna() & ~of_disk).to_numpy(bool)
    known = int(written["pages"][in_place].sum())
    blocks = int(written["pages"][of_disk].sum())
    inode, pages = passed["inode"].to_numpy(np.int64), passed["pages"]
    return Accesses(
        dense.astype(np.int32),
        len(names),
        _sums(written["reason"], passed["reason"], runs["pages"]),
        _sums(written["dev"], passed["dev"], runs["pages"]),
        0,
        Identity.FILE,
        {
            "file": known + int(pages[inode >= 0].sum()),
            "no file": blocks + int(pages[inode == NO_FILE].sum()),
            "not mapped": int(written["pages"].sum())
            - known
            - blocks
            + int(pages[inode == NOT_MAPPED].sum()),
        },
    )


def _of_devices(
    found: Dirtyings, written: pd.DataFrame
) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    """Returns the first page on the disk of each run of a device's own inode, and whether it is
    one."""
    begin = found.inodes["device_page"].to_numpy(np.int64)[written["inode"].to_numpy(np.int64)]
    of_disk = (begin >= 0) & written["index"].notna().to_numpy(bool)
    return begin + written["index"].fillna(0).to_numpy(np.int64), of_disk


def _blocks(runs: pd.DataFrame) -> NDArray[np.int64]:
    """Returns dense numbers for the pages of runs, by device and page on it."""
    device = pd.factorize(runs["dev"])[0].astype(np.int64)
    keys = [_each(device, runs["pages"]), _pages(runs["page"], runs["pages"])]
    numbers: NDArray[np.int64] = pd.factorize(pd.MultiIndex.from_arrays(keys))[0]
    return numbers


def _both(written: Any, passed: Any) -> NDArray[np.int64]:
    return np.concatenate([np.asarray(written, np.int64), np.asarray(passed, np.int64)])


def _each(values: Any, counts: pd.Series[int]) -> NDArray[Any]:
    return np.repeat(np.asarray(values), counts.to_numpy(np.int64))


def _pages(first: pd.Series[int], counts: pd.Series[int]) -> NDArray[np.int64]:
    many = counts.to_numpy(np.int64)
    within = np.arange(many.sum()) - np.repeat(np.cumsum(many) - many, many)
    numbers: NDArray[np.int64] = np.repeat(first.to_numpy(np.int64), many) + within
    return numbers


def _sums(
    written: pd.Series[str], passed: pd.Series[str], counts: pd.Series[int]
) -> dict[str, int]:
    keys = np.concatenate([written.to_numpy(str), passed.to_numpy(str)])
    sums = pd.Series(counts.to_numpy(), index=keys).groupby(level=0).sum()
    return {str(key): int(n) for key, n in sums.sort_values(ascending=False).items()}
