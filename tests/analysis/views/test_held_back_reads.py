"""Reads that a limit on the speed of a device holds back: a thread of the kernel logs them."""

from __future__ import annotations

import pytest

from tests.support.traces import make_trace
from tracer.analysis.views.reading.asked_bios import asked_bios
from tracer.analysis.views.reading.reads import reads

JOB, OTHER, WORKER = 7, 8, 40
PAGE = 4096
PROCESSES = [
    {"pid": JOB, "tid": JOB, "role": "target", "target": "job", "comm": "python", "ppid": 1},
    {"pid": OTHER, "tid": OTHER, "role": "target", "target": "other", "comm": "cp", "ppid": 1},
    {"pid": WORKER, "tid": WORKER, "role": "other", "comm": "kworker/0:1H", "ppid": 2},
]
DEV = "254:0"
FIRST, SECOND = 12, 13
FILES = [{"dev": DEV, "ino": ino, "size": 100 * PAGE, "path": f"/{ino}"} for ino in (FIRST, SECOND)]
AT = {FIRST: 1000, SECOND: 2000}
"""The page of the device where each file begins."""
EXTENTS = [
    {"dev": DEV, "ino": ino, "file_byte": 0, "disk_byte": at * PAGE, "bytes": 100 * PAGE}
    for ino, at in AT.items()
]
TWO = [
    {"name": name, "role": "target", "kind": "pid", "pid": pid}
    for name, pid in (("job", JOB), ("other", OTHER))
]


def row(ts, tid, event, ino, index, pages=1):
    return {"ts": ts, "pid": tid, "tid": tid, "event": event, "dev": DEV, "ino": ino,
            "index": index, "pages": pages}  # fmt: skip


def added(ts, tid, ino, index, pages):
    """A thread reads pages that are not in the cache."""
    asked = [row(ts, tid, "sync_read_ahead", ino, index, pages)]
    return asked + [row(ts + 1, tid, "add", ino, index + n) for n in range(pages)]


def bio(ts, tid, ino, index, pages=1, **more):
    return {"ts": ts, "pid": tid, "tid": tid, "event": "bio_queue", "dev": DEV, "rwbs": "RA",
            "sector": (AT[ino] + index) * 8, "nr_sector": pages * 8, **more}  # fmt: skip


@pytest.fixture
def read(tmp_path):
    """Returns the pages read from the device: by file and target, and by the thread that logs."""

    def find(events, block, extents=EXTENTS, **more):
        tables = {"page_cache": events, "block": block, "extent_map": extents, **more}
        tables |= {"processes": PROCESSES, "files": FILES}
        systems = [{"dev": DEV, "block_bytes": PAGE}]
        with make_trace(tmp_path / "t", tables, targets=TWO, file_systems=systems) as trace:
            reads(trace)
            found = trace.rows(
                f"SELECT ino, target, sum(disk_bytes)::BIGINT // {PAGE} FROM reads"
                " WHERE disk_bytes > 0 GROUP BY ALL ORDER BY ALL"
            )
            by = "SELECT DISTINCT by_tid FROM page_uses WHERE disk_bytes > 0 ORDER BY ALL"
            return found, [tid for (tid,) in trace.rows(by)]

    return find


def test_pages_are_read_for_the_thread_that_added_them(read):
    events = [*added(10, JOB, FIRST, 0, 4), *added(20, OTHER, SECOND, 8, 3)]
    block = [bio(30, WORKER, SECOND, 8, 3), bio(40, WORKER, FIRST, 0, 4)]
    assert read(events, block) == (
        [(FIRST, "job", 4), (SECOND, "other", 3)],
        [WORKER],
    )


def test_pages_that_a_call_counts_before_they_are_read_are_read_later(read):
    """The access of a call's first pages comes while others are still being read."""
    events = [*added(10, JOB, FIRST, 0, 4), row(20, JOB, "access", FIRST, 0, 4)]
    block = [bio(12, JOB, FIRST, 0, 2), bio(30, WORKER, FIRST, 2, 2)]
    assert read(events, block) == ([(FIRST, "job", 4)], [JOB, WORKER])


