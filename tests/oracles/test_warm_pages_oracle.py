"""`tracer predict --warm` leaves pages in memory as a naive kernel and naive caches do."""

import itertools
from dataclasses import replace

import pytest

from tests.oracles.drawing import seeds
from tests.oracles.nested_cgroups import PAGE
from tests.oracles.removed_pages import Story, together
from tests.oracles.removing_caches import MODELS, Step
from tests.oracles.two_lists import READ, REMOVAL, WRITE
from tests.oracles.warm_answers import (
    KERNEL,
    ROOMY,
    TIGHT,
    agree,
    columns,
    containers,
    expected_rows,
    predicted,
    recording,
    rows_of,
)
from tests.oracles.warm_caches import APART, SHARED
from tests.oracles.warm_pages import LIBRARY, PIDS, SECOND, WarmJobs, users, warm_pages

pytestmark = pytest.mark.slow

SEED = 21
SHARING = {"--shared": SHARED, "--apart": APART}
ONE_SEED = pytest.mark.parametrize("seed", seeds(1))


@pytest.fixture
def trace(tmp_path):
    """Makes a recording of these tables."""
    numbers = itertools.count()

    def make(tables, targets=None, **manifest):
        folder = tmp_path / f"{next(numbers)}.trace"
        return recording(folder, tables, targets or containers("ab"), **manifest)

    return make


def removes(call):
    return call.kind == REMOVAL


# Drawn jobs


@pytest.mark.parametrize("sharing", SHARING)
@pytest.mark.parametrize("library", [None, "some"])
@ONE_SEED
def test_targets_read_as_much_as_in_the_oracle(trace, sharing, library, seed):
    jobs, below = WarmJobs(seed, library=library), SHARING[sharing]
    folder, warm = trace(jobs.tables), warm_pages(jobs.calls, jobs.came)
    cold = predicted(folder, sharing, pages=TIGHT)
    answer = predicted(folder, sharing, "--warm")
    assert (cold["staying_pages"], answer["staying_pages"]) == (None, len(warm))
    agree(cold, jobs, below, (), TIGHT)
    agree(answer, jobs, below, warm)


@pytest.mark.parametrize("sharing", SHARING)
@pytest.mark.parametrize("library", [None, "all"])
@ONE_SEED
def test_read_ahead_passes_over_pages_that_stay(trace, sharing, library, seed):
    """The oracle has no read-ahead around faults: all pages of the library stay."""
    jobs = WarmJobs(seed, library=library)
    folder, warm = trace(jobs.tables), warm_pages(jobs.calls, jobs.came)
    answer = predicted(folder, sharing, "--warm", pages=ROOMY, ahead=8)
    assert answer["staying_pages"] == len(warm)
    agree(answer, jobs, SHARING[sharing], warm, ROOMY, 8)


def test_drawn_jobs_have_pages_of_each_kind():
    """Pages that were in memory before: how they are used, and what becomes of them."""
    jobs = WarmJobs(SEED, library="some")
    warm, by = warm_pages(jobs.calls, jobs.came), users(jobs.calls)
    removed = {(call.file, call.first) for call in jobs.calls if removes(call)}
    kinds = {
        "removed later": warm & removed,
        "back after a removal": {page for page in jobs.before & jobs.came & removed if page in by},
        "used by others alone": {p for p in jobs.before - jobs.came if by.get(p) == {None}},
        "used by two targets": {page for page in warm if by[page] >= {"a", "b"}},
        "mapped": {page for page in warm if page[0] == LIBRARY},
        "new": jobs.came - jobs.before,
    }
    assert {kind: len(pages) for kind, pages in kinds.items() if len(pages) < 5} == {}


def test_nothing_is_read_if_every_page_stays(trace):
    jobs = WarmJobs(2, warm=1, takes=0, library="all")
    warm = warm_pages(jobs.calls, jobs.came)
    assert not jobs.came and len(warm) > 100
    answer = predicted(trace(jobs.tables), "--shared", "--warm")
    assert answer["staying_pages"] == len(warm)
    assert answer["enough_bytes"] == {"a": 0, "b": 0}
    assert all(row["range"] == (0, 0) for row in rows_of(answer).values())
    agree(answer, jobs, SHARED, warm)


def test_an_empty_page_cache_has_no_page_that_stays(trace):
    jobs = WarmJobs(3, warm=0)
    answer = predicted(trace(jobs.tables), "--apart", "--warm")
    assert answer["staying_pages"] == 0
    agree(answer, jobs, APART, ())


def test_a_page_whose_arrival_was_lost_stays_until_its_removal(trace):
    """No event brings it in. A use after its removal reads it, and it takes room from then on."""
    jobs = WarmJobs(5, takes=0.3, loses=0.3)
    gap = {"stream": "ftrace-machine", "cpu": 0, "from": SECOND, "to": SECOND + 1, "count": 5}
    lost = {"events": 5, "windows": 1, "unknown": 0, "others": 0}
    warm = warm_pages(jobs.calls, jobs.came)
    answer = predicted(trace(jobs.tables | {"loss": [gap]}, loss=lost), "--shared", "--warm")
    assert answer["staying_pages"] == len(warm)
    found, expected = rows_of(answer), expected_rows(jobs, SHARED, warm)
    wanted = "used", *KERNEL, *MODELS
    assert columns(found, *wanted) == columns(expected, *wanted)
    left = [call for call in jobs.calls if not removes(call) or (call.file, call.first) not in warm]
    never = expected_rows(jobs, SHARED, warm, calls=left)
    assert columns(found, *KERNEL) != columns(never, *KERNEL)


