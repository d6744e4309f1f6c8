"""Pages that were in memory before the recording: they can stay there, and take no room."""

import random

import numpy as np
import pytest

from tests.support.page_events import INO, JOB, ONE, OTHER, PAGE, PEER, TWO, PageEvents
from tests.support.traces import make_trace
from tracer.analysis.memory.answer import BOUNDS, KERNEL, answer_memory
from tracer.analysis.memory.page_runs import READ, REMOVE, PageRuns
from tracer.analysis.memory.warm import without_pages
from tracer.analysis.memory.words import basis

pytestmark = pytest.mark.slow

LIBRARY, DATA = 5, INO


def training(epochs=3, pages=100, library=200, cold=False):
    """Touches pages of a library, then reads a file in each epoch."""
    made = PageEvents()
    if not cold:
        made.cached |= {(LIBRARY, page) for page in range(library)}
    for page in range(library):
        made.read(page, 1, LIBRARY)
    made.end_epoch(0)
    for epoch in range(1, epochs + 1):
        for page in range(pages):
            made.read(page, 1, DATA)
        made.end_epoch(epoch)
    return made


@pytest.fixture
def answered(tmp_path):
    def answer(made, pages, targets=ONE, read_ahead=0, **options):
        folder = tmp_path / f"{random.random()}.trace"
        with make_trace(folder, made.tables, clock=made.clock, targets=targets) as trace:
            return answer_memory(trace, [pages * PAGE], own=0, read_ahead=read_ahead, **options)

    return answer


def read(found, model=KERNEL, target="job"):
    mine = found.reads[found.reads["target"] == target]
    return mine.sort_values("epoch")[f"{model}_pages"].tolist()


@pytest.mark.parametrize("model", [KERNEL, *BOUNDS])
def test_warm_pages_take_no_room_and_are_not_read(answered, model):
    """The data has room, but not beside the library."""
    warm = answered(training(), 110, warm=True)
    assert read(warm, model) == [0, 100, 0, 0]
    assert warm.staying_pages == 200 and warm.reads["used_pages"].tolist() == [200, 100, 100, 100]
    empty = answered(training(), 110)
    assert read(empty, model)[:2] == [200, 100]
    assert (empty.warm_pages, empty.staying_pages) == (200, None)


def test_a_page_that_came_in_during_the_recording_is_not_warm(answered):
    for warm in (False, True):
        found = answered(training(cold=True), 1000, warm=warm)
        assert read(found) == [200, 100, 0, 0]
    assert found.staying_pages == 0 and found.warm_pages == 0


def test_the_answer_says_what_stays_in_memory(answered):
    warm, empty = (basis(answered(training(), 500, warm=warm)) for warm in (True, False))
    stays = "800.0 KiB of files were in memory before the recording; they stay there"
    assert any(sentence.startswith(stays) for sentence in warm)
    assert not any("--warm" in sentence for sentence in warm)
    assert any("With --warm, they stay there" in sentence for sentence in empty)
    assert answered(training(), 500, warm=True).error == {"job": 0.0}


@pytest.mark.parametrize(("warm", "twice"), [(True, False), (False, True)])
def test_pages_that_stay_are_not_read_twice(answered, warm, twice):
    made = training(epochs=1)
    for page in range(200):
        made.read(page, 1, LIBRARY)
    made.end_epoch(2)
    said = " ".join(basis(answered(made, 500, warm=warm)))
    assert ("used twice, unless it stays in memory, or is taken out in between" in said) != twice
    assert ("with 1.2 MiB, LRU reads no page twice" in said) == twice


def test_a_page_that_is_removed_and_comes_back_does_not_stay(answered):
    made = training(epochs=1)
    for page in range(50):
        made.add_event(JOB, "delete", page, 1, LIBRARY)
        made.cached.remove((LIBRARY, page))
        made.read(page, 1, LIBRARY)
    made.end_epoch(2)
    found = answered(made, 1000, warm=True)
    assert read(found) == [50, 100, 50] and found.staying_pages == 150


