"""A trace's page write-backs, in time order: what the flush layer is asked to take."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from analysis.views.flushes import flushes
from probes.errors import BadTrace
from tracer.store.trace import Trace

MOST_PAGES = 1 << 30
"""More page write-backs than this do not fit in memory: 4 TiB written."""


@dataclass(frozen=True)
class Accesses:
    """Page write-backs: `page[i]` is the dense id (0 ..) of the page of write-back i."""

    page: NDArray[np.int32]
    unique: int
    by_reason: dict[str, int]
    by_device: dict[str, int]
    own: int
    """Write-backs left out: of files that the recorder itself wrote."""

    def __len__(self) -> int:
        return len(self.page)


def page_writebacks(trace: Trace, devices: list[str] | None = None) -> Accesses:
    """The page write-backs of a trace, told apart by block: device and page of the device.

    Every write bio counts, whatever its reason, but those of the recorder's own files. A bio of
    n pages is n requests, in ascending order. `devices` (MAJOR:MINOR) limits them to some
    devices. Raises BadTrace where the trace claims more than can be.
    """
    view = flushes(trace)
    chosen = ""
    if devices:
        chosen = " AND dev IN (" + ", ".join("?" * len(devices)) + ")"
    rows = trace.sql(
        f"SELECT dev, page, pages, reason, own FROM {view} WHERE pages > 0{chosen} ORDER BY ts",
        *(devices or []),
    )
    pages = rows["pages"].to_numpy(np.uint64)
    if pages.sum(dtype=np.float64) > MOST_PAGES:
        raise BadTrace(
            f"{trace.folder} claims more than {MOST_PAGES} page write-backs", "it is damaged"
        )
    own = rows["own"].to_numpy(bool)
    kept = rows[~own]
    counts = pages[~own].astype(np.int64)
    total = int(counts.sum())
    first = kept["page"].to_numpy(np.uint64)
    starts = np.repeat(first, counts)
    within = np.arange(total) - np.repeat(np.cumsum(counts) - counts, counts)
    number = starts + within.astype(np.uint64)
    device_codes, _ = pd.factorize(kept["dev"])
    page_codes, page_names = pd.factorize(number)
    keys = np.repeat(device_codes, counts).astype(np.int64) * max(1, len(page_names)) + page_codes
    dense, names = pd.factorize(keys)
    return Accesses(
        dense.astype(np.int32),
        len(names),
        _sums(kept["reason"], counts),
        _sums(kept["dev"], counts),
        int(pages[own].sum()),
    )


def _sums(keys: pd.Series[str], counts: NDArray[np.int64]) -> dict[str, int]:
    sums = pd.Series(counts, index=keys.to_numpy()).groupby(level=0).sum()
    return {str(key): int(n) for key, n in sums.sort_values(ascending=False).items()}