def test_the_first_update_of_the_statistics_follows_the_first_access_of_any_page(trace):
    """A use of a page that stays comes 0.75 s before all others."""
    jobs = WarmJobs(6)
    warm = warm_pages(jobs.calls, jobs.came)
    file, index = next(page for page in sorted(warm) if page[1] > 0)
    row = {"ts": SECOND // 4, "pid": PIDS["a"], "tid": PIDS["a"], "cpu": 0, "event": "access"}
    row |= {"dev": file[0], "ino": file[1], "index": index, "pages": 1, "continues": False}
    jobs.tables["page_cache"].insert(0, row)
    call = next(call for call in jobs.calls if call.target == "a" and call.epoch is None)
    given = {"reader": ("a", file, 0), "file": file, "first": index, "pages": 1}
    jobs.calls.insert(0, replace(call, ts=row["ts"], kind=READ, **given))
    answer = predicted(trace(jobs.tables), "--apart", "--warm", pages=TIGHT)
    agree(answer, jobs, APART, warm, TIGHT)
    late = expected_rows(jobs, APART, warm, TIGHT, calls=jobs.calls[1:])
    assert columns(late, "clocks") != columns(rows_of(answer), "clocks")


# Oracles that are wrong


def taking_room(steps, warm):
    """Warm pages come into the cache at first, without a read, and have places as others have."""
    return [*(Step(page, None, None, WRITE) for page in sorted(warm)), *steps]


def test_wrong_oracles_read_something_else(trace):
    jobs = WarmJobs(SEED)
    warm = warm_pages(jobs.calls, jobs.came)
    found = rows_of(predicted(trace(jobs.tables), "--apart", "--warm", pages=TIGHT))
    assert found == expected_rows(jobs, APART, warm, TIGHT)
    wrong = {
        "--warm is ignored": expected_rows(jobs, APART, (), TIGHT),
        "pages that come back stay": expected_rows(jobs, APART, jobs.before, TIGHT),
        "they take room": expected_rows(jobs, APART, warm, TIGHT, payer=0, beside=taking_room),
    }
    for what, rows in wrong.items():
        for name in (*KERNEL, *MODELS):
            assert columns(found, name) != columns(rows, name), (what, name)


# Stories worked out by hand, each with memory for two pages.

STORIES = {
    # Page 0 takes no room, and two others fit.
    "*0 a0 a1 a2 a0 a1": ([2, 2, 2, 2], 1, 2),
    # It is out of memory at the end, and nobody misses it.
    "*0 a0 r-0": ([0, 0, 0, 0], 1, 0),
    "*0 a0 k~0": ([0, 0, 0, 0], 1, 0),
    # It comes back, for whichever process: then it is as any other page.
    "*0 a0 r-0 a0": ([2, 2, 2, 2], 0, 0),
    "*0 a0 k~0 a0": ([1, 1, 1, 1], 0, 1),
    "*0 a0 k~0 x0": ([1, 1, 1, 1], 0, 0),
    "*0 a0 r-0 x!0 a0": ([2, 2, 2, 1], 0, 0),
    # Others use it, alone or before the target.
    "*0 x0 a1": ([1, 1, 1, 1], 0, 0),
    "*0 x0 a0 b0": ([0, 0, 0, 0], 1, 0),
    "*0 x0 r-0 a0": ([1, 1, 1, 1], 0, 0),
    # Reclaim takes it, and no event tells that it came back.
    "*0 k~0 *0 a0": ([0, 0, 0, 0], 1, 0),
    "*0 a0 k~0 *0 a0": ([0, 0, 0, 0], 1, 0),
    # Pages around a fault: the file of page 30 has ten, and x brings in one of them, or none.
    "x33 *30:32 a30:32 a^30:39 a0": ([2, 2, 2, 1], 3, 0),
    "*30:39 a^30:39 a0": ([1, 1, 1, 1], 10, 0),
}
"""Stories, and the pages that LRU, `best`, `kept` and the kernel read for a, those that stay, and
those with which LRU reads none twice."""
REMOVED = {
    "*0 a0 r-0 *0 a0 a0": ([1, 1, 1, 1], 1, 1),
    "*0 r-0 *0 a0": ([1, 1, 1, 1], 1, 0),
    "*0 a0 r-0 *0 b0 a0": ([1, 1, 1, 0], 1, 0),
}
"""The same: a program takes page 0, and no event tells that it came back."""


def by_hand(trace, stories):
    """Compares the answer for a recording of these stories, one after the other."""
    made = [Story(text) for text in stories]
    targets = [
        one | {"name": f"{name}{number}", "pid": one["pid"] + 1000 * number}
        | {"container": f"{name}{number:063}"}
        for number, story in enumerate(made)
        for name, one in zip(story.targets, containers(story.targets), strict=True)
    ]  # fmt: skip
    folder = trace(together(made, [False] * len(made)), targets)
    answer = predicted(folder, "--warm", pages=[2])
    rows = rows_of(answer)
    assert answer["staying_pages"] == sum(staying for _, staying, _ in stories.values())
    for number, (text, (read, _, least)) in enumerate(stories.items()):
        row = rows[2, f"a{number}", None]
        assert [row[name] for name in (*MODELS, "kernel")] == read, text
        assert answer["enough_bytes"][f"a{number}"] == least * PAGE, text


def test_stories_have_the_reads_and_the_pages_worked_out_by_hand(trace):
    by_hand(trace, STORIES)


def test_all_models_read_a_page_whose_return_was_lost_after_its_removal(trace):
    by_hand(trace, REMOVED)