def test_a_page_is_read_once_each_time_it_is_added(read):
    events = [
        *added(10, JOB, FIRST, 0, 2), row(20, JOB, "delete", FIRST, 0),
        *added(30, OTHER, FIRST, 0, 1),
    ]  # fmt: skip
    block = [
        bio(15, WORKER, FIRST, 0, 2), bio(16, WORKER, FIRST, 0, 2), bio(35, WORKER, FIRST, 0, 2),
    ]  # fmt: skip
    assert read(events, block)[0] == [(FIRST, "job", 2), (FIRST, "other", 1)]


def test_bios_that_were_held_back_leave_those_of_the_reader_their_pages(read):
    """The reader adds more pages, and reads some of another file past the cache."""
    events = [*added(10, JOB, FIRST, 0, 4), *added(20, JOB, FIRST, 4, 4)]
    block = [bio(15, WORKER, FIRST, 0, 4), bio(25, JOB, FIRST, 4, 4), bio(30, JOB, SECOND, 0, 9)]
    assert read(events, block)[0] == [(FIRST, "job", 8)]


def test_a_read_past_the_cache_and_one_of_metadata_are_of_no_file(read):
    events = [*added(10, JOB, FIRST, 0, 1), row(20, JOB, "access", FIRST, 0)]
    block = [bio(30, WORKER, SECOND, 0, 9), bio(40, WORKER, FIRST, 0, rwbs="RM")]
    assert read(events, block) == ([], [])


def test_a_read_at_a_place_that_is_not_known_is_of_nobody(read):
    """It may be for the job: what is known of each file is a part of all."""
    events = [*added(10, JOB, FIRST, 0, 4), *added(20, OTHER, SECOND, 8, 3)]
    block = [bio(30, WORKER, FIRST, 0, 4), bio(40, WORKER, SECOND, 8, 3)]
    assert read(events, block, extents=EXTENTS[:1]) == (
        [(FIRST, "job", 4), (None, None, 3)],
        [WORKER],
    )


def test_reads_of_a_device_without_such_files_are_left_out(read):
    events = added(10, JOB, FIRST, 0, 4)
    block = [bio(30, WORKER, FIRST, 0, 4, dev="7:3")]
    assert read(events, block, extents=[]) == ([], [])


def test_impossible_places_and_lengths_are_refused_or_left_out(read):
    events = added(10, JOB, FIRST, 0, 4)
    block = [
        bio(30, WORKER, FIRST, 0, 4, sector=(1 << 64) - 8),
        bio(31, WORKER, FIRST, 0, 4, sector=None),
        bio(32, WORKER, FIRST, 0, 4, nr_sector=1 << 50),
    ]
    assert read(events, block)[0] == [(FIRST, "job", 4)]


def test_bios_have_the_thread_that_asked_for_them(tmp_path):
    events = [
        *added(10, JOB, FIRST, 0, 4), *added(20, OTHER, SECOND, 8, 3), *added(30, JOB, FIRST, 5, 1),
        *added(40, OTHER, SECOND, 20, 1),
    ]  # fmt: skip
    block = [
        bio(50, WORKER, SECOND, 8, 3),
        bio(60, WORKER, FIRST, 0, 4),
        bio(70, JOB, SECOND, 90),
        bio(80, WORKER, SECOND, 50),  # past the cache
        bio(90, WORKER, FIRST, 5),
        bio(90, WORKER, SECOND, 20),  # nothing tells which of the two is whose
    ]
    tables = {"page_cache": events, "block": block, "extent_map": EXTENTS, "processes": PROCESSES}
    asked = [
        (50, OTHER, OTHER, "cp", True),
        (60, JOB, JOB, "python", True),
        (70, JOB, JOB, None, False),
        *[(ts, WORKER, WORKER, None, False) for ts in (80, 90, 90)],
    ]
    query = "SELECT ts, pid, tid, comm, held_back FROM {} ORDER BY ts"
    systems = [{"dev": DEV, "block_bytes": PAGE}]
    with make_trace(tmp_path / "t", tables, targets=TWO, file_systems=systems) as trace:
        assert trace.rows(query.format(asked_bios(trace))) == asked
    del tables["page_cache"]
    with make_trace(tmp_path / "u", tables, targets=TWO, file_systems=systems) as trace:
        first = ((50, WORKER), (60, WORKER), (70, JOB))
        logged = [(ts, tid, tid, None, False) for ts, tid in first]
        assert trace.rows(query.format(asked_bios(trace))) == [*logged, *asked[3:]]
