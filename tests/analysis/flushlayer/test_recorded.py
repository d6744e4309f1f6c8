"""A recording as the timed model gets it: issuers, completions, flushes; and its sync calls."""

from __future__ import annotations

import numpy as np
import pytest

from tests.support.traces import make_trace
from tracer.analysis.flushlayer.devices import find_device
from tracer.analysis.flushlayer.timed import simulate
from tracer.analysis.flushlayer.timed.disk import Disk
from tracer.analysis.flushlayer.trace.accesses import page_writebacks
from tracer.analysis.flushlayer.trace.recorded import recorded_requests
from tracer.analysis.flushlayer.trace.sync_calls import sync_calls
from tracer.probes.errors import BadTrace

MS = 10**6
JOB, JBD2 = 7, 99
PROCESSES = [
    {"tid": JOB, "pid": JOB, "target": "job", "role": "target", "comm": "python"},
    {"tid": 8, "pid": 8, "target": "job", "role": "target", "comm": "python"},
    {"tid": JBD2, "pid": JBD2, "role": "journal", "comm": "jbd2/vda-8"},
]


def event(ts, name, sector, nr_sector, rwbs, tid):
    comm = "jbd2/vda-8" if tid == JBD2 else "python"
    return {
        "ts": ts, "tid": tid, "pid": tid, "comm": comm, "event": name, "dev": "254:0",
        "sector": sector, "nr_sector": nr_sector, "rwbs": rwbs,
    }  # fmt: skip


def request(queued, issued, complete, sector, nr_sector, rwbs):
    what = (sector, nr_sector, rwbs)
    return [
        event(queued, "bio_queue", *what, JOB),
        event(issued, "issue", *what, JOB),
        event(complete, "complete", *what, 0),
    ]


def in_order(rows):
    return sorted(rows, key=lambda row: row["ts"])


def fsync(ts, length, pid=JOB):
    return {"ts": ts, "dur_ns": length, "tid": pid, "pid": pid, "name": "fsync", "nr": 74, "ret": 0}


# One fsync of 40 ms: data (8 ms), two journal blocks in one request (8 ms), then the commit, with
# a flush before it and one after it.
COMMIT = [
    event(1 * MS, "bio_queue", 80, 8, "WS", JOB),
    event(1 * MS, "issue", 80, 8, "WS", JOB),
    event(9 * MS, "complete", 80, 8, "WS", 0),
    event(10 * MS, "bio_queue", 800, 8, "WSM", JBD2),
    event(10 * MS + 1, "bio_queue", 808, 8, "WSM", JBD2),
    event(10 * MS + 2, "issue", 800, 16, "WSM", JBD2),
    event(18 * MS, "complete", 800, 16, "WSM", 0),
    event(19 * MS, "bio_queue", 816, 8, "FWFSM", JBD2),
    event(27 * MS, "issue", 816, 8, "WSM", JBD2),
    event(35 * MS, "complete", 816, 8, "WSM", 0),
    event(39 * MS, "complete", 816, 0, "WSM", 0),
]


@pytest.fixture
def opened(tmp_path):
    traces = []

    def make(block, calls, **manifest):
        tables = {"block": block, "processes": PROCESSES, "syscalls": calls}
        trace = make_trace(tmp_path / f"{len(traces)}.trace", tables, **manifest)
        traces.append(trace)
        return trace, recorded_requests(trace, page_writebacks(trace, reads=True, flushes_too=True))

    yield make
    for trace in traces:
        trace.close()


def test_a_completion_at_a_sector_that_is_not_known_completes_nothing(opened):
    unknown = event(2 * MS, "complete", None, 8, "WS", 0)
    _, found = opened([unknown, *COMMIT], [fsync(0, 40 * MS)])
    _, without = opened(COMMIT, [fsync(0, 40 * MS)])
    assert found.done.tolist() == without.done.tolist() == [9 * MS, 18 * MS, 19 * MS, 39 * MS]


