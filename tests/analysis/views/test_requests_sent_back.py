"""Block requests that the driver sends back, or completes in parts."""

from tests.support.request_rows import block, rows
from tests.support.traces import make_trace
from tracer.analysis.views.disks.requests import requests


def test_a_request_that_was_sent_back_is_inserted_again(tmp_path):
    assert rows(
        tmp_path,
        block(100, "bio_queue", 64),
        block(105, "insert", 64),
        block(110, "issue", 64),
        block(120, "requeue", 64),
        block(130, "insert", 64),
        block(200, "issue", 64),
        block(300, "complete", 64),
    ) == [(64, "write", 100, 130, 200, 300, 100, 100)]


def test_a_request_that_the_driver_sent_back_is_one(tmp_path):
    assert rows(
        tmp_path,
        block(100, "bio_queue", 64),
        block(110, "issue", 64),
        block(120, "requeue", 64),
        block(200, "issue", 64),
        block(300, "complete", 64),
    ) == [(64, "write", 100, None, 200, 300, 100, 100)]


def test_a_request_that_was_sent_back_keeps_its_bio_beside_a_later_one(tmp_path):
    assert rows(
        tmp_path,
        block(100, "bio_queue", 64),
        block(110, "issue", 64),
        block(120, "requeue", 64),
        block(130, "bio_queue", 64),
        block(140, "issue", 64),
    ) == [(64, "write", 100, None, 140, None, 40, None)]


def test_a_request_that_was_sent_back_does_not_give_its_insert_to_another(tmp_path):
    assert rows(
        tmp_path,
        block(100, "bio_queue", 64),
        block(110, "insert", 64),
        block(120, "bio_queue", 64),
        block(130, "insert", 64),
        block(140, "issue", 64),
        block(150, "requeue", 64),
        block(160, "issue", 64),
        block(170, "issue", 64),
        block(180, "requeue", 64),
        block(190, "insert", 64),
        block(200, "issue", 64),
    ) == [
        (64, "write", 100, 110, 160, None, 60, None),
        (64, "write", 120, 190, 200, None, 80, None),
    ]


def test_an_error_of_a_part_outlives_a_requeue_of_the_rest(tmp_path):
    events = [
        block(100, "issue", 64, 16),
        block(150, "complete", 64, 8, error=-5),
        block(160, "requeue", 72, 8),
        block(200, "issue", 72, 8),
        block(300, "complete", 72, 8, error=0),
    ]
    with make_trace(tmp_path / "t", {"block": events}) as trace:
        requests(trace)
        found = trace.connection.execute("SELECT sector, nr_sector, error FROM requests").fetchall()
    assert found == [(72, 8, -5)]


def test_a_requeue_sends_back_a_request_of_its_length_only(tmp_path):
    assert rows(
        tmp_path,
        block(100, "issue", 64, 16),
        block(110, "requeue", 64, 8),
        block(200, "complete", 64, 16),
    ) == [(64, "write", None, None, 100, 200, None, 100)]
