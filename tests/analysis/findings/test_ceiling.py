"""The most that a layer can save: the time in which somebody may wait for a disk's writing."""

from __future__ import annotations

import pytest

from tests.support.traces import make_trace
from tracer.analysis.findings.ceiling import ceiling
from tracer.analysis.findings.writes import CEILING, writes

pytestmark = pytest.mark.slow

S = 10**9
JOB = [
    {"tid": tid, "pid": 7, "target": "job", "role": "target", "comm": "python"} for tid in (7, 8)
]
ALL = ("processes", "syscalls", "block", "dirty", "page_faults", "file_writes")


@pytest.fixture
def waits(tmp_path):
    def find(**tables):
        made = {name: [] for name in ALL} | {"processes": JOB} | tables
        made = {name: rows for name, rows in made.items() if rows is not None}
        if made.get("block"):
            made["block"] = sorted(made["block"], key=lambda row: row["ts"])
        clock = {"name": "mono", "start_ns": 0, "end_ns": 100 * S}
        folder = tmp_path / str(len(list(tmp_path.iterdir())))
        with make_trace(folder, made, clock=clock) as trace:
            found = ceiling(trace)
            (told,) = [one for one in writes(trace) if one.topic == CEILING]
            assert told.value == found.percent
            assert trace.sql(told.query).iloc[0, 0] == told.value
            return found

    return find


def call(begun, length, name="fsync", tid=7):
    ret = 0 if length is not None else None
    return {"ts": begun, "dur_ns": length, "tid": tid, "pid": 7, "name": name, "nr": 1, "ret": ret}


def request(begun, ended, sector, rwbs, tid=99, **more):
    common = {"dev": "254:0", "sector": sector, "nr_sector": 8, "rwbs": rwbs, "tid": tid, **more}
    moments = (("bio_queue", begun), ("issue", begun), ("complete", ended))
    return [{"ts": ts, "event": event, **common} for event, ts in moments if ts is not None]


def fault(ts, **more):
    return {"ts": ts, "tid": 7, "pid": 7, "kind": "major", "user": True, **more}


FIRST = [call(0, 0, "getpid"), call(0, 0, "getpid", tid=8)]
"""Two threads, neither in a call when the recording began."""


def phase(begun, ended, pid=7, name="train"):
    return {"start": begun, "end": ended, "pid": pid, "tid": pid, "name": name}


def kinds(found):
    return {kind: pytest.approx(s) for kind, s in found.by_kind.items() if s}


def test_calls_of_threads_that_wait_at_once_count_once(waits):
    found = waits(syscalls=[call(10 * S, 4 * S), call(12 * S, 4 * S, tid=8), call(50 * S, S)])
    assert kinds(found) == {"sync": 7}
    assert (found.total_s, found.length_s) == (pytest.approx(7), 100)
    assert found.share == pytest.approx(0.07)
    assert not found.lossy


def test_a_write_back_that_nobody_waits_for_is_nothing(waits):
    assert waits(syscalls=FIRST, block=request(10 * S, 20 * S, 0, "W")).total_s == 0


def test_a_sentence_that_leaves_out_kinds_of_waits_says_so(tmp_path):
    calls = [call(10 * S, 50 * S, "write"), call(60 * S, 9 * S)]
    gap = {"stream": "ftrace-target-cpu0", "cpu": 0, "from": 80 * S, "to": 81 * S, "cause": "x"}
    said = []
    for name, loss in (("two", []), ("three", [gap])):
        tables = {"processes": JOB, "syscalls": calls, "loss": loss}
        clock = {"name": "mono", "start_ns": 0, "end_ns": 100 * S}
        with make_trace(tmp_path / name, tables, clock=clock) as trace:
            said += [one.sentence for one in writes(trace) if one.topic == CEILING]
    assert "(50 s in calls that write" in said[0]
    assert "(mainly 50 s in calls that write" in said[1]


def test_a_write_that_no_event_explains_counts_whole(waits):
    found = waits(syscalls=[call(10 * S, 50 * S, "write")])
    assert kinds(found) == {"write": 50}
    assert found.percent == pytest.approx(50)


@pytest.mark.parametrize("name", ["io_getevents", "io_uring_enter", "io_submit", "pwrite64"])
def test_calls_that_begin_or_await_transfers_count_whole(waits, name):
    found = waits(syscalls=[call(10 * S, 4 * S, name)], block=request(10 * S, 10 * S + 9, 0, "WS"))
    assert kinds(found) == {"write": 4}


