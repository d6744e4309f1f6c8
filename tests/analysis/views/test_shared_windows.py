"""Windows around faults of several processes that map one file, as DataLoader workers do.

No event names the pages of such a window, so they seem to be cached, until somebody adds one.
"""

from collections import Counter
from random import Random

import pytest

from tests.support.page_events import JOB, ONE, OTHER, PAGE, PEER, TWO, PageEvents
from tests.support.traces import make_trace
from tracer.analysis.memory.answer import answer_memory
from tracer.analysis.memory.recorded import recorded
from tracer.analysis.views.reading import page_tracking
from tracer.analysis.views.reading.page_uses import PAGE_USES

FAR = 90
"""A page of the file in no window."""
ELSEWHERE = 21
"""Another file, by its inode number."""


def both_map(first=0, pages=16):
    """Returns events: the job and its peer map a window, and then read another page."""
    made = PageEvents()
    for tid in (JOB, PEER):
        made.add_event(tid, "map", first, pages)
    for tid in (JOB, PEER):
        made.add_event(tid, "access", FAR)
    return made


def used(folder, made, name="t"):
    """Returns the pages that each thread uses, and those of them that are mapped around faults."""
    with make_trace(folder / name, made.tables, targets=TWO, clock=made.clock) as trace:
        PAGE_USES.make(trace)
        return {
            tid: (accessed, mapped)
            for tid, accessed, mapped in trace.rows(
                "SELECT tid, sum(accessed)::BIGINT, sum(mapped)::BIGINT FROM page_uses GROUP BY 1"
            )
        }


def faults_for(made, tid):
    made.add_event(tid, "fault", 8)
    made.add_event(tid, "read_ahead", 8, 8)


def reads(made, tid):
    made.add_event(tid, "sync_read_ahead", 8, 8)


def writes(made, tid):
    """A write adds its pages at once."""


@pytest.mark.parametrize("asks", [faults_for, reads, writes])
def test_a_page_that_a_process_adds_was_in_no_window_of_any_process(tmp_path, asks):
    made = both_map()
    asks(made, OTHER)
    for page in range(8, 16):
        made.add_event(OTHER, "add", page)
    found = used(tmp_path, made)
    assert found[JOB] == found[PEER] == (8 + 1, 8)


def test_a_page_that_comes_before_the_next_event_of_a_thread_was_not_in_its_window(tmp_path):
    made = PageEvents()
    made.add_event(JOB, "map", 0, 16)
    made.bring_in(12, 4, tid=OTHER)
    made.add_event(JOB, "access", FAR)
    assert used(tmp_path, made)[JOB] == (12 + 1, 12)


def test_a_page_that_was_there_before_a_window_stays_in_it(tmp_path):
    made = PageEvents()
    made.bring_in(0, 8, tid=OTHER)
    made.add_event(JOB, "map", 0, 8)
    made.bring_in(8, 8, tid=OTHER)
    made.add_event(JOB, "access", FAR)
    made.evict(range(8))
    made.bring_in(0, 8, tid=OTHER)
    assert used(tmp_path, made)[JOB] == (8 + 1, 8)


def test_a_fault_takes_its_page_out_of_the_windows_of_its_own_process_only(tmp_path):
    """The page has the mark of read-ahead. Later, it turns out that four others were not there."""
    made = both_map()
    made.add_event(JOB, "fault", 5)
    made.add_event(JOB, "async_read_ahead", 5)
    assert used(tmp_path, made, "a") == {JOB: (15 + 2, 15), PEER: (16 + 1, 16)}
    made.add_event(PEER, "fault", 5)
    for page in (1, 2, 4, 6):
        made.add_event(OTHER, "add", page)
    found = used(tmp_path, made, "b")
    assert (found[JOB], found[PEER]) == ((11 + 2, 11), (11 + 2, 11))


def test_a_page_that_is_added_after_faults_leaves_the_windows_of_all_others(tmp_path):
    """Three windows had it; the second process faults for it, and does not read it."""
    made = both_map()
    made.add_event(OTHER, "map", 4, 4)
    made.add_event(OTHER, "access", FAR)
    made.add_event(PEER, "fault", 5)
    made.add_event(PEER, "async_read_ahead", 5)
    assert used(tmp_path, made, "a") == {
        JOB: (16 + 1, 16), PEER: (15 + 2, 15), OTHER: (4 + 1, 4),
    }  # fmt: skip
    made.add_event(JOB, "add", 5)
    assert used(tmp_path, made, "b") == {
        JOB: (15 + 1, 15), PEER: (15 + 2, 15), OTHER: (3 + 1, 3),
    }  # fmt: skip


