"""Regenerated write-back as input of the flush layer's models: dense page ids in time order."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from tracer.analysis.flushlayer.flusher.dirtying import Dirtyings
from tracer.analysis.flushlayer.flusher.regenerate import Regenerated
from tracer.analysis.flushlayer.trace.accesses import Accesses, Identity
from tracer.analysis.views.file_pages import NO_FILE, NOT_MAPPED


def regenerated_accesses(found: Dirtyings, made: Regenerated) -> Accesses:
    """Returns the page write-backs that reach a layer below the page cache.

    The identity of a page is its file and its index in the file, because no knob changes the
    file's blocks. Direct writes are taken as recorded; they have the same identity. Metadata, the
    journal, and pages of unknown files and places are identified by block. The result has no bios:
    the model knows the time of a bio, but not its size.
    """
    passed, written = found.passed, made.writes
    inode = passed["inode"].to_numpy(np.int64)
    of_file = inode >= 0
    others = passed[~of_file]
    counts = np.concatenate(
        [written["pages"].to_numpy(np.int64), passed["pages"].to_numpy(np.int64)]
    )
    ts = np.concatenate([written["ts"].to_numpy(np.int64), passed["ts"].to_numpy(np.int64)])
    device = pd.factorize(others["dev"].astype(str))[0].astype(np.int64)
    # Numbers of blocks, per device, follow the numbers of the pages of files.
    block, _ = pd.factorize(
        pd.MultiIndex.from_arrays(
            [_each(device, others["pages"]), _pages(others["page"], others["pages"])]
        )
    )
    in_file = _each(of_file, passed["pages"])
    of_passed = np.empty(len(in_file), np.int64)
    of_passed[in_file] = _pages(pd.Series(made.passed[of_file]), passed["pages"][of_file])
    of_passed[~in_file] = made.pages_known + block
    number = np.concatenate([_pages(written["first"], written["pages"]), of_passed])
    order = np.argsort(np.repeat(ts, counts), kind="stable")
    dense, names = pd.factorize(number[order])
    known = int(written["pages"][written["index"].notna()].sum())
    return Accesses(
        dense.astype(np.int32),
        len(names),
        _sums(written["reason"], passed["reason"], counts),
        _sums(written["dev"], passed["dev"], counts),
        0,
        Identity.FILE,
        {
            "file": known + int(passed["pages"][of_file].sum()),
            "no file": int(passed["pages"][inode == NO_FILE].sum()),
            "not mapped": int(written["pages"].sum())
            - known
            + int(passed["pages"][inode == NOT_MAPPED].sum()),
        },
    )


def _each(values: NDArray[Any], counts: pd.Series[int]) -> NDArray[Any]:
    return np.repeat(values, counts.to_numpy(np.int64))


def _pages(first: pd.Series[int], counts: pd.Series[int]) -> NDArray[np.int64]:
    many = counts.to_numpy(np.int64)
    within = np.arange(many.sum()) - np.repeat(np.cumsum(many) - many, many)
    numbers: NDArray[np.int64] = np.repeat(first.to_numpy(np.int64), many) + within
    return numbers


def _sums(
    written: pd.Series[str], passed: pd.Series[str], counts: NDArray[np.int64]
) -> dict[str, int]:
    keys = np.concatenate([written.to_numpy(str), passed.to_numpy(str)])
    sums = pd.Series(counts, index=keys).groupby(level=0).sum().sort_values(ascending=False)
    return {str(key): int(n) for key, n in sums.items()}