def test_a_transfer_that_is_awaited_without_a_call_counts_until_it_is_complete(waits):
    submit = call(10 * S, 100, "io_submit")
    written = request(10 * S + 50, 14 * S, 0, "WS", tid=7)
    assert kinds(waits(syscalls=[submit], block=written)) == {
        "async": pytest.approx(4, abs=1e-6), "write": pytest.approx(1e-7)
    }  # fmt: skip
    # A thread of io_uring, of which no call tells.
    worker = request(10 * S, 14 * S, 0, "WS", tid=8, comm="iou-sqp-7")
    assert kinds(waits(syscalls=FIRST, block=worker)) == {"async": 4}


def test_a_transfer_of_a_write_back_counts_for_nobody(waits):
    closed = [call(0, 1, "close", tid=8), call(10 * S, 100, "close")]
    found = waits(syscalls=closed, block=request(10 * S + 50, 14 * S, 0, "W", tid=7))
    assert found.total_s == pytest.approx(1e-7, abs=1e-8)


@pytest.mark.parametrize("name", ["openat", "mkdir", "ioctl"])
def test_another_call_counts_while_the_disk_has_writes_to_do(waits, name):
    calls = [*FIRST, call(11 * S, 8 * S, name)]
    assert waits(syscalls=calls, block=request(30 * S, 40 * S, 0, "W")).total_s == 0
    assert kinds(waits(syscalls=calls, block=request(9 * S, 12 * S, 0, "W"))) == {"disk": 1}


def test_a_call_that_reads_may_read_a_pipe_and_counts_while_reads_are_behind_writes(waits):
    calls = [*FIRST, call(10 * S, 80 * S, "read")]
    writing = request(20 * S, 30 * S, 0, "W")
    assert waits(syscalls=calls, block=writing).total_s == 0
    read_ahead = request(29 * S, 33 * S, 800, "RA")
    assert kinds(waits(syscalls=calls, block=writing + read_ahead)) == {"disk": 4}
    # Before a direct read dirty pages are written.
    own = request(29 * S, 29 * S + 1, 800, "R", tid=7)
    assert kinds(waits(syscalls=calls, block=writing + own)) == {"disk": 10}


def test_a_read_beside_a_write_counts_until_it_is_complete(waits):
    calls = [*FIRST, call(10 * S, 8 * S, "pread64")]
    reading = request(11 * S, 15 * S, 800, "R", tid=7)
    assert waits(syscalls=calls, block=reading).total_s == 0
    # The write ends at 12 s; where the arm is then makes the read late, too.
    assert kinds(waits(syscalls=calls, block=reading + request(9 * S, 12 * S, 0, "W"))) == {
        "disk": 5  # from 10 s, as the call may wait for the write itself
    }
    # A write that comes while the disk reads.
    assert kinds(waits(syscalls=calls, block=reading + request(13 * S, 14 * S, 0, "W"))) == {
        "disk": 2
    }


def test_the_first_read_after_a_write_counts_and_no_other_one(waits):
    calls = [*FIRST, call(10 * S, 8 * S, "pread64")]
    rows = [
        *request(8 * S, 9 * S, 0, "W"),
        *request(11 * S, 12 * S, 800, "R", tid=7),
        *request(13 * S, 14 * S, 808, "R", tid=7),
    ]
    assert kinds(waits(syscalls=calls, block=rows)) == {"disk": 1}
    elsewhere = [row | {"dev": "254:16"} for row in rows[:3]]
    assert waits(syscalls=calls, block=elsewhere + rows[3:]).total_s == 0


