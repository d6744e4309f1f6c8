"""Block requests: events of one request become one row."""

import pytest

from tests.support.request_rows import block, rows
from tests.support.traces import make_trace
from tracer.analysis.views.disks import request_pairing
from tracer.analysis.views.disks import requests as requests_view
from tracer.analysis.views.disks.requests import requests
from tracer.analysis.views.disks.rest_queues import REST_QUEUES
from tracer.probes.errors import BadTrace


def test_a_request_has_queue_and_service_latency(tmp_path):
    assert rows(
        tmp_path,
        block(100, "bio_queue", 64),
        block(110, "insert", 64),
        block(150, "issue", 64),
        block(400, "complete", 64, error=0),
    ) == [(64, "write", 100, 110, 150, 400, 50, 250)]


def test_a_sector_written_twice_is_two_requests(tmp_path):
    assert rows(
        tmp_path,
        block(100, "bio_queue", 64),
        block(150, "issue", 64),
        block(400, "complete", 64),
        block(500, "bio_queue", 64),
        block(550, "issue", 64),
        block(560, "complete", 64),
    ) == [
        (64, "write", 100, None, 150, 400, 50, 250),
        (64, "write", 500, None, 550, 560, 50, 10),
    ]


TWO_AT_ONE_SECTOR = (
    block(100, "bio_queue", 64),
    block(110, "bio_queue", 64),
    block(150, "issue", 64),
    block(160, "issue", 64),
    block(400, "complete", 64),
    block(500, "complete", 64),
)


def test_requests_in_flight_at_one_sector_complete_in_the_order_of_their_issues(tmp_path):
    assert rows(tmp_path, *TWO_AT_ONE_SECTOR) == [
        (64, "write", 100, None, 150, 400, 50, 250),
        (64, "write", 110, None, 160, 500, 50, 340),
    ]


def test_events_of_one_time_are_in_the_order_of_the_file(tmp_path):
    at_once = [{**event, "ts": 100} for event in TWO_AT_ONE_SECTOR]
    assert rows(tmp_path, *at_once) == [(64, "write", 100, None, 100, 100, 0, 0)] * 2
    (tmp_path / "2").mkdir()
    backwards = rows(tmp_path / "2", *at_once[::-1])
    assert backwards == [(64, "write", None, None, 100, None, None, None)] * 2


def test_completions_behind_a_gap_are_nobodys_where_two_could_have_them(tmp_path):
    gap = {"stream": "machine-cpu0", "cpu": 0, "from": 200, "to": 300, "cause": "buffer overrun"}
    events = [
        block(150, "issue", 64),
        block(160, "issue", 72),
        block(550, "issue", 64),
        block(560, "complete", 64),
        block(600, "complete", 72),
        block(650, "issue", 64),
        block(670, "complete", 64),
    ]
    with make_trace(tmp_path / "t", {"block": events, "loss": [gap]}) as trace:
        requests(trace)
        found = trace.connection.execute(
            "SELECT issue_ns, complete_ns FROM requests ORDER BY issue_ns"
        ).fetchall()
    assert found == [(150, None), (160, 600), (550, None), (650, 670)]


def test_a_write_does_not_take_a_reads_completion(tmp_path):
    assert rows(
        tmp_path,
        block(100, "issue", 64, rwbs="R"),
        block(110, "issue", 64, rwbs="W"),
        block(200, "complete", 64, rwbs="W"),
        block(300, "complete", 64, rwbs="R"),
    ) == [
        (64, "read", None, None, 100, 300, None, 200),
        (64, "write", None, None, 110, 200, None, 90),
    ]


def test_a_completion_belongs_to_the_request_of_its_length(tmp_path):
    assert rows(
        tmp_path,
        block(100, "issue", 64, 16),
        block(110, "issue", 64, 8),
        block(200, "complete", 64, 8),
        block(300, "complete", 64, 16),
    ) == [
        (64, "write", None, None, 100, 300, None, 200),
        (64, "write", None, None, 110, 200, None, 90),
    ]


