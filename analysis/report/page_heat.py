"""Page write-backs counted in boxes of time and pages (Park & Bahn 2023, Figure 4)."""

from __future__ import annotations

import numpy as np
import pandas as pd

from tracer.analysis.flushlayer.trace.page_count import check_pages
from tracer.analysis.views.disks.volumes import on_one_level
from tracer.analysis.views.writing.flushes import flushes
from tracer.store.trace import Trace

TIMES, PAGES = 60, 60


def page_heat(trace: Trace, dev: str | None = None) -> pd.DataFrame:
    """Returns page write-backs by time and page, in at most 60 by 60 boxes.

    A page is identified by its block on `dev`, or on any device if `dev` is None. Pages are
    ranked by position; pages that were never written get no rank. The recorder's own files do
    not count.

    Columns: from_s, to_s (since the recording began), first_page, last_page (ranks, from 0),
    writebacks (pages of 4096 bytes). A box without write-backs has no row. Needs table block.
    """
    view = flushes(trace)
    rows = trace.sql(
        f"SELECT ts, dense_rank() OVER (ORDER BY dev) - 1 AS disk, page, pages FROM {view}"
        f" WHERE pages > 0 AND NOT own AND {on_one_level(trace, dev)} ORDER BY ts"
    )
    columns = ["from_s", "to_s", "first_page", "last_page", "writebacks"]
    if not len(rows):
        return pd.DataFrame(columns=columns)
    counts = rows["pages"].to_numpy(np.int64)
    check_pages(trace, counts)
    start = int(trace.manifest["clock"]["start_ns"])
    end = max(int(trace.manifest["clock"]["end_ns"] or 0), int(rows["ts"].max()))
    width = max(1, -(-(end - start + 1) // TIMES))
    slot = np.clip((rows["ts"].to_numpy(np.int64) - start) // width, 0, TIMES - 1)

    total = int(counts.sum())
    within = np.arange(total) - np.repeat(np.cumsum(counts) - counts, counts)
    page = np.repeat(rows["page"].to_numpy(np.int64), counts) + within
    _, page = np.unique(page, return_inverse=True)
    key = np.repeat(rows["disk"].to_numpy(np.int64), counts) * (int(page.max()) + 1) + page
    names, rank = np.unique(key, return_inverse=True)

    height = -(-len(names) // PAGES)
    box = np.repeat(slot, counts) * PAGES + rank // height
    boxes, written = np.unique(box, return_counts=True)
    first = boxes % PAGES * height
    return pd.DataFrame(
        {
            "from_s": boxes // PAGES * width / 1e9,
            "to_s": (boxes // PAGES + 1) * width / 1e9,
            "first_page": first,
            "last_page": np.minimum(first + height, len(names)) - 1,
            "writebacks": written,
        }
    )