def test_pages_beside_one_that_is_removed_stay(answered):
    """The recording has folios of several pages; no event tells which folios stayed."""
    made = PageEvents()
    made.add_event(JOB, "read_ahead", 0, 4, DATA)
    made.add_event(JOB, "add", 0, 4, DATA)
    made.cached |= {(LIBRARY, page) for page in range(16)}
    made.evict([], by=OTHER)
    for page in range(16):
        made.read(page, 1, LIBRARY)
    made.add_event(OTHER, "delete", 5, 1, LIBRARY)
    for page in (0, 4, 6, 7, 8):
        made.read(page, 1, LIBRARY)
    found = answered(made, 100, warm=True)
    assert found.staying_pages == 16
    assert read(found) == [0]


def test_read_ahead_finds_pages_that_stay_one_by_one(answered):
    """A window of eight pages follows: nine pages before them are more than the two asked for.

    The kernel's walk would count a folio of eight pages as one. No event tells of such a folio.
    """
    made = PageEvents()
    made.add_event(JOB, "read_ahead", 0, 4, DATA)
    made.add_event(JOB, "add", 0, 4, DATA)
    made.cached |= {(LIBRARY, page) for page in range(7, 16)}
    made.read(30, 1, LIBRARY)
    made.read(7, 11, LIBRARY)
    found = answered(made, 100, read_ahead=8 * PAGE, warm=True)
    assert found.staying_pages == 9
    assert read(found) == [1 + 8]


def test_targets_find_warm_pages_of_each_other(answered):
    made = training(epochs=1)
    for page in range(200):
        made.read(page, 1, LIBRARY, PEER)
    made.end_epoch(0, PEER)
    found = answered(made, 110, TWO, warm=True)
    assert read(found) == [0, 100] and read(found, target="peer") == [0]
    assert found.staying_pages == 200 and set(found.reads["target"]) == {"job", "peer"}


def test_pages_that_only_others_use_are_not_counted(answered):
    made = training(epochs=1)
    made.cached |= {(LIBRARY + 1, page) for page in range(70)}
    for page in range(70):
        made.read(page, 1, LIBRARY + 1, OTHER)
    found = answered(made, 110, warm=True)
    assert read(found) == [0, 100] and found.staying_pages == 200


def test_data_that_is_all_warm_is_never_read(answered):
    made = PageEvents()
    made.cached |= {(DATA, page) for page in range(40)}
    for epoch in range(2):
        made.read(0, 40)
        made.end_epoch(epoch)
    for model in (KERNEL, *BOUNDS):
        assert read(answered(made, 10, warm=True), model) == [0, 0]


def test_runs_without_pages_are_those_of_a_set():
    """Random runs and pages, against sets of page numbers."""
    draw = np.random.default_rng(3)
    for _ in range(50):
        first = draw.integers(0, 60, 20)
        pages = draw.integers(1, 9, 20).astype(np.int32)
        zero, number = np.zeros(20, np.int32), np.arange(20, dtype=np.int32)
        kind = draw.choice([READ, REMOVE], 20).astype(np.int8)
        runs = PageRuns(first, pages, zero, number, zero, kind, number,
                        np.zeros(1, np.int64), np.full(1, 70),
                        random=np.ones(20, np.bool_), ts=np.arange(20))  # fmt: skip
        flags = draw.random(70) < draw.choice([0.1, 0.5, 1.0])
        edges = np.flatnonzero(np.diff(np.concatenate(([0], flags, [0])).astype(int)))
        warm = set(np.flatnonzero(flags).tolist())
        left = without_pages(runs, edges.reshape(-1, 2))
        columns = (column.tolist() for column in (left.group, left.first, left.pages))
        parts = zip(*columns, strict=True)
        found = [(run, page) for run, at, count in parts for page in range(at, at + count)]
        expected = []
        for run in range(20):
            mine = range(first[run], first[run] + pages[run])
            if kind[run] == REMOVE:
                warm -= set(mine)
            expected += [(run, page) for page in mine if page not in warm]
        assert found == expected and left.ts.tolist() == left.group.tolist()