def test_windows_beyond_those_that_are_kept_keep_their_pages(tmp_path, monkeypatch):
    monkeypatch.setattr(page_tracking, "MOST_WINDOWS", 3)  # with the number 0, which none has
    made = both_map()
    made.add_event(JOB, "map", 16, 16)
    made.add_event(JOB, "access", FAR)
    made.add_event(OTHER, "read_ahead", 0, 32)
    made.add_event(OTHER, "add", 0, 32)
    assert used(tmp_path, made) == {JOB: (16 + 2, 16), PEER: (0 + 1, 0), OTHER: (0, 0)}


def test_models_of_memory_use_no_page_that_turns_out_to_come_later(tmp_path):
    """Three workers of the job and the peer, each a process, map a window; another adds half."""
    workers = (JOB, 71, 72, PEER)
    made = PageEvents()
    for tid in workers:
        made.add_event(tid, "map", 0, 16)
    for tid in workers:
        made.add_event(tid, "access", FAR, ino=ELSEWHERE)
    faults_for(made, OTHER)
    for page in range(8, 16):
        made.add_event(OTHER, "add", page)
    more = [
        {"pid": tid, "tid": tid, "role": "child", "target": "job", "comm": "python", "ppid": JOB}
        for tid in (71, 72)
    ]
    tables = made.tables | {"processes": [*made.tables["processes"], *more]}
    with make_trace(tmp_path / "t", tables, targets=TWO, clock=made.clock) as trace:
        reads = answer_memory(trace, [100 * PAGE]).reads.groupby("target")
    assert reads["used_pages"].sum().to_dict() == {"job": 3 * 8 + 3, "peer": 8 + 1}
    assert reads["lru_pages"].sum().to_dict() == {"job": 8 + 1, "peer": 8 + 1}


def test_windows_of_one_process_are_taken_back_by_their_time(tmp_path):
    """A new mapping of the file maps the window again; another process adds its first page."""
    made = PageEvents()
    for first in (0, 0, 32):
        made.add_event(JOB, "map", first, 16)
    made.end_epoch(0)
    made.add_event(JOB, "access", FAR)
    made.bring_in(0, 1, tid=OTHER)
    with make_trace(tmp_path / "t", made.tables, targets=ONE, clock=made.clock) as trace:
        reads = answer_memory(trace, [100 * PAGE]).reads
    epochs = reads["used_pages"].groupby(reads["epoch"], dropna=False).sum()
    assert epochs.tolist() == [15 + 15 + 16, 1]


def test_windows_drawn_at_random_keep_the_pages_that_were_there(tmp_path):
    """Workers map the file of each case. Whatever was not there is added later, by any process."""
    made, accessed, mapped = PageEvents(), Counter(), Counter()
    made.add_event(OTHER, "read_ahead", 0, 1, ino=ELSEWHERE)
    for case in range(40):
        numbers, ino = Random(case), 100 + case
        workers = range(1000 + 10 * case, 1001 + 10 * case + numbers.randrange(4))
        there = {page for page in range(64) if numbers.random() < 0.6}
        windows = [(tid, 16 * n) for tid in workers for n in range(4) if numbers.random() < 0.7]
        for tid, first in numbers.sample(windows, len(windows)):
            made.add_event(tid, "map", first, 16, ino)
            made.add_event(tid, "access", FAR, ino=ino)
            mapped[tid] += len(there.intersection(range(first, first + 16)))
            accessed[tid] += 1
        missing = sorted(set(range(64)) - there)
        for page in numbers.sample(missing, len(missing)):
            tid = numbers.choice(workers)
            if numbers.random() < 0.5:
                made.add_event(tid, "fault", page, ino=ino)
                accessed[tid] += 1
            made.add_event(numbers.choice([tid, OTHER]), "add", page, ino=ino)
    workers = [
        {"pid": tid, "tid": tid, "role": "child", "target": "job", "comm": "python", "ppid": JOB}
        for tid in accessed
    ]
    tables = made.tables | {"processes": [*made.tables["processes"], *workers]}
    with make_trace(tmp_path / "t", tables, targets=ONE, clock=made.clock) as trace:
        found = recorded(trace)
        rows = trace.rows(
            "SELECT tid, sum(accessed)::BIGINT, sum(mapped)::BIGINT FROM page_uses"
            " WHERE target = 'job' GROUP BY 1"
        )
    accessed.update(mapped)
    assert {tid: counts for tid, *counts in rows if any(counts)} == {
        tid: [accessed[tid], mapped[tid]] for tid in accessed
    }
    used = dict(zip(found.groups["target"], found.runs.accessed().tolist(), strict=False))
    assert used["job"] == accessed.total()
