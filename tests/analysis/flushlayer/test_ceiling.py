"""What a layer can save at most: the time in which somebody waits for a write."""

from __future__ import annotations

import pytest

from analysis.flushlayer.trace.ceiling import ceiling
from tests.support.traces import make_trace

S = 10**9
JOB = [
    {"tid": tid, "pid": 7, "target": "job", "role": "target", "comm": "python"} for tid in (7, 8)
]


@pytest.fixture
def waits(tmp_path):
    def find(**tables):
        made = {"processes": JOB, "syscalls": [], **tables}
        clock = {"name": "mono", "start_ns": 0, "end_ns": 100 * S}
        folder = tmp_path / str(len(list(tmp_path.iterdir())))
        with make_trace(folder, made, clock=clock) as trace:
            return ceiling(trace)

    return find


def call(begun, length, name="fsync", tid=7):
    ret = 0 if length is not None else None
    return {"ts": begun, "dur_ns": length, "tid": tid, "pid": 7, "name": name, "nr": 1, "ret": ret}


def request(begun, ended, sector, rwbs, tid=99):
    common = {"dev": "254:0", "sector": sector, "nr_sector": 8, "rwbs": rwbs, "tid": tid}
    moments = (("bio_queue", begun), ("issue", begun), ("complete", ended))
    return [{"ts": ts, "event": event, **common} for event, ts in moments]


def test_calls_of_threads_that_wait_at_once_count_once(waits):
    found = waits(syscalls=[call(10 * S, 4 * S), call(12 * S, 4 * S, tid=8), call(50 * S, S)])
    assert found.by_kind["sync"] == pytest.approx(7)
    assert (found.total_s, found.length_s) == (pytest.approx(7), 100)
    assert found.share == pytest.approx(0.07)
    assert not found.lossy


def test_a_write_back_that_nobody_waits_for_is_nothing(waits):
    found = waits(block=request(10 * S, 20 * S, 0, "W"))
    assert found.total_s == 0


def test_a_read_counts_only_while_the_disk_has_writes_to_do(waits):
    reading = request(11 * S, 15 * S, 800, "R", tid=7)
    calls = [call(11 * S - 5, 4 * S + 10, "read")]
    assert waits(syscalls=calls, block=reading).total_s == 0
    both = sorted([*reading, *request(9 * S, 12 * S, 0, "W")], key=lambda row: row["ts"])
    assert waits(syscalls=calls, block=both).by_kind["read"] == pytest.approx(1, abs=1e-6)


def test_throttling_counts_and_a_direct_write_does_and_what_overlaps_counts_once(waits):
    paused = {"ts": 20 * S, "tid": 7, "pid": 7, "event": "balance_dirty_pages", "pause_ns": 2 * S}
    direct = {"ts": 21 * S + 1, "tid": 8, "event": "direct_start"}
    found = waits(
        dirty=[paused],
        file_writes=[direct],
        syscalls=[call(21 * S, 3 * S, "pwrite64", tid=8)],
    )
    assert found.by_kind == {
        "throttle": pytest.approx(2), "sync": 0, "direct": pytest.approx(3), "read": 0
    }  # fmt: skip
    assert found.total_s == pytest.approx(4)


def test_waits_without_a_length_are_counted_and_gaps_are_said(waits):
    gap = {"stream": "ftrace-machine", "cpu": 0, "cause": "overrun", "count": 9, "from": S}
    found = waits(
        syscalls=[call(10 * S, None)],
        page_faults=[{"ts": 5 * S, "tid": 7, "pid": 7, "kind": "major", "user": True}],
        loss=[{**gap, "to": 2 * S}],
    )
    assert (found.total_s, found.unknown, found.lossy) == (0, 2, True)


def test_a_wait_that_outlasts_the_recording_ends_with_it(waits):
    assert waits(syscalls=[call(99 * S, 50 * S)]).total_s == pytest.approx(1)


def test_times_beyond_all_are_no_error(waits):
    most = (1 << 63) - 1
    assert waits(syscalls=[call(5, most)]).total_s == pytest.approx(100)
