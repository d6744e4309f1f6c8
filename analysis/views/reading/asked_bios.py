"""Bios with the thread that asked for each, even if a thread of the kernel logs a read for it."""

from __future__ import annotations

from tracer.analysis.views.reading.held_back import kernel_reads
from tracer.analysis.views.reading.page_uses import page_uses
from tracer.analysis.views.threads import make_threads
from tracer.store.trace import Trace

_LOGGED = "(SELECT *, false AS held_back FROM block WHERE event = 'bio_queue')"
# Only time and thread tell which bio a use is of. Bios of one time may be for several threads.
_ASKED = f"""(
    SELECT b.* REPLACE (
        if(u.tid IS NULL, b.pid, u.pid) AS pid, coalesce(u.tid, b.tid) AS tid,
        if(u.tid IS NULL, b.comm, u.comm) AS comm, u.tid IS NOT NULL AS held_back
    )
    FROM {_LOGGED} b LEFT JOIN (
        SELECT ts, by_tid, min(pid) AS pid, min(tid) AS tid, any_value(comm) AS comm
        FROM page_uses WHERE disk_bytes > 0 AND tid != by_tid
        GROUP BY ts, by_tid HAVING min(tid) = max(tid)
    ) u ON b.ts = u.ts AND b.tid = u.by_tid
)"""


def asked_bios(trace: Trace) -> str:
    """Returns SQL for the queued bios of the table block: pid, tid and comm are of who asked.

    The column held_back is true if a thread of the kernel logs the bio for that thread. Without
    events of the page cache, or without the place of a file on the disk, it is not known for whom a
    thread of the kernel reads; then pid, tid and comm are its own. `tracer query` can run the SQL.
    Makes the view `threads`. Needs the table block.
    """
    make_threads(trace)
    if "page_cache" not in trace.tables or not kernel_reads(trace):
        return _LOGGED
    page_uses(trace)
    return _ASKED
