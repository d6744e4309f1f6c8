"""Call graphs by the path that led to an event: write-back, journal, fsync, reads and so on.

A chain is recognised by kernel functions that occur on its path only, at any depth of the stack.
The first chain in `CHAINS` with such a function counts: a flusher that reads a block map is still
write-back. The functions are those of Linux 4.18 to 6.18. Suffixes that the compiler adds, such as
`.isra.0`, are ignored. User frames are ignored.
"""

from __future__ import annotations

import re

import pandas as pd
import pyarrow as pa

from tracer.analysis.views.view import make_once
from tracer.probes.call_graphs import KERNEL
from tracer.store.devices import Devices
from tracer.store.trace import Trace

WRITE_BACK = "write-back by flusher"

CHAINS: dict[str, tuple[str, ...]] = {
    # An interrupt is unrelated to the task that it interrupts.
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
    # drivers/block/loop.c: I/O of a loop device, done on its backing file
    "loop device": ("loop_workfn", "loop_rootcg_workfn", "loop_process_work", "loop_kthread"),
    # block/blk-mq.c: queued earlier by another task, dispatched by the block layer's own thread
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
    # fs/sync.c, mm/msync.c; a write to an O_SYNC file also ends in vfs_fsync_range
    "fsync": (
        "vfs_fsync_range",
        "vfs_fsync",
        "do_fsync",
        "ksys_sync_file_range",
        "sync_file_range",
        "__do_sys_msync",
    ),
    "sync": ("ksys_sync", "sync_filesystem", "__do_sys_syncfs", "sync_inodes_sb"),
    # mm/page-writeback.c: for example truncated and rewritten files at close
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
"""Chains that lead to an event, by priority, each with the kernel functions that identify it."""

OTHER = "other"

FOR_ALL = ("interrupt", WRITE_BACK, "journal", "loop device", "dispatched later", "reclaim", "sync")
"""Chains that do the work of all processes: on the disk of the trace, also the recorder's."""

VIEW = "call_chains"


def call_chains(trace: Trace) -> str:
    """Makes the view `call_chains` and returns its name.

    One row per event, thread name, process, device, operation and stack. Columns: event, chain (one
    of `CHAINS` or "other"), comm, pid, role and target of the process (null: not known), dev,
    operation and stack (as in table call_graphs), own, count, share (of all counts of that event).

    own: true if a process of the recorder made the event; false if it is not the recorder's. It is
    null if the trace does not tell: one of `FOR_ALL` on the disk of the trace, or on an unknown
    one. The recorder itself and perf are never recorded; own is true for their helpers alone.

    Needs the table call_graphs. The table processes gives the roles.
    """
    trace.require("call_graphs")
    make_once(trace, VIEW, _build)
    return VIEW


def _build(trace: Trace) -> None:
    trace.empty_if_missing("processes")
    _keep_recorder(trace)
    trace.execute(_SQL)


def _keep_recorder(trace: Trace) -> None:
    """Makes the tables `recorder_pids` and `recorder_disks`: the disks that the trace lies on."""
    manifest = trace.manifest
    recorder = manifest["recorder"]
    pids = [recorder.get("pid"), *recorder.get("guardian", [])[:1]]
    pids += manifest.get("perf", {}).get("pids", [])
    devices = Devices(manifest)
    disks = {disk for dev in manifest["own_files"] for disk in devices.layers(dev)}
    for name, values, kind in (
        ("recorder_pids", {pid for pid in pids if pid is not None}, pa.int64()),
        ("recorder_disks", disks, pa.string()),
    ):
        trace.keep(name, pa.table({"value": pa.array(sorted(values), kind)}))


def call_graphs(trace: Trace) -> pd.DataFrame:
    """Returns every stack, most frequent first, with the columns of the view `call_chains`."""
    view = call_chains(trace)
    return trace.sql(
        f"SELECT * FROM {view} ORDER BY event, count DESC, stack, comm, pid, dev, operation"
    )


def path(stack: str, chain: str) -> str:
    """Returns the kernel functions of a stack, from the one that identifies its chain to the event.

    The functions are joined by " > ". Without an identified chain, all kernel functions are
    returned. Without kernel functions, the result is "".
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
# Kernel function names contain no dot, except for compiler suffixes. User frames lack the mark.
_PLAIN = rf"regexp_replace(stack, '\.[^;]*{_MARK}', '{KERNEL}', 'g')"

_SQL = f"""
CREATE TEMP TABLE IF NOT EXISTS {VIEW} AS
WITH counted AS (
    SELECT event, comm, pid, dev, operation, stack,
        least(greatest(sum(count), 0), 9223372036854775807)::BIGINT AS count
    FROM call_graphs GROUP BY ALL
), split AS (
    SELECT *, string_split({_PLAIN}, ';') AS frames FROM counted
), owners AS (
    SELECT pid,
        CASE WHEN count(DISTINCT role) = 1 THEN any_value(role) END AS role,
        CASE WHEN count(DISTINCT target) = 1 THEN any_value(target) END AS target
    FROM processes GROUP BY pid
), chained AS (
    SELECT *, CASE {_cases()}
            ELSE '{OTHER}' END AS chain
    FROM split
)
SELECT event, chain, comm, s.pid, o.role, o.target, dev, operation,
    CASE
        WHEN s.pid IN (FROM recorder_pids) THEN true
        WHEN s.pid IS NOT NULL AND chain NOT IN {FOR_ALL} THEN false
        WHEN dev IN (FROM recorder_disks) OR NOT EXISTS (FROM recorder_disks) THEN NULL
        WHEN dev IS NOT NULL THEN false
    END AS own,
    stack, count, count / sum(count) OVER (PARTITION BY event) AS share
FROM chained s LEFT JOIN owners o ON s.pid = o.pid
"""
