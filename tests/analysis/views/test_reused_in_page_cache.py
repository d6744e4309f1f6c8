"""Two processes that had the same number, one after the other: whose pages, whose epoch."""

from __future__ import annotations

import pytest

from tests.support.traces import make_trace
from tracer.analysis.views.in_phase import in_phase
from tracer.analysis.views.reading.page_uses import PAGE_USES
from tracer.analysis.views.reading.reads import READS

FILE = {"dev": "254:0", "ino": 12}
FILES = [{**FILE, "size": 100 * 4096, "path": "/data"}]
NUMBER, OTHER = 7, 9
TARGETS = [
    {"name": name, "role": "target", "kind": "pid", "pid": NUMBER} for name in ("first", "second")
]
SINCE = 100
"""The number is the second process's from then on."""
NUMBERS = {"pid": NUMBER, "tid": NUMBER, "role": "target", "comm": "python"}
FIRST = {**NUMBERS, "target": "first", "start_ns": 1, "end_ns": 90}
SECOND = {**NUMBERS, "target": "second", "start_ns": SINCE}
KSWAPD = {"pid": 50, "tid": 50, "ppid": 2, "comm": "kswapd0", "role": "other"}


def row(ts, event, index=0, pages=1, tid=NUMBER, **more):
    return {"ts": ts, "pid": tid, "tid": tid, "event": event, "index": index, "pages": pages,
            **FILE, **more}  # fmt: skip


def used(folder, events):
    """Pages accessed, mapped and missed by each of the two processes."""
    tables = {"processes": [FIRST, SECOND], "page_cache": events, "files": FILES}
    with make_trace(folder / "t", tables, targets=TARGETS) as trace:
        READS.make(trace)
        sums = ", ".join(f"sum({name})::BIGINT" for name in ("accessed", "mapped", "missed"))
        found = trace.rows(f"SELECT target, {sums} FROM reads GROUP BY target")
    return {target: tuple(counts) for target, *counts in found}


def test_a_window_of_a_dead_thread_has_success_though_its_number_faults_there_next(tmp_path):
    events = [row(10, "map", 0, 16), row(110, "fault", 3), row(120, "access", 50, 2)]
    assert used(tmp_path, events) == {"first": (16, 16, 0), "second": (3, 0, 0)}


def test_the_first_call_of_a_thread_does_not_go_on_with_one_of_a_dead_thread(tmp_path):
    events = [row(10, "access", 0, 40), row(110, "access", 35, 5)]
    assert used(tmp_path, events) == {"first": (40, 0, 0), "second": (5, 0, 0)}


def test_pages_that_a_dead_thread_asked_for_are_hits_of_the_next_one(tmp_path):
    events = [
        row(10, "sync_read_ahead", 0, 4), *(row(11 + n, "add", n) for n in range(4)),
        row(110, "access", 0, 4),
    ]  # fmt: skip
    assert used(tmp_path, events) == {"first": (0, 0, 0), "second": (4, 0, 0)}


def test_a_process_maps_pages_for_the_first_time_that_a_dead_one_had_mapped(tmp_path):
    events = [row(10, "map", 0, 16), row(110, "fault", 3), row(111, "map", 0, 16)]
    events += [row(130, "access", 90)]
    found = used(tmp_path, events)
    assert found == {"first": (16, 16, 0), "second": (1 + 15 + 1, 15, 0)}


def epochs(*phases):
    return [
        {"name": "epoch", "pid": pid, "tid": pid, "epoch": epoch, "start": start, "end": end}
        for pid, epoch, start, end in phases
    ]


@pytest.mark.parametrize("of_second", [0, 5])
def test_pages_of_a_dead_process_leave_in_no_epoch_of_the_process_that_has_its_number(
    tmp_path, of_second
):
    phases = epochs((NUMBER, 0, 5, 80), (NUMBER, of_second, 110, 200))
    events = [
        row(10, "access", 0, 4), row(120, "delete", 0, 2, tid=50),
        row(130, "access", 2, 2), row(140, "delete", 2, 2, tid=50),
    ]  # fmt: skip
    tables = {
        "processes": [FIRST, SECOND, KSWAPD], "page_cache": events, "files": FILES,
        "phases": phases, "reclaim": [],
    }  # fmt: skip
    with make_trace(tmp_path / "t", tables, targets=TARGETS) as trace:
        PAGE_USES.make(trace)
        found = trace.rows(
            "SELECT target, epoch, pass, accessed, evicted FROM page_uses"
            " WHERE accessed + evicted > 0 ORDER BY ts"
        )
    assert found == [
        ("first", 0, 1, 4, 0), ("first", None, None, 0, 2), ("second", of_second, 1, 2, 0),
        ("second", of_second, 1, 0, 2),
    ]  # fmt: skip


def test_a_stranger_with_the_number_of_a_dead_child_is_in_no_phase_of_the_job(tmp_path):
    job = {"pid": OTHER, "tid": OTHER, "role": "target", "target": "first", "comm": "job"}
    child = {**FIRST, "role": "child", "ppid": OTHER}
    stranger = {**SECOND, "role": "other", "target": None, "ppid": 1}
    calls = [{"ts": ts, "pid": NUMBER, "tid": NUMBER, "name": "read"} for ts in (50, 150)]
    tables = {
        "processes": [job, child, stranger], "phases": epochs((OTHER, 3, 5, 200)),
        "syscalls": calls,
    }  # fmt: skip
    with make_trace(tmp_path / "t", tables, targets=TARGETS[:1]) as trace:
        found = trace.rows(f"SELECT epoch FROM {in_phase(trace, 'syscalls')} ORDER BY ts")
    assert found == [(3,), (None,)]