def test_a_request_done_in_parts_ends_with_the_last_one(tmp_path):
    events = (
        block(100, "issue", 64, 24),
        block(150, "issue", 72, 8),
        block(200, "complete", 64, 8, error=0),
        block(210, "complete", 72, 8, error=0),  # of the request of that length
        block(300, "complete", 72, 16, error=-5),
    )
    assert rows(tmp_path, *events) == [
        (64, "write", None, None, 100, 300, None, 200),
        (72, "write", None, None, 150, 210, None, 60),
    ]
    with make_trace(tmp_path / "2", {"block": list(events)}) as trace:
        requests(trace)
        errors = trace.connection.execute("SELECT error FROM requests ORDER BY issue_ns").fetchall()
    assert errors == [(-5,), (0,)]


def test_a_bio_that_failed_before_it_was_a_request_stays_behind(tmp_path):
    assert rows(
        tmp_path,
        block(100, "bio_queue", 64),  # RWF_NOWAIT and no free tag: EAGAIN
        block(200, "bio_queue", 64),
        block(210, "issue", 64),
        block(300, "complete", 64),
        block(400, "bio_queue", 64),
        block(410, "issue", 64),
        block(500, "complete", 64),
    ) == [
        (64, "write", 200, None, 210, 300, 10, 90),
        (64, "write", 400, None, 410, 500, 10, 90),
    ]


def test_a_bio_merged_in_front_begins_its_request(tmp_path):
    assert rows(
        tmp_path,
        block(100, "bio_queue", 72),
        block(105, "insert", 72),
        block(110, "bio_queue", 64),
        block(111, "frontmerge", 64),
        block(200, "issue", 64, 16),
        block(300, "complete", 64, 16),
        block(400, "issue", 72),  # the rest of a bio that was split
    ) == [
        (64, "write", 110, 105, 200, 300, 90, 100),
        (72, "write", None, None, 400, None, None, None),
    ]


def test_flushes_in_flight_on_several_queues_complete_in_order(tmp_path):
    last = (1 << 64) - 1
    assert rows(
        tmp_path,
        block(90, "bio_queue", 0, 0, "FWS"),
        block(95, "bio_queue", 0, 0, "FWS"),
        block(100, "issue", 0, 0, "FF"),
        block(105, "issue", 0, 0, "FF"),
        block(150, "complete", last, 0, "FF"),
        block(151, "complete", 0, 0, "FWS"),  # of the bio, which was no request
        block(160, "complete", last, 0, "FF"),
    ) == [
        (0, "flush", 90, None, 100, 150, 10, 50),
        (0, "flush", 95, None, 105, 160, 10, 55),
    ]


def test_one_flush_serves_every_bio_that_waits_for_it(tmp_path):
    assert rows(
        tmp_path,
        block(90, "bio_queue", 0, 0, "FWS"),
        block(95, "bio_queue", 0, 0, "FWS"),
        block(100, "issue", 0, 0, "FF"),
        block(150, "complete", 0, 0, "FF"),
        block(200, "issue", 0, 0, "FF"),  # before a write that has data
        block(250, "complete", 0, 0, "FF"),
    ) == [
        (0, "flush", 95, None, 100, 150, 5, 50),
        (0, "flush", None, None, 200, 250, None, 50),
    ]


def test_requests_without_end_are_given_up_by_age(tmp_path, monkeypatch):
    monkeypatch.setattr(request_pairing, "_MOST_ENTRIES", 4)
    monkeypatch.setattr(requests_view, "_BATCH", 6)
    issued = [block(n, "issue", 8 * n) for n in range(6)]
    done = [block(10 + n, "complete", 8 * n) for n in range(6)]
    found = rows(tmp_path, *issued, *done)
    assert [row[5] for row in found] == [None] * 3 + [13, 14, 15]


def test_devices_do_not_mix(tmp_path):
    assert rows(
        tmp_path,
        block(100, "issue", 64, dev="254:0"),
        block(120, "complete", 64, dev="7:0"),
    ) == [(64, "write", None, None, 100, None, None, None)]


@pytest.mark.parametrize(
    ("rwbs", "operation"),
    [
        ("W", "write"),
        ("WS", "write"),
        ("FWFS", "write"),
        ("R", "read"),
        ("RAM", "read"),
        ("D", "discard"),
        ("FF", "flush"),
        ("F", "flush"),
        ("N", "other"),
    ],
)
def test_the_operation_is_read_from_rwbs(tmp_path, rwbs, operation):
    ((_, found, *_),) = rows(tmp_path, block(1, "issue", 0, rwbs=rwbs))
    assert found == operation