def test_a_bio_with_a_flush_before_it_is_a_flush_and_a_write(opened):
    _, found = opened(COMMIT, [fsync(0, 40 * MS)])
    assert found.op.tolist() == [0, 0, 2, 0]
    assert found.pages.tolist() == [1, 2, 0, 1]
    assert found.first.tolist() == [0, 1, 3, 3]
    assert found.fua.tolist() == [False, False, False, True]
    assert found.ts.tolist() == [1 * MS, 10 * MS, 19 * MS, 19 * MS]


def test_a_bio_is_complete_with_the_request_that_covers_it_or_is_written_through(opened):
    _, found = opened(COMMIT, [fsync(0, 40 * MS)])
    assert found.done.tolist() == [9 * MS, 18 * MS, 19 * MS, 39 * MS]


def test_a_sector_that_is_written_again_is_complete_by_the_next_request_of_it(opened):
    rows = [
        *request(1, 2, 5, 80, 8, "WS"),
        *request(6, 7, 9, 80, 8, "WS"),
        event(10, "bio_queue", 80, 8, "WS", JOB),
    ]
    _, found = opened(rows, [])
    assert found.done.tolist() == [5, 9, -1]


def test_a_read_of_a_sector_completes_no_write_of_it(opened):
    rows = [*request(1, 2, 5, 80, 8, "R"), *request(3, 4, 9, 80, 8, "W")]
    _, found = opened(in_order(rows), [])
    assert found.op.tolist() == [1, 0]
    assert found.done.tolist() == [5, 9]


def test_each_of_two_writes_in_flight_at_one_sector_has_its_own_completion(opened):
    rows = [*request(1, 2, 8, 80, 8, "WS"), *request(3, 4, 9, 80, 8, "WS")]
    _, found = opened(in_order(rows), [])
    assert found.done.tolist() == [8, 9]


def test_completions_at_one_sector_are_told_apart_by_length(opened):
    rows = [*request(1, 2, 9, 80, 8, "WS"), *request(3, 4, 8, 80, 16, "WS")]
    _, found = opened(in_order(rows), [])
    assert found.done.tolist() == [9, 8]


def test_a_bio_of_a_partition_is_complete_with_a_request_of_the_disk(opened):
    queue, *served = request(1, 2, 5, 80, 8, "WS")
    disks = [{"dev": "254:0"}, {"dev": "254:1", "partition_of": "254:0"}]
    _, found = opened([queue | {"dev": "254:1"}, *served], [], disks=disks)
    assert found.done.tolist() == [5]


def test_the_only_process_that_syncs_waits_for_the_journal(opened):
    assert opened(COMMIT, [fsync(0, 40 * MS)])[1].chain.tolist() == [JOB] * 4
    two = [fsync(0, 40 * MS), fsync(15 * MS, 25 * MS, pid=8)]
    assert opened(COMMIT, two)[1].chain.tolist() == [JOB, JOB, JBD2, JBD2]
    assert opened(COMMIT, [])[1].chain.tolist() == [JOB, JBD2, JBD2, JBD2]


def test_bios_that_went_to_the_device_apart_stay_apart(opened):
    rows = [
        *request(1, 3, 5, 80, 8, "WS"),
        *request(2, 4, 6, 88, 8, "WS"),
    ]
    assert opened(in_order(rows), [])[1].pages.tolist() == [1, 1]


def test_requests_that_end_at_one_time_are_not_one_request(opened):
    rows = [*request(1, 3, 6, 80, 8, "WS"), *request(2, 4, 6, 88, 8, "WS")]
    _, found = opened(in_order(rows), [])
    assert (found.pages.tolist(), found.done.tolist()) == ([1, 1], [6, 6])


def test_a_flush_alone_is_one_of_no_pages(opened):
    rows = [event(1, "bio_queue", 0, 0, "FWS", JOB), *COMMIT]
    _, found = opened(rows, [fsync(0, 40 * MS)])
    assert (found.op[0], found.pages[0], found.chain[0]) == (2, 0, JOB)


