"""Block requests: events of one request become one row."""

import pytest

from analysis.views.requests import requests
from probes.errors import BadTrace
from tests.support.traces import make_trace


def block(ts, event, sector, nr_sector=8, rwbs="W", dev="254:0", **more):
    return {
        "ts": ts,
        "tid": 1,
        "pid": 1,
        "event": event,
        "dev": dev,
        "sector": sector,
        "nr_sector": nr_sector,
        "rwbs": rwbs,
        **more,
    }


def rows(tmp_path, *events):
    with make_trace(tmp_path / "t", {"block": list(events)}) as trace:
        requests(trace)
        return trace.connection.execute(
            "SELECT sector, operation, queue_ns, insert_ns, issue_ns, complete_ns, "
            "queue_latency_ns, service_latency_ns FROM requests ORDER BY issue_ns"
        ).fetchall()


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


def test_a_completion_that_was_lost_is_not_taken_from_the_next_request(tmp_path):
    assert rows(
        tmp_path,
        block(150, "issue", 64),
        block(550, "issue", 64),
        block(560, "complete", 64),
    ) == [
        (64, "write", None, None, 150, None, None, None),
        (64, "write", None, None, 550, 560, None, 10),
    ]


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


def test_what_was_never_queued_has_no_queue_latency(tmp_path):
    assert rows(
        tmp_path,
        block(10, "bio_queue", 64),
        block(20, "backmerge", 64),  # into a request of another sector
        block(5000, "insert", 64),  # the rest of a split bio
        block(5100, "issue", 64),
        block(5200, "complete", 64),
    ) == [(64, "write", None, 5000, 5100, 5200, None, 100)]


def test_a_request_that_the_driver_sent_back_is_one(tmp_path):
    assert rows(
        tmp_path,
        block(100, "bio_queue", 64),
        block(110, "issue", 64),
        block(120, "requeue", 64),
        block(200, "issue", 64),
        block(300, "complete", 64),
    ) == [(64, "write", 100, None, 200, 300, 100, 100)]
