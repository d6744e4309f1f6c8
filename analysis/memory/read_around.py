"""The read-ahead of a recording's devices, and the mapped files whose faults it left out."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from tracer.probes.events.page_cache import ADD, AHEAD, FAULT, SYNC
from tracer.store.devices import Devices
from tracer.store.manifest import Manifest
from tracer.store.trace import Trace

_KIB = 1 << 10
# The next event of a thread whose fault lacks its page tells if the kernel reads around it.
_ALONE = f"""
WITH followed AS (
    SELECT dev, ino, event, lead(event) OVER (PARTITION BY tid ORDER BY ts, row) AS following
    FROM page_cache_rows
)
SELECT f.file, f.dev FROM followed e JOIN page_files f ON e.dev = f.dev AND e.ino = f.ino
WHERE event = '{FAULT}' AND following IN ('{ADD}', '{SYNC}', '{AHEAD}')
    AND EXISTS (FROM page_cache WHERE event = '{AHEAD}')
GROUP BY ALL HAVING bool_and(following = '{ADD}') ORDER BY file
"""


def read_ahead_of(manifest: Manifest, dev: str) -> int | None:
    """Returns the bytes of read-ahead of a file system's device; None if it is not known."""
    place = Devices(manifest).place(dev)
    disks = {disk["dev"]: disk for disk in manifest.get("disks", [])}
    for name in (dev, place.disk if place is not None else dev):
        if name in disks and "read_ahead_kb" in disks[name]:
            return int(disks[name]["read_ahead_kb"]) * _KIB
    return None


def without_read_around(trace: Trace) -> NDArray[np.int64]:
    """Returns the files (numbers of `page_files`) of which each fault read its page alone.

    Their mappings have the advice MADV_RANDOM, or most of their faults missed: the kernel then
    reads nothing around (do_sync_mmap_readahead). If the device has no read-ahead, the recording
    tells nothing, nor does one without events of read-ahead. Needs the view `page_uses`.
    """
    found = [file for file, dev in trace.rows(_ALONE) if read_ahead_of(trace.manifest, dev) != 0]
    return np.array(found, np.int64)