def test_a_sync_call_takes_what_its_bios_take_and_what_it_did_besides(opened):
    trace, found = opened(COMMIT, [fsync(0, 40 * MS), fsync(50 * MS, MS)])
    disk = Disk(find_device("hdd-paper", "disk"))
    calls = sync_calls(trace, found, simulate(found, disk, replay="closed"))
    # 1 ms before, 8 for the data, 1 between, 8, 1 between, 8 for the commit, 1 after.
    assert calls["simulated_ns"].tolist() == [pytest.approx(28 * MS, abs=10)]
    assert calls["recorded_ns"].tolist() == [40 * MS]
    assert (calls["bios"][0], calls["pid"][0], calls["call"][0]) == (4, JOB, "fsync")


def in_parts(begun, parts):
    """A write of 1 MiB that takes 64 ms, in so many requests."""
    rows, length = [event(begun, "bio_queue", 0, 2048, "WS", JOB)], 2048 // parts
    for part in range(parts):
        place = (part * length, length, "WS")
        rows.append(event(begun + 10, "issue", *place, JOB))
        ended = begun + (part + 1) * 64 * MS // parts
        rows.append(event(ended, "complete", *place, 0))
    return in_order(rows)


@pytest.mark.parametrize("parts", [1, 8])
def test_a_call_that_waits_for_all_parts_of_a_split_bio_did_nothing_meanwhile(opened, parts):
    # 1 ms before, and 1 ms after the last part. In the second call, a commit follows 1 ms after it.
    alone, before = in_parts(MS, parts), in_parts(101 * MS, parts)
    commit = request(166 * MS, 166 * MS, 174 * MS, 80_000, 8, "WSM")
    calls = [fsync(0, 66 * MS), fsync(100 * MS, 75 * MS)]
    trace, found = opened([*alone, *before, *commit], calls)
    disk = Disk(find_device("hdd-paper", "disk"))
    times = sync_calls(trace, found, simulate(found, disk, replay="closed"))
    assert times["simulated_ns"].tolist() == [
        pytest.approx(ms * MS, abs=10) for ms in (1 + 8 + 1, 1 + 8 + 1 + 8 + 1)
    ]
    assert times["bios"].tolist() == [1, 2]


def test_reads_are_requests_too(opened):
    _, found = opened(request(1, 2, 5, 80, 16, "R"), [])
    assert (found.op.tolist(), found.pages.tolist(), found.done.tolist()) == ([1], [2], [5])
    assert np.array_equal(found.page, [0, 1])


def test_a_flush_alone_is_complete_when_the_next_flush_of_the_device_is(opened):
    flush = [
        event(1 * MS, "bio_queue", 0, 0, "FWS", JOB),
        event(1 * MS, "issue", 0, 0, "FF", 0),
        # It comes too late for that one.
        event(2 * MS, "bio_queue", 0, 0, "FWS", 8),
        event(8 * MS, "complete", (1 << 64) - 1, 0, "FF", 0),
        event(8 * MS, "complete", 0, 0, "WS", 0),
        event(9 * MS, "issue", 0, 0, "FF", 0),
        event(17 * MS, "complete", (1 << 64) - 1, 0, "FF", 0),
        event(17 * MS, "complete", 0, 0, "WS", 0),
        event(20 * MS, "bio_queue", 0, 0, "FWS", JOB),
    ]
    _, found = opened([*flush, event(30 * MS, "bio_queue", 8, 8, "W", JOB)], [])
    assert found.op.tolist() == [2, 2, 2, 0]
    assert found.done.tolist() == [8 * MS, 17 * MS, -1, -1]


def test_a_bio_without_a_device_is_refused_with_the_trace_and_the_mend(tmp_path):
    known = event(1, "bio_queue", 0, 8, "WS", JOB)
    unknown = {**event(2, "bio_queue", 8, 8, "WS", JOB), "dev": None}
    with make_trace(tmp_path / "t", {"block": [known, unknown], "processes": PROCESSES}) as trace:
        accesses = page_writebacks(trace, all_writers=True)
        with pytest.raises(BadTrace) as refused:
            recorded_requests(trace, accesses)
        chosen = page_writebacks(trace, ["254:0"], all_writers=True)
        assert recorded_requests(trace, chosen).ts.tolist() == [1]
    assert str(refused.value) == (
        f"{tmp_path / 't'}: 1 of 2 bios have no device, and the model needs one of each; "
        "choose devices with --dev, or take the model paper or curve"
    )
