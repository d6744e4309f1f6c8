"""Reads of devices that a thread of the kernel logs in place of the reader.

A limit on the speed of a device (blk-throttle) holds bios back. A worker of the kernel submits and
logs them later. Kernel: submit_bio_noacct() in block/blk-core.c, block/blk-throttle.c. The place on
the device tells the file and the page (`file_pages`); the page tells who added it to the cache.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pandas as pd
import pyarrow as pa
from numpy.typing import NDArray

from tracer.analysis.views.disks.requests import OPERATION
from tracer.analysis.views.disks.volumes import make_volumes, of_bios
from tracer.analysis.views.reading.file_pages import NOT_MAPPED, file_pages
from tracer.analysis.views.reading.page_states import BIO, EVENT, NOTHING
from tracer.probes.events.block import SECTOR_BYTES
from tracer.store.trace import Trace

# A read of metadata (M) belongs to no file.
OF_DATA = (
    f"event = 'bio_queue' AND nr_sector > 0 AND {OPERATION} = 'read' AND NOT contains(rwbs, 'M')"
)
"""SQL condition: a row of `block` is a bio that reads data."""
BY_KERNEL = "coalesce(tid IN (SELECT tid FROM threads WHERE kernel), false)"
"""SQL condition: a thread of the kernel logs a row. Needs the table `threads`."""

_PAGE = 4096
"""Bytes of the pages of `file_pages`."""
_MOST_SECTORS = 1 << 40
_LAST_SECTOR = 1 << 54
_BIOS = f"""
SELECT ts, coalesce(pid, 0) AS pid, tid, dev, sector,
    least(nr_sector, {_MOST_SECTORS}) * {SECTOR_BYTES} AS bytes,
    coalesce(fs IN (
        SELECT coalesce(n.fs, f.dev) FROM page_files f LEFT JOIN volume_names n ON f.dev = n.name
    ), false) AS followed
FROM $bios ORDER BY ts
"""
_OF_KERNEL = f"(FROM block WHERE {OF_DATA} AND {BY_KERNEL} AND sector < {_LAST_SECTOR})"

Numbers = Callable[[pa.Array, pa.Array], NDArray[np.int64]]
"""Returns the number of each file, given their devices and inodes; NOTHING: it is not followed."""


def kernel_reads(trace: Trace) -> bool:
    """Returns whether a thread of the kernel reads data. Needs the tables `block` and `threads`."""
    return bool(trace.rows(f"SELECT 1 FROM {_OF_KERNEL} LIMIT 1"))


def held_back(trace: Trace, numbers: Numbers, page_bytes: int) -> NDArray[np.void]:
    """Returns the reads by threads of the kernel (`EVENT`), with file and first page if known.

    `continues` is 1 if neither is known, and files of that volume are followed. Needs the tables
    `block`, `threads` and `page_files`.
    """
    if not kernel_reads(trace):
        return np.zeros(0, EVENT)
    make_volumes(trace)
    rows = trace.sql(_BIOS.replace("$bios", of_bios(_OF_KERNEL)))
    places = pd.DataFrame(
        {"ts": rows["ts"], "dev": rows["dev"], "byte": rows["sector"] * SECTOR_BYTES, "data": True}
    )
    found = file_pages(trace, places)
    devs = pa.array(found.files["dev"].to_list(), pa.string())
    inos = pa.array(found.files["ino"].to_list(), pa.uint64())
    events = np.zeros(len(rows), EVENT)
    for name in ("ts", "pid", "tid"):
        events[name] = rows[name].to_numpy()
    events["kind"], events["file"] = BIO, NOTHING
    mapped = found.file >= 0
    if mapped.any():
        events["file"][mapped] = numbers(devs, inos)[found.file[mapped]]
    events["index"] = found.index * _PAGE // page_bytes
    events["pages"] = rows["bytes"].to_numpy()
    followed = rows["followed"].to_numpy(bool)
    events["continues"] = (found.file == NOT_MAPPED) & followed
    return events
