"""Call graphs by the way that led to an event: write-back, journal, fsync, reads and so on.

A chain is recognised by kernel functions that only lie on that way, wherever they are in the
stack. The first way of `CHAINS` that has one counts: a flusher that reads a block map on its way
is still write-back. Functions are those of Linux 4.18 to 6.18; `.isra.0` and the like, which the
compiler adds, do not matter. User frames are never looked at.
"""

from __future__ import annotations

import re

import pandas as pd

from probes.call_graphs import KERNEL
from tracer.store.trace import Trace

WRITE_BACK = "write-back by flusher"

CHAINS: dict[str, tuple[str, ...]] = {
    # What interrupts a task has nothing to do with what the task does.
    "interrupt": (
        "handle_softirqs",
        "__do_softirq",
        "common_interrupt",
        "__common_interrupt",
        "handle_irq_event",
    ),
    # fs/fs-writeback.c; bdi_writeback_workfn before 3.16
    WRITE_BACK: ("wb_workfn", "bdi_writeback_workfn"),
    # fs/jbd2/journal.c; fs/xfs/xfs_log_cil.c, xfs_log.c, xfs_trans_ail.c; fs/btrfs/disk-io.c
    "journal": (
        "kjournald2",
        "xlog_cil_push_work",
        "xlog_ioend_work",
        "xfs_log_worker",
        "xfsaild",
        "transaction_kthread",
    ),
    # drivers/block/loop.c: what a loop device was given, done on the file below it
    "loop device": ("loop_workfn", "loop_rootcg_workfn", "loop_process_work", "loop_kthread"),
    # block/blk-mq.c: queued by somebody before, dispatched by the block layer's own thread
    "dispatched later": ("blk_mq_run_work_fn", "blk_mq_requeue_work", "blk_mq_timeout_work"),
    # mm/vmscan.c
    "reclaim": ("shrink_folio_list", "shrink_page_list", "pageout", "balance_pgdat"),
    # fs/direct-io.c, fs/iomap/direct-io.c, block/fops.c
    "direct I/O": (
        "iomap_dio_rw",
        "__iomap_dio_rw",
        "__blockdev_direct_IO",
        "blkdev_direct_IO",
        "__blkdev_direct_IO",
        "__blkdev_direct_IO_simple",
        "__blkdev_direct_IO_async",
        "btrfs_direct_write",
    ),
    # fs/sync.c, mm/msync.c; a write to a file that is O_SYNC ends in vfs_fsync_range, too
    "fsync": (
        "vfs_fsync_range",
        "vfs_fsync",
        "do_fsync",
        "ksys_sync_file_range",
        "sync_file_range",
        "__do_sys_msync",
    ),
    "sync": ("ksys_sync", "sync_filesystem", "__do_sys_syncfs", "sync_inodes_sb"),
    # mm/page-writeback.c: truncated and rewritten files at close, and the like
    "write-back by caller": ("do_writepages", "filemap_fdatawrite_wbc", "writeback_inodes_sb"),
    # mm/memory.c, mm/filemap.c
    "page fault": ("handle_mm_fault", "exc_page_fault", "do_user_addr_fault", "do_page_fault"),
    # mm/filemap.c, mm/readahead.c
    "read": (
        "filemap_read",
        "generic_file_buffered_read",
        "page_cache_ra_unbounded",
        "page_cache_ra_order",
        "read_pages",
        "vfs_read",
        "ksys_read",
        "__kernel_read",
    ),
}
"""Ways to an event, and the kernel functions that tell each, in the order in which they count."""

OTHER = "other"

VIEW = "call_chains"


def call_chains(trace: Trace) -> str:
    """Make the view `call_chains`; returns its name.

    One row an event, thread name, process and stack. Columns: event, chain (one of `CHAINS` or
    "other"), comm, pid, role and target of the process (null: not known), stack (as in table
    call_graphs), count, share (of all counts of that event).

    Needs table call_graphs; `processes` gives the roles.
    """
    trace.require("call_graphs")
    trace.empty_if_missing("processes")
    trace.execute(_SQL)
    return VIEW


def call_graphs(trace: Trace) -> pd.DataFrame:
    """Every stack, most frequent first. Columns: those of the view `call_chains`."""
    view = call_chains(trace)
    return trace.sql(f"SELECT * FROM {view} ORDER BY event, count DESC, stack, comm, pid")


def path(stack: str, chain: str) -> str:
    """The kernel functions of a stack from the one that tells its chain on to the event.

    Joined by " > "; all kernel functions where no chain is told, "" where there is none.
    """
    frames = [frame for frame in stack.split(";") if frame.endswith(KERNEL)]
    names = [frame.removesuffix(KERNEL).partition(".")[0] for frame in frames]
    telling = CHAINS.get(chain, ())
    first = next((number for number, name in enumerate(names) if name in telling), 0)
    return " > ".join(names[first:])


def _cases() -> str:
    lines = []
    for chain, functions in CHAINS.items():
        listed = ", ".join(f"'{function}{KERNEL}'" for function in functions)
        lines.append(f"WHEN list_has_any(frames, [{listed}]) THEN '{chain}'")
    return "\n            ".join(lines)


_MARK = re.escape(KERNEL)
# A kernel function's name has no dot of its own; those of other frames do not end in the mark.
_PLAIN = rf"regexp_replace(stack, '\.[^;]*{_MARK}', '{KERNEL}', 'g')"

_SQL = f"""
CREATE TEMP TABLE IF NOT EXISTS {VIEW} AS
WITH counted AS (
    SELECT event, comm, pid, stack, least(sum(count), 9223372036854775807)::BIGINT AS count
    FROM call_graphs GROUP BY ALL
), split AS (
    SELECT *, string_split({_PLAIN}, ';') AS frames FROM counted
), owners AS (
    SELECT pid,
        CASE WHEN count(DISTINCT role) = 1 THEN any_value(role) END AS role,
        CASE WHEN count(DISTINCT target) = 1 THEN any_value(target) END AS target
    FROM processes GROUP BY pid
)
SELECT event,
    CASE {_cases()}
            ELSE '{OTHER}' END AS chain,
    comm, s.pid, o.role, o.target, stack, count,
    count / sum(count) OVER (PARTITION BY event) AS share
FROM split s LEFT JOIN owners o ON s.pid = o.pid
"""
