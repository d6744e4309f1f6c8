"""Regenerated write-back as input of the flush layer's models: dense page ids in time order."""

from __future__ import annotations

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from tracer.analysis.flushlayer.flusher.dirtying import Dirtyings
from tracer.analysis.flushlayer.flusher.regenerate import Regenerated
from tracer.analysis.flushlayer.trace.accesses import Accesses, Identity


def regenerated_accesses(found: Dirtyings, made: Regenerated) -> Accesses:
    """Returns the page write-backs that reach a layer below the page cache.

    The identity of a page is its inode and its index in the file, because no knob changes the
    file's blocks. Journal and direct writes, taken as recorded, and pages of unknown place in
    the file are identified by block. The result has no bios: the model knows the time of a bio,
    but not its size.
    """
    passed = found.passed
    counts = np.concatenate(
        [made.writes["pages"].to_numpy(np.int64), passed["pages"].to_numpy(np.int64)]
    )
    ts = np.concatenate([made.writes["ts"].to_numpy(np.int64), passed["ts"].to_numpy(np.int64)])
    device = pd.factorize(passed["dev"].astype(str))[0].astype(np.int64)
    # Numbers of blocks, per device, follow the numbers of the pages of files.
    block, _ = pd.factorize(
        pd.MultiIndex.from_arrays(
            [_each(device, passed["pages"]), _pages(passed["page"], passed["pages"])]
        )
    )
    number = np.concatenate(
        [_pages(made.writes["first"], made.writes["pages"]), made.pages_known + block]
    )
    order = np.argsort(np.repeat(ts, counts), kind="stable")
    dense, names = pd.factorize(number[order])
    known = int(made.writes["pages"][made.writes["index"].notna()].sum())
    return Accesses(
        dense.astype(np.int32),
        len(names),
        _sums(made.writes["reason"], passed["reason"], counts),
        _sums(made.writes["dev"], passed["dev"], counts),
        0,
        Identity.FILE,
        {
            "file": known,
            "no file": int(passed["pages"].sum()),
            "not mapped": int(made.writes["pages"].sum()) - known,
        },
    )


def _each(values: NDArray[np.int64], counts: pd.Series[int]) -> NDArray[np.int64]:
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
