"""The folios that a write through a shared mapping makes dirty, right after its fault.

Linux 6.18 maps all of the folio then. The fault of a private mapping maps a copy of one page, and
makes nothing dirty. Kernel: do_shared_fault(), do_cow_fault() and finish_fault() of mm/memory.c.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from tracer.analysis.views.reading.page_states import DIRTY, EVENT
from tracer.probes.events.page_cache import FAULT
from tracer.store.trace import Trace

# The table `dirty` names the disk, not the file system: the fault tells the latter. A call that
# began since the fault may have made the folio dirty itself.
_DIRTIED = f"""
WITH faults AS (
    SELECT ts, tid, dev, ino, "index" FROM page_cache
    WHERE event = '{FAULT}' AND dev IS NOT NULL AND ino IS NOT NULL AND "index" IS NOT NULL
), dirtied AS (
    SELECT ts, coalesce(pid, 0) AS pid, tid, ino, "index" FROM dirty
    WHERE event = 'dirty_folio' AND tid IN (SELECT tid FROM faults)
), written AS (
    SELECT d.*, f.dev, f.ts AS since FROM dirtied d ASOF JOIN faults f
        ON d.tid = f.tid AND d.ts >= f.ts
    WHERE d.ino = f.ino AND d."index" <= f."index"
), calls AS (
    SELECT ts, tid FROM syscalls WHERE tid IN (SELECT tid FROM written)
)
SELECT w.ts, w.pid, w.tid, w.dev, w.ino, w."index"::BIGINT AS "index"
FROM written w ASOF LEFT JOIN calls c ON w.tid = c.tid AND w.ts >= c.ts
WHERE w."index" < {1 << 52} AND coalesce(c.ts < w.since, true)
ORDER BY w.ts
"""

Numbers = Callable[[pa.Array, pa.Array], NDArray[np.int64]]
"""Returns the number of each file, given their devices and inodes."""


def written_folios(trace: Trace, numbers: Numbers) -> NDArray[np.void]:
    """Returns the dirtied folios (`EVENT`, of kind DIRTY, with the first page), in order of time.

    There are none unless the recorder found that the kernel maps whole folios at such a fault.
    """
    maps = trace.manifest.get("kernel", {}).get("maps_written_folios")
    if not maps or "dirty" not in trace.tables:
        return np.zeros(0, EVENT)
    trace.empty_if_missing("syscalls")
    rows = trace.arrow(_DIRTIED)
    events = np.zeros(rows.num_rows, EVENT)
    for name in ("ts", "pid", "tid", "index"):
        events[name] = rows[name].to_numpy()
    events["kind"] = DIRTY
    events["file"] = numbers(rows["dev"].combine_chunks(), rows["ino"].combine_chunks())
    return events