def in_two_parts(rwbs, *times):
    """A bio queued at the first time, in two requests: each has two more times, in s."""
    common = {"dev": "254:0", "rwbs": rwbs, "tid": 99}
    queued, *others = times
    rows = [{"ts": queued * S, "event": "bio_queue", "sector": 0, "nr_sector": 16, **common}]
    for number, event in enumerate(("issue", "complete", "issue", "complete")):
        place = {"sector": 8 * (number // 2), "nr_sector": 8}
        rows.append({"ts": others[number] * S, "event": event, **place, **common})
    return rows


def test_the_rest_of_a_split_write_is_to_do_since_the_write_was_queued(waits):
    calls = [*FIRST, call(11 * S, 2 * S, "openat")]
    parts = in_two_parts("W", 9, 9, 10, 14, 16)
    assert kinds(waits(syscalls=calls, block=parts)) == {"disk": 2}
    # A read, a write elsewhere, and one that is queued later say nothing of it.
    begin, *_, issue, complete = parts
    others = [begin | {"rwbs": "R"}, begin | {"dev": "254:16"}, begin | {"ts": 13 * S}]
    assert waits(syscalls=calls, block=[*others, issue, complete]).total_s == 0


def test_the_rest_of_a_split_read_is_late_if_a_write_comes_before_it(waits):
    calls = [*FIRST, call(10 * S, 8 * S, "read")]
    reading = in_two_parts("R", 10, 10, 11, 14, 16)
    assert waits(syscalls=calls, block=reading).total_s == 0
    writing = request(12 * S, 13 * S, 800, "W")
    assert kinds(waits(syscalls=calls, block=reading + writing)) == {"disk": 4}


def test_a_short_write_counts_if_a_disk_was_writing_or_nobody_told(waits):
    calls = [*FIRST, *(call(n * S, 99_999, "write") for n in range(1, 11))]
    assert waits(syscalls=calls).total_s == 0
    # The disk writes during the first of them, and between it and the next.
    writing = request(S + 50_000, 2 * S - 1, 0, "W")
    assert kinds(waits(syscalls=calls, block=writing)) == {"write": 99_999e-9}
    assert kinds(waits(syscalls=calls, block=None)) == {"write": 10 * 99_999e-9}
    long = [*FIRST, call(S, 100_001, "write"), call(2 * S, 99_999, "fsync")]
    assert kinds(waits(syscalls=long)) == {"write": 100_001e-9, "sync": 99_999e-9}


def test_waiting_for_threads_times_and_networks_is_nothing(waits):
    idle = [call(10 * S, 9 * S, name) for name in ("futex", "poll", "nanosleep", "recvfrom")]
    found = waits(syscalls=[*FIRST, *idle], block=request(9 * S, 12 * S, 0, "W"))
    assert found.total_s == 0


def test_throttling_counts_and_a_write_does_and_what_overlaps_counts_once(waits):
    paused = {"ts": 20 * S, "tid": 7, "pid": 7, "event": "balance_dirty_pages", "pause_ns": 2 * S}
    found = waits(dirty=[paused], syscalls=[call(21 * S, 3 * S, "pwrite64", tid=8)])
    assert kinds(found) == {"throttle": 2, "write": 3}
    assert found.total_s == pytest.approx(4)


def test_a_call_that_did_not_return_lasts_until_the_next_one_or_the_end(waits):
    assert kinds(waits(syscalls=[call(90 * S, None)])) == {"sync": 10}
    again = [call(90 * S, None), call(93 * S, S, "getpid")]
    assert kinds(waits(syscalls=again)) == {"sync": 3}
    ended = [row | {"end_ns": 92 * S} for row in JOB]
    assert kinds(waits(processes=ended, syscalls=[call(90 * S, None)])) == {"sync": 2}
    # The calls of another thread say nothing of this one.
    other = [call(90 * S, None), call(93 * S, S, "getpid", tid=8)]
    assert kinds(waits(syscalls=other)) == {"sync": 10}


def test_a_page_fault_that_reads_lasts_until_its_thread_does_something_else(waits):
    calls = [*FIRST, call(16 * S, 0, "getpid")]
    rows = [*request(9 * S, 30 * S, 0, "W")]
    assert kinds(waits(syscalls=calls, block=rows, page_faults=[fault(12 * S)])) == {"disk": 4}
    both = [fault(12 * S), fault(13 * S, kind="minor", file="[anon]"), fault(14 * S)]
    assert kinds(waits(syscalls=calls, block=rows, page_faults=both)) == {"disk": 4}
    minor = [fault(12 * S, kind="minor", file="/lib/x.so", access="read")]
    assert waits(syscalls=calls, block=rows, page_faults=minor).total_s == 0
    shared = [fault(12 * S, kind="minor", file="/data/x", access="write")]
    assert kinds(waits(syscalls=calls, block=rows, page_faults=shared)) == {"disk": 4}


def test_a_page_fault_inside_a_call_does_not_end_it(waits):
    calls = [*FIRST, call(10 * S, None, "write")]
    inside = fault(11 * S, kind="minor", file="/data/x", access="write")
    assert kinds(waits(syscalls=calls, page_faults=[inside])) == {"write": 90}
    # A thread may be in an earlier call until its first recorded call, even if it faults.
    later = [call(0, 0, "getpid"), call(16 * S, 0, "getpid", tid=8)]
    rows = request(9 * S, 30 * S, 0, "W")
    faults = [fault(12 * S, tid=8)]
    assert kinds(waits(syscalls=later, block=rows, page_faults=faults)) == {"begun": 7, "disk": 4}


def test_the_last_of_many_faults_lasts_until_the_disk_writes(waits):
    faults = [fault(n * S) for n in range(1, 20)] + [fault(n * S, tid=8) for n in (2, 28)]
    rows = request(25 * S, 30 * S, 0, "W") + request(40 * S, 41 * S, 0, "W")
    calls = [*FIRST, call(27 * S, 0, "getpid")]
    assert kinds(waits(syscalls=calls, block=rows, page_faults=faults[:19])) == {"disk": 2}
    assert kinds(waits(syscalls=calls, block=rows, page_faults=faults)) == {"disk": 6}


def test_before_its_first_call_a_thread_may_have_been_in_one(waits):
    calls = [call(0, 0, "getpid"), call(16 * S, 0, "getpid", tid=8)]
    rows = request(9 * S, 30 * S, 0, "W")
    assert kinds(waits(syscalls=calls, block=rows)) == {"begun": 7}
    later = [JOB[0], JOB[1] | {"start_ns": 15 * S}]
    assert waits(processes=later, syscalls=calls, block=rows).total_s == 0
    found = waits(syscalls=calls[:1], block=rows)
    assert found.total_s == 0
    assert "threads without any system call (1)" in found.left_out


@pytest.mark.parametrize("scope", ["target", "machine"])
def test_the_time_of_lost_events_counts_and_is_said(waits, scope):
    gap = {"stream": f"ftrace-{scope}-cpu0", "cpu": 0, "cause": "overrun", "count": 9, "from": S}
    found = waits(syscalls=FIRST, loss=[gap | {"to": 3 * S}])
    assert (kinds(found), found.lossy) == ({"lost": 2}, True)
    assert waits(syscalls=FIRST, loss=[gap | {"to": None}]).total_s == 99


def test_lost_marks_and_samples_are_no_lost_events(waits):
    gap = {"stream": "samples", "cpu": -1, "cause": "late", "count": 9}
    assert waits(syscalls=FIRST, loss=[gap]).total_s == 0


def test_requests_that_are_not_complete_last_until_the_end(waits):
    calls = [*FIRST, call(80 * S, 10 * S, "openat")]
    assert kinds(waits(syscalls=calls, block=request(70 * S, None, 0, "W"))) == {"disk": 10}


def test_a_wait_that_outlasts_the_recording_ends_with_it(waits):
    assert waits(syscalls=[call(99 * S, 50 * S)]).total_s == pytest.approx(1)


def test_times_beyond_all_are_no_error(waits):
    most = (1 << 63) - 1
    assert waits(syscalls=[call(5, most)]).total_s == pytest.approx(100)
    assert waits(syscalls=[call(-most, most), call(most, most)]).total_s == 0


@pytest.mark.parametrize("table", ["block", "dirty", "page_faults"])
def test_the_bound_names_the_waits_that_a_missing_table_would_have(waits, table):
    assert any(f"(no table {table})" in said for said in waits(**{table: None}).left_out)
    assert not any("no table" in said for said in waits().left_out)


def test_only_training_counts_and_jobs_that_train_at_once_have_each_its_own_waits(waits):
    two = [
        JOB[0],
        {"tid": 9, "pid": 9, "target": "other", "role": "target", "comm": "python"},
    ]
    calls = [call(5 * S, 10 * S), call(30 * S, 4 * S), call(30 * S, 4 * S, tid=9)]
    found = waits(processes=two, syscalls=calls, phases=[phase(10 * S, 50 * S)])
    assert (found.what, found.length_s, found.total_s) == ("training time", 40, 9)
    both = [phase(10 * S, 50 * S), phase(30 * S, 70 * S, pid=9)]
    found = waits(processes=two, syscalls=calls, phases=both)
    assert (found.length_s, found.total_s) == (80, 13)


def test_many_stretches_of_training_have_the_same_sum_as_one(waits):
    calls = [call(10 * S, 4 * S), call(30 * S, 20 * S)]
    many = [phase(n * S // 2, (n + 1) * S // 2) for n in range(200)]
    found = waits(syscalls=calls, phases=many)
    assert (found.length_s, found.total_s) == (100, 24)


def test_without_threads_of_a_job_nothing_is_known(tmp_path):
    tables = {"processes": [JOB[0] | {"role": "other"}], "syscalls": [call(5, S)]}
    job = {"name": "job", "role": "target", "kind": "pid", "pid": 99}
    with make_trace(tmp_path / "t", tables, targets=[job]) as trace:
        assert ceiling(trace) is None


@pytest.mark.parametrize("more", [0, 100])
def test_a_job_that_is_killed_waits_until_then(waits, more):
    """The sum over many stretches of another job's training is computed in another way."""
    killed = [one | {"end_ns": 40 * S} for one in JOB]
    peer = {"tid": 9, "pid": 9, "target": "other", "role": "target", "comm": "python"}
    short = [phase(n * S // 10, n * S // 10 + 1, pid=9) for n in range(more)]
    found = waits(
        processes=[*killed, peer],
        syscalls=[call(30 * S, 20 * S)],
        phases=[phase(10 * S, None), *short],
    )
    assert (found.length_s, found.total_s) == (pytest.approx(30 + more / S), 10)
