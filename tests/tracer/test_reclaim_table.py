"""Events of reclaim become rows, whatever names and places a kernel gives their fields."""

import struct

import pytest

from tests.support.pages import Page, payload, raw_trace
from tests.support.reclaim_events import (
    CGROUP,
    FORMATS_5_10,
    FORMATS_6_18,
    FORMATS_7_2,
    GFP,
    PAGES,
    begin,
    end,
    oom_kill,
    throttled,
    wake,
)
from tracer.analysis.report.tables import event_counts
from tracer.store.trace import Trace

KERNELS = {"5.10": FORMATS_5_10, "6.18": FORMATS_6_18, "7.2": FORMATS_7_2}
COLUMNS = "ts, tid, event, nr_reclaimed, cgroup_ino, page_order, gfp_flags"


def made(folder, page, formats):
    raw_trace(folder, {0: [page]}, formats=formats, probes=["reclaim"])
    return Trace(folder)


@pytest.fixture(params=KERNELS)
def kernel(request):
    return request.param


def test_a_bracket_has_its_allocation_its_cgroup_and_its_pages(tmp_path, kernel):
    formats = KERNELS[kernel]
    page = Page(0).event(100, begin(7, formats)).event(150, end(7, formats))
    cgroup = CGROUP if kernel == "7.2" else None  # only that kernel logs it
    with made(tmp_path / "t", page, formats) as trace:
        assert trace.connection.execute(
            f"SELECT {COLUMNS} FROM reclaim ORDER BY ts"
        ).fetchall() == [
            (100, 7, "memcg_begin", None, cgroup, 3, GFP),
            (150, 7, "memcg_end", PAGES, cgroup, None, None),
        ]


def test_a_wake_of_kswapd_is_the_waking_threads(tmp_path, kernel):
    formats = KERNELS[kernel]
    with made(tmp_path / "t", Page(0).event(100, wake(7, formats)), formats) as trace:
        query = "SELECT tid, event, nid, page_order, gfp_flags FROM reclaim"
        assert trace.connection.execute(query).fetchall() == [(7, "kswapd_wake", 1, 0, GFP)]


def test_a_throttled_thread_has_its_sleep_and_its_reason_if_the_kernel_logs_one(tmp_path, kernel):
    formats = KERNELS[kernel]
    node, why = (None, None) if kernel == "5.10" else (0, 1)
    with made(tmp_path / "t", Page(0).event(100, throttled(7, formats)), formats) as trace:
        query = "SELECT event, nid, delay_ns, throttle_reason FROM reclaim"
        assert trace.connection.execute(query).fetchall() == [("throttled", node, 4_019_000, why)]


def test_a_kill_names_its_victim_and_not_the_thread_that_asked_for_memory(tmp_path, kernel):
    formats = KERNELS[kernel]
    name = None if kernel == "5.10" else "tr\x1b\\xffin"
    page = Page(0).event(100, oom_kill(7, 4163, b"tr\x1b\xffin", formats))
    with made(tmp_path / "t", page, formats) as trace:
        query = "SELECT tid, event, victim_tid, victim_comm FROM reclaim"
        assert trace.connection.execute(query).fetchall() == [(7, "oom_kill", 4163, name)]


def test_an_event_that_ends_before_its_fields_has_none(tmp_path):
    page = Page(0).event(100, payload(601, 7)).event(110, payload(605, 7, struct.pack("<i", 9)))
    with made(tmp_path / "t", page, FORMATS_6_18) as trace:
        query = "SELECT event, gfp_flags, victim_tid, victim_comm FROM reclaim ORDER BY ts"
        assert trace.connection.execute(query).fetchall() == [
            ("memcg_begin", None, None, None),
            ("oom_kill", None, 9, None),
        ]


def test_a_name_that_points_out_of_its_event_is_null(tmp_path):
    body = struct.pack("<iIQ", 9, 60_000 | 5_000 << 16, 0)
    with made(tmp_path / "t", Page(0).event(100, payload(605, 7, body)), FORMATS_6_18) as trace:
        query = "SELECT victim_tid, victim_comm FROM reclaim"
        assert trace.connection.execute(query).fetchall() == [(9, None)]


def test_the_report_counts_each_event_by_the_name_that_the_kernel_gives_it(tmp_path, kernel):
    formats = KERNELS[kernel]
    page = Page(0).event(100, throttled(7, formats)).event(110, begin(7, formats))
    with made(tmp_path / "t", page.event(120, end(7, formats)), formats) as trace:
        counted = event_counts(trace).set_index("event")["total"]
    sleep = "vmscan:mm_vmscan_throttled"
    if kernel == "5.10":
        sleep = "writeback:writeback_congestion_wait"
    assert counted[sleep] == 1
    assert counted["vmscan:mm_vmscan_memcg_reclaim_begin"] == 1
    assert counted["oom:mark_victim"] == 0
    # This kernel is not known to have had these events.
    assert counted.isna()["vmscan:mm_vmscan_direct_reclaim_begin"]
