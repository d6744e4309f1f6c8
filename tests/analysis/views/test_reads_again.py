"""Pages that a thread reads again, after they have left the cache, count for the later call."""

from __future__ import annotations

import pytest

from tests.support.page_events import DEV, INO, JOB, ONE, PAGE, PageEvents
from tests.support.traces import make_trace
from tracer.analysis.views.reading.reads import READS


def by_epoch(folder, made, **tables):
    files = [{"dev": DEV, "ino": INO, "size": 9 * PAGE, "path": "/data"}]
    tables = made.tables | {"files": files, "block": []} | tables
    names = "accessed, missed, hit, read, read_ahead, evicted"
    with make_trace(folder / "t", tables, targets=ONE, clock=made.clock) as trace:
        READS.make(trace)
        return trace.rows(
            f"SELECT epoch, {names} FROM reads WHERE epoch IS NOT NULL ORDER BY epoch"
        )


@pytest.mark.parametrize("pages", [1, 9])
def test_pages_that_left_are_read_in_the_epoch_of_the_next_call(tmp_path, pages):
    """No call is recorded: its end tells that it is not the one before."""
    made = PageEvents()
    for epoch in range(2):
        made.read(0, pages)
        made.end_epoch(epoch)
        made.evict(range(pages))
    for row in made.events:
        row["continues"] = False if row["event"] == "access" else None
    each = (pages, pages, 0, pages, 0, 0)
    assert [row[:6] for row in by_epoch(tmp_path, made)] == [(n, *each[:5]) for n in range(2)]


def test_the_last_pages_of_a_call_that_returned_are_read_by_the_next_one(tmp_path):
    """The first call had read all pages up to the end of the second one."""
    made = PageEvents()
    calls = []
    for epoch, (first, pages) in enumerate([(0, 9), (5, 4)]):
        begun = made.now + 1
        made.read(first, pages)
        calls.append(
            {"ts": begun, "dur_ns": made.now + 1 - begun, "pid": JOB, "tid": JOB, "name": "pread64",
             "offset": first * PAGE, "length": pages * PAGE, "ret": pages * PAGE}
        )  # fmt: skip
        made.end_epoch(epoch)
        made.evict(range(5, 9))
    for row in made.events:
        row["continues"] = False if row["event"] == "access" else None
    found = by_epoch(tmp_path, made, syscalls=calls)
    assert [row[:6] for row in found] == [(0, 9, 9, 0, 9, 0), (1, 4, 4, 0, 4, 0)]


def test_a_page_that_a_call_seems_to_miss_twice_counts_once(tmp_path):
    """No call is recorded, so the second one counts as the first; its reads have their own time."""
    made = PageEvents()
    for epoch, (first, pages) in enumerate([(0, 9), (5, 4)]):
        made.read(first, pages)
        made.end_epoch(epoch)
        made.evict(range(5, 9))
    found = by_epoch(tmp_path, made)
    assert [row[:6] for row in found] == [(0, 9, 9, 0, 9, 0), (1, 0, 0, 0, 4, 4)]


def test_a_page_that_its_caller_wrote_is_missed_once_it_has_left(tmp_path):
    """The page leaves after the first batch of the call."""
    made = PageEvents()
    made.bring_in(8, 1)
    made.add_event(JOB, "access", 8)
    made.add_event(JOB, "add", 3)
    made.add_event(JOB, "access", 0, 5)
    made.cached.add((INO, 3))
    made.evict([3])
    made.bring_in(3, 1)
    made.events[-2]["pages"] = 2
    made.add_event(JOB, "access", 3, 2)
    made.end_epoch(0)
    assert [row[:6] for row in by_epoch(tmp_path, made)] == [(0, 6, 2, 4, 2, 0)]
