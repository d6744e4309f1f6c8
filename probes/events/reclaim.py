"""Reclaim: threads that take pages from others before they get memory, and the processes killed.

A begin .. end bracket is time in which a thread waits for memory: `direct` if the machine has too
little of it, `memcg` if a cgroup is at its limit (or if a file such as memory.reclaim asks for
pages). An end counts the pages that were taken in the bracket.

`kswapd_wake` is the event in the context of the thread whose allocation wakes the kernel's
reclaim thread, kswapd, because that thread is the cause. The event in kswapd's own context would
tell nothing more: the probe `sched` shows when a thread runs.

Kernel: include/trace/events/vmscan.h, include/trace/events/oom.h.
"""

from __future__ import annotations

from tracer.probes.schema import (
    CPU,
    EVENT,
    PID,
    TID,
    TS,
    Column,
    Event,
    Probe,
    Scope,
    Table,
    Type,
    characters,
    number,
)

TABLE = Table(
    "reclaim",
    "One row per event of reclaim. A thread waits for memory from a begin to the end after it.",
    (
        TS,
        CPU,
        PID,
        TID,
        EVENT,
        Column("nr_reclaimed", Type.INT64, "direct_end, memcg_end: pages taken", "pages"),
        Column(
            "cgroup_ino",
            Type.UINT64,
            "inode of the cgroup whose memory is reclaimed; 0: of no cgroup in particular; null: "
            "the kernel does not log it",
        ),
        Column("page_order", Type.INT32, "the wanted pages are 2^page_order adjacent ones"),
        Column("gfp_flags", Type.UINT64, "the kind of allocation; __GFP_... bits of this kernel"),
        Column("nid", Type.INT32, "kswapd_wake, throttled: memory node"),
        Column("delay_ns", Type.INT64, "throttled: time that the thread slept", "ns"),
        Column(
            "throttle_reason",
            Type.INT32,
            "throttled: 1 for pages being written, 2 too many threads reclaim, 4 no progress, 8 "
            "congested; null: the kernel does not log it",
        ),
        Column("victim_tid", Type.INT32, "oom_kill: a thread of the process that is killed"),
        Column("victim_comm", Type.TEXT, "oom_kill: name of that thread"),
    ),
    example="SELECT tid, event, count(*), sum(nr_reclaimed) pages FROM reclaim GROUP BY ALL",
)

_CGROUP = {"cgroup_ino": number("memcg_id")}
_BEGIN = {**_CGROUP, "page_order": number("order"), "gfp_flags": number("gfp_flags")}
_END = {**_CGROUP, "nr_reclaimed": number("nr_reclaimed")}
_THROTTLED = {
    "nid": number("nid"),
    "delay_ns": number("usec_delayed", scale=1000),
    "throttle_reason": number("reason"),
}

PROBE = Probe(
    "reclaim",
    "threads that wait for memory to be reclaimed, and processes killed for it; machine-wide",
    TABLE,
    (
        Event("vmscan:mm_vmscan_direct_reclaim_begin", "direct_begin", _BEGIN),
        Event("vmscan:mm_vmscan_direct_reclaim_end", "direct_end", _END),
        Event("vmscan:mm_vmscan_memcg_reclaim_begin", "memcg_begin", _BEGIN),
        Event("vmscan:mm_vmscan_memcg_reclaim_end", "memcg_end", _END),
        Event(
            "vmscan:mm_vmscan_wakeup_kswapd",
            "kswapd_wake",
            {
                "nid": number("nid"),
                "page_order": number("order"),
                "gfp_flags": number("gfp_flags"),
            },
        ),
        Event("vmscan:mm_vmscan_throttled", "throttled", _THROTTLED),
        # Kernel 5.15 and older: such threads sleep in the block layer's functions.
        Event("writeback:writeback_congestion_wait", "throttled", _THROTTLED),
        Event("writeback:writeback_wait_iff_congested", "throttled", _THROTTLED),
        Event(
            "oom:mark_victim",
            "oom_kill",
            {"victim_tid": number("pid"), "victim_comm": characters("comm")},
        ),
    ),
    Scope.MACHINE,
    rate="two events per time that a thread reclaims; none while memory is plentiful",
    optional=True,
)
