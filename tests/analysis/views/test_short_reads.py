"""Calls that read less than they ask for: at the end of a file that is longer later on, or since
they do not wait for the device (RWF_NOWAIT)."""

from __future__ import annotations

import pytest

from tests.support.traces import make_trace
from tracer.analysis.memory.recorded import recorded
from tracer.analysis.views.reading.reads import READS

PAGE = 4096
FILE = {"dev": "254:0", "ino": 12}
JOB, OTHER = 7, 8
THREAD = {"pid": JOB, "tid": JOB}


def used(ts, index, pages):
    return {"ts": ts, **THREAD, "event": "access", "index": index, "pages": pages, **FILE,
            "continues": False}  # fmt: skip


def appended(ts, index, pages):
    return {"ts": ts, "pid": OTHER, "tid": OTHER, "event": "add", "index": index, "pages": pages,
            **FILE}  # fmt: skip


def call(ts, length, ret, offset=None, name="read"):
    return {"ts": ts, **THREAD, "name": name, "dur_ns": 9, "length": length, "ret": ret,
            "offset": offset}  # fmt: skip


@pytest.fixture
def reading(tmp_path):
    """Makes a trace of a file that has 100 pages at the end of the recording."""
    opened = []

    def make(events, calls):
        size = [{**FILE, "size": 100 * PAGE, "path": "/data"}]
        tables = {"processes": [], "block": [], "files": size}
        opened.append(
            make_trace(tmp_path / "t", tables | {"page_cache": events, "syscalls": calls})
        )
        READS.make(opened[0])
        return opened[0]

    yield make
    for trace in opened:
        trace.close()


def accessed(trace):
    return trace.rows("SELECT sum(accessed)::BIGINT, sum(hit)::BIGINT FROM reads")[0]


@pytest.mark.parametrize(
    ("at", "wanted", "one", "pages"),
    [
        (2, 10, call(10, 10 * PAGE, 3 * PAGE), 3),
        (2, 10, call(10, 10 * PAGE, 3 * PAGE + 1), 4),
        (2, 10, call(10, 10 * PAGE, 10 * PAGE), 10),
        # 904 bytes into the page, so that it wants a part of one more.
        (1, 2, call(10, PAGE, 4000), 2),
        (1, 11, call(10, 10 * PAGE, 3000, PAGE + 904, "pread64"), 1),
        (1, 11, call(10, 10 * PAGE, 4000, PAGE + 904, "pread64"), 2),
        # The lengths of the buffers are not recorded.
        (0, 32, call(10, None, 5 * PAGE, 0, "preadv"), 5),
        (0, 32, call(10, None, 5 * PAGE, None, "readv"), 6),
    ],
)
def test_pages_beyond_the_bytes_that_a_call_returned_are_not_used(reading, at, wanted, one, pages):
    assert accessed(reading([used(11, at, wanted)], [one])) == (pages, pages)


def test_a_page_that_is_appended_after_a_read_is_used_by_later_reads_only(reading):
    events = [used(11, 0, 32), appended(30, 3, 2), used(41, 0, 32)]
    calls = [call(10, 32 * PAGE, 3 * PAGE), call(40, 32 * PAGE, 5 * PAGE)]
    assert accessed(reading(events, calls)) == (8, 8)


def test_a_model_of_the_cache_reads_no_pages_beyond_the_returned_bytes(reading):
    events = [used(11, 0, 32), used(41, 2, 32), used(71, 50, 4)]
    calls = [
        call(10, 32 * PAGE, 3 * PAGE),
        call(40, 32 * PAGE, PAGE),
        call(70, 4 * PAGE, 4 * PAGE),
    ]
    runs = recorded(reading(events, calls)).runs
    assert [*zip(runs.first.tolist(), runs.pages.tolist(), strict=True)] == [
        (0, 3),
        (2, 1),
        (50, 4),
    ]


def brought_in(ts, index):
    events = (("sync_read_ahead", ts), ("read_ahead", ts + 1), ("add", ts + 2))
    return [used(at, index, 1) | {"event": event, "continues": None} for event, at in events]


AGAIN = -11
"""-EAGAIN"""


def test_a_page_that_a_call_asked_for_without_waiting_is_hit_by_the_next_call(reading):
    calls = [call(10, None, AGAIN, 5 * PAGE, "preadv2"), call(20, PAGE, PAGE, 5 * PAGE, "pread64")]
    assert accessed(reading([*brought_in(11, 5), used(21, 5, 1)], calls)) == (1, 1)


def test_a_page_that_a_call_asked_for_and_did_not_return_is_hit_by_the_next_call(reading):
    events = [used(11, 4, 2), *brought_in(12, 5), used(21, 5, 1)]
    calls = [
        call(10, None, PAGE, 4 * PAGE, "preadv2"),
        call(20, PAGE, PAGE, 5 * PAGE, "pread64"),
    ]
    assert accessed(reading(events, calls)) == (2, 2)