def test_a_trace_without_block_events_says_how_to_get_them(tmp_path):
    with (
        make_trace(tmp_path / "t", {"syscalls": []}) as trace,
        pytest.raises(BadTrace, match="no table block; record it: tracer record -e block"),
    ):
        requests(trace)


def test_a_flush_pairs_though_the_kernel_gives_it_two_sectors(tmp_path):
    assert rows(
        tmp_path,
        block(100, "issue", 0, 0, "FF"),
        block(105, "issue", 0, 8, "W"),
        block(150, "complete", (1 << 64) - 1, 0, "FF"),
        block(160, "complete", 0, 8, "W"),
    ) == [
        (0, "flush", None, None, 100, 150, None, 50),
        (0, "write", None, None, 105, 160, None, 55),
    ]


def test_a_bio_of_a_partition_is_queued_for_its_disk(tmp_path):
    events = [
        block(100, "bio_queue", 64, dev="8:1"),
        block(1000, "insert", 64, dev="8:0"),
        block(1100, "issue", 64, dev="8:0"),
        block(1200, "complete", 64, dev="8:0"),
    ]
    disks = [{"dev": "8:0", "name": "sda"}, {"dev": "8:1", "name": "sda1", "partition_of": "8:0"}]
    with make_trace(tmp_path / "t", {"block": events}, disks=disks) as trace:
        requests(trace)
        found = trace.connection.execute("SELECT dev, queue_latency_ns FROM requests").fetchall()
    assert found == [("8:0", 1000)]


def test_a_request_that_was_never_queued_has_no_queue_latency(tmp_path):
    assert rows(
        tmp_path,
        block(10, "bio_queue", 64),
        block(20, "backmerge", 64),  # into a request of another sector
        block(5000, "insert", 64),  # the rest of a split bio
        block(5100, "issue", 64),
        block(5200, "complete", 64),
    ) == [(64, "write", None, 5000, 5100, 5200, None, 100)]


def test_a_completion_longer_than_a_request_is_not_its_own(tmp_path):
    assert rows(
        tmp_path,
        block(100, "issue", 64, 8),
        block(200, "complete", 64, 16),
    ) == [(64, "write", None, None, 100, None, None, None)]


def test_an_inserted_request_is_issued_before_a_later_bio(tmp_path):
    assert rows(
        tmp_path,
        block(100, "bio_queue", 64),
        block(110, "insert", 64),
        block(120, "bio_queue", 64),  # still in a plug, or it fails
        block(150, "issue", 64),
    ) == [(64, "write", 100, 110, 150, None, 50, None)]


def test_the_rest_of_a_split_bio_takes_no_other_bio(tmp_path):
    assert rows(
        tmp_path,
        block(100, "insert", 64),  # the rest of a bio that was split
        block(100, "bio_queue", 64),
        block(110, "insert", 64),
        block(120, "issue", 64),
        block(130, "issue", 64),
    ) == [
        (64, "write", None, 100, 120, None, None, None),
        (64, "write", 100, 110, 130, None, 30, None),
    ]


def test_a_bio_merged_in_front_keeps_the_insert_though_its_queueing_is_lost(tmp_path):
    assert rows(
        tmp_path,
        block(100, "insert", 72),
        block(110, "frontmerge", 64),
        block(200, "issue", 64, 16),
    ) == [(64, "write", None, 100, 200, None, None, None)]


def test_the_rest_of_a_split_bio_has_the_latest_bio_around_it(tmp_path):
    last = (1 << 64) - 8
    events = [
        block(10, "bio_queue", 64, 32),  # its rest comes after the next bio, which is closer
        block(20, "bio_queue", 64, 24),
        block(30, "bio_queue", 64, 32) | {"rwbs": "R"},
        block(40, "bio_queue", 64, 32) | {"dev": "254:16"},
        *(block(50 + at, "issue", 64 + 8 * at) for at in range(4)),
        block(60, "bio_queue", last - 8, 64),  # ends beyond the last sector
        block(61, "issue", last - 8),
        block(62, "issue", last),
        block(63, "issue", 8),  # no bio is around it
    ]
    with make_trace(tmp_path / "t", {"block": events}) as trace:
        found = REST_QUEUES.frame(trace)
    assert sorted(found.to_numpy().tolist()) == [
        [5, 20, 64],
        [6, 20, 64],
        [7, 10, 64],
        [10, 60, last - 8],
    ]
