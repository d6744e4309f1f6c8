"""The place in its file of each written page, as the file system reported it."""

from __future__ import annotations

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from tracer.analysis.flushlayer.flusher import paired
from tracer.analysis.views.file_pages import file_pages
from tracer.store.trace import Trace


def told_places(trace: Trace, cached: pd.DataFrame) -> NDArray[np.int64]:
    """Returns each bio's pages as positions in their files, by the file system; -1: not known."""
    counts = cached["pages"].to_numpy(np.int64)
    bio = np.repeat(np.arange(len(cached)), counts)
    nothing = np.full(len(bio), -1, np.int64)
    if not {"extents", "extent_map"} & set(trace.tables):
        return nothing
    within = (np.arange(len(bio)) - np.repeat(np.cumsum(counts) - counts, counts)).astype(np.uint64)
    begin = cached["sector"].to_numpy(np.uint64)[bio] * np.uint64(512)
    page = (cached["page"].to_numpy(np.uint64)[bio] + within) * np.uint64(4096)
    found = file_pages(
        trace,
        pd.DataFrame(
            {
                "ts": cached["ts"].to_numpy(np.int64)[bio],
                "dev": cached["bio_dev"].to_numpy()[bio],
                "byte": np.maximum(begin, page),
                "data": ~cached["metadata"].to_numpy(bool)[bio],
            }
        ),
    )
    known = (found.file >= 0) & (found.index < paired.NOWHERE)
    return np.where(known, found.index, nothing)
