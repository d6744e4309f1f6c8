"""Events of reclaim and their formats, as three kernels lay them out."""

from __future__ import annotations

import struct

from tests.support.pages import format_text, payload

_BEGIN, _END, _WAKE, _THROTTLED, _VICTIM = range(601, 606)
_NAMES = {
    "memcg_begin": ("vmscan:mm_vmscan_memcg_reclaim_begin", _BEGIN),
    "memcg_end": ("vmscan:mm_vmscan_memcg_reclaim_end", _END),
    "kswapd_wake": ("vmscan:mm_vmscan_wakeup_kswapd", _WAKE),
    "throttled": ("vmscan:mm_vmscan_throttled", _THROTTLED),
    "oom_kill": ("oom:mark_victim", _VICTIM),
}


def _formats(old: bool = False, **fields: str) -> dict[str, str]:
    found = {}
    for label, text in fields.items():
        name, number = _NAMES[label]
        if old and label == "throttled":
            name = "writeback:writeback_congestion_wait"
        found[name] = format_text(name.partition(":")[2], number, text)
    return found


FORMATS_5_10 = _formats(
    old=True,
    memcg_begin="int order 8 4 1\ngfp_t gfp_flags 12 4 0",
    memcg_end="unsigned long nr_reclaimed 8 8 0",
    kswapd_wake="int nid 8 4 1\nint zid 12 4 1\nint order 16 4 1\ngfp_t gfp_flags 20 4 0",
    throttled="unsigned int usec_timeout 8 4 0\nunsigned int usec_delayed 12 4 0",
    oom_kill="int pid 8 4 1",
)
_THROTTLED_NOW = (
    "int nid 8 4 1\nint usec_timeout 12 4 1\nint usec_delayed 16 4 1\nint reason 20 4 1"
)
_WAKE_NOW = "int nid 8 4 1\nint zid 12 4 1\nint order 16 4 1\nunsigned long gfp_flags 24 8 0"
_VICTIM_NOW = """int pid 8 4 1
__data_loc char[] comm 12 4 0
unsigned long total_vm 16 8 0"""
FORMATS_6_18 = _formats(
    memcg_begin="int order 8 4 1\nunsigned long gfp_flags 16 8 0",
    memcg_end="unsigned long nr_reclaimed 8 8 0",
    kswapd_wake=_WAKE_NOW,
    throttled=_THROTTLED_NOW,
    oom_kill=_VICTIM_NOW,
)
FORMATS_7_2 = _formats(
    memcg_begin="unsigned long gfp_flags 8 8 0\nu64 memcg_id 16 8 0\nint order 24 4 1",
    memcg_end="unsigned long nr_reclaimed 8 8 0\nu64 memcg_id 16 8 0",
    kswapd_wake=_WAKE_NOW,
    throttled=_THROTTLED_NOW,
    oom_kill=_VICTIM_NOW,
)

GFP, CGROUP, PAGES = 0x140CCA, 1 << 40 | 23, 37
"""Values of the events: flags of an allocation, inode of a cgroup, pages taken."""


def begin(tid: int, formats: dict[str, str]) -> bytes:
    """A memcg_begin of order 3."""
    body = {
        id(FORMATS_5_10): struct.pack("<iI", 3, GFP),
        id(FORMATS_6_18): struct.pack("<i4xQ", 3, GFP),
        id(FORMATS_7_2): struct.pack("<QQi", GFP, CGROUP, 3),
    }[id(formats)]
    return payload(_BEGIN, tid, body)


def end(tid: int, formats: dict[str, str]) -> bytes:
    """A memcg_end; the kernel that logs the cgroup appends it."""
    cgroup = struct.pack("<Q", CGROUP) if formats is FORMATS_7_2 else b""
    return payload(_END, tid, struct.pack("<Q", PAGES) + cgroup)


def wake(tid: int, formats: dict[str, str]) -> bytes:
    """A kswapd_wake of node 1."""
    layout = "<iiiI" if formats is FORMATS_5_10 else "<iii4xQ"
    return payload(_WAKE, tid, struct.pack(layout, 1, 2, 0, GFP))


def throttled(tid: int, formats: dict[str, str]) -> bytes:
    """A throttled that lasted 4,019 us, because pages are being written."""
    if formats is FORMATS_5_10:
        return payload(_THROTTLED, tid, struct.pack("<II", 100_000, 4019))
    return payload(_THROTTLED, tid, struct.pack("<iiii", 0, 100_000, 4019, 1))


def oom_kill(tid: int, victim: int, comm: bytes, formats: dict[str, str]) -> bytes:
    """An oom_kill; kernels that log the victim's name have it behind the fixed fields."""
    if formats is FORMATS_5_10:
        return payload(_VICTIM, tid, struct.pack("<i", victim))
    where = 24 | (len(comm) + 1) << 16
    return payload(_VICTIM, tid, struct.pack("<iIQ", victim, where, 4096) + comm + b"\0")
