"""`tracer predict` takes out of all caches what a program takes out of the page cache."""

import random

import pytest

from tests.oracles.called_jobs import kernel_reads
from tests.oracles.drawing import seeds
from tests.oracles.removed_pages import PIDS, SIZES, Story, drawn_story, together
from tests.oracles.removing_caches import MODELS, best, counts, enough, fewest, kept, steps_of
from tests.oracles.two_lists import READ, REMOVAL
from tests.support.traces import make_trace

pytestmark = pytest.mark.slow

DISKS = [
    {"dev": "8:0", "name": "sda"},
    *({"dev": f"8:{n}", "name": f"sda{n}", "partition_of": "8:0"} for n in (1, 2)),
]
PAGE = 4096
ALL = sum(SIZES.values())
CAPACITIES = (*range(1, 13), 16, 20, ALL)
READING = (*MODELS, "two-lists")
COLUMNS = ("used", "recorded", *READING)


def answered(tracer, folder, stories, pages, shared=None, without=()):
    """The answer for these numbers of pages; `without`: tables that the recording lacks."""
    tables = together(stories, shared or [False] * len(stories))
    tables = {name: rows for name, rows in tables.items() if name not in without}
    targets = [
        {"name": f"{name}{number}", "role": "target", "kind": "container"}
        | {"pid": PIDS[name] + 1000 * number, "container": f"{name}{number:063}"}
        for number, story in enumerate(stories)
        for name in story.targets
    ]
    make_trace(folder, tables, targets=targets, disks=DISKS).close()
    memory = ",".join(str(size * PAGE) for size in pages)
    options = "--memory", memory, "--read-ahead", 0, "--json"
    return tracer("predict", folder, *options).json


def rows_of(answer, number):
    """The columns of a story, by pages of memory, target and epoch; of no epoch only with uses."""
    return {
        (row["memory_bytes"] // PAGE, row["target"][0], row["epoch"]): {
            name: row[f"{name}_pages"] for name in COLUMNS
        }
        for row in answer["reads"]
        if row["target"][1:] == str(number) and (row["used_pages"] or row["epoch"] is not None)
    }


def expected_rows(story, pages, shared, calls=None):
    """Those of the oracle; `calls`: others than those of the story."""
    calls = story.calls if calls is None else calls
    rows = {}
    for target in story.targets:
        steps = steps_of(calls, None if shared else target)
        mine = [step for step in steps if step.target == target and step.kind == READ]
        for number in pages:
            kernel = kernel_reads(calls, SIZES, number, shared)
            read = {model: counts(steps, number, model) for model in MODELS}
            for epoch in {step.epoch for step in mine} | story.epochs(target):
                group = target, epoch
                rows[number, *group] = {
                    "used": sum((step.target, step.epoch) == group for step in mine),
                    "recorded": story.recorded[group],
                    "two-lists": kernel.get(group, 0),
                    **{model: read[model][group] for model in MODELS},
                }
    return rows


def folios_are_not_split(rows):
    """Rows without the kernel's model: it evicts pages together that were read together."""
    return {
        key: {name: pages for name, pages in row.items() if name != "two-lists"}
        for key, row in rows.items()
    }


def agree(answer, number, story, shared, calls=None):
    """Compares the program's answer with the oracle's."""
    found = rows_of(answer, number)
    expected = expected_rows(story, CAPACITIES, shared, calls)
    if story.folios:
        found, expected = folios_are_not_split(found), folios_are_not_split(expected)
    assert found == expected, (shared, story.text)
    for target in story.targets:
        steps = steps_of(calls or story.calls, None if shared else target)
        enough_bytes = answer["enough_bytes"][f"{target}{number}"]
        assert enough_bytes == enough(steps) * PAGE, (shared, target, story.text)


def alternate(stories):
    """Every second story has targets below one limit."""
    return [number % 2 == 1 for number in range(len(stories))]


@pytest.mark.parametrize("folios", [False, True])
def test_each_model_reads_as_much_as_in_the_oracle(tmp_path, tracer, folios):
    stories = [Story(drawn_story(seed, 80), folios) for seed in seeds(12)]
    shared = alternate(stories)
    answer = answered(tracer, tmp_path / "t", stories, CAPACITIES, shared)
    assert sorted(answer["shared"]) == sorted([f"a{n}", f"b{n}"] for n in range(1, len(stories), 2))
    for number, story in enumerate(stories):
        agree(answer, number, story, shared[number])


def test_pages_that_are_written_after_their_removal_are_found(tmp_path, tracer):
    stories = [Story(drawn_story(seed, 80, writes=True)) for seed in seeds(8)]
    shared = alternate(stories)
    answer = answered(tracer, tmp_path / "t", stories, CAPACITIES, shared)
    for number, story in enumerate(stories):
        agree(answer, number, story, shared[number])


def test_removals_that_no_event_tells_from_evictions_change_no_model(tmp_path, tracer):
    stories = [Story(drawn_story(seed, 80)) for seed in seeds(4)]
    shared = alternate(stories)
    answer = answered(tracer, tmp_path / "t", stories, CAPACITIES, shared, without=["reclaim"])
    for number, story in enumerate(stories):
        kept_calls = [call for call in story.calls if call.kind != REMOVAL]
        agree(answer, number, story, shared[number], kept_calls)
        told = expected_rows(story, CAPACITIES, shared[number])
        assert told != expected_rows(story, CAPACITIES, shared[number], kept_calls)


def small_story(seed):
    """Uses of five pages by both targets and others, and removals, one page at a time."""
    numbers = random.Random(seed)
    drawn = numbers.choices(["a", "b", "a!", "x", "r-", "b-", "k~"], [8, 8, 1, 1, 3, 1, 1], k=30)
    return " ".join(["a0", "b0", *(f"{step}{numbers.randrange(5)}" for step in drawn)])


def test_the_oracle_knows_no_cache_that_reads_less_than_its_best_one():
    fewer = 0
    for seed in seeds(60):
        steps = steps_of(Story(small_story(seed)).calls, "a")
        for capacity in (1, 2, 3):
            assert sum(best(steps, capacity)) == fewest(steps, capacity), (seed, capacity)
            fewer += fewest(steps, capacity) < sum(kept(steps, capacity))
    assert fewer > len(seeds(60))


def test_no_cache_reads_less_than_the_best_one(tmp_path, tracer):
    stories = [Story(small_story(seed)) for seed in seeds(12)]
    answer = answered(tracer, tmp_path / "t", stories, CAPACITIES)
    for number, story in enumerate(stories):
        for (pages, target, _), row in rows_of(answer, number).items():
            steps = steps_of(story.calls, target)
            assert row["min"] == fewest(steps, pages), (pages, target, story.text)


# Stories worked out by hand.

READ_BY_HAND = [
    # The place of page 2 is free again. LRU has lost page 0 for it before, and the kernel has lost
    # both others. `best` and `kept` do not take it in.
    ("a0 a1 a2 r-2 a3 a1 a0", 2, {"lru": 5, "min": 4, "resident": 4, "two-lists": 6}),
    # Page 2 takes the place of page 0, for which there is none when it comes back.
    ("a0 a1 r-0 a2 a0 a2 a1", 2, {"lru": 5, "min": 4, "resident": 4, "two-lists": 6}),
    # Page 0 is used before page 1, but is gone by then: page 1 stays instead.
    ("a0 a1 r-0 a0 a1", 1, {"lru": 4, "min": 3, "resident": 4, "two-lists": 4}),
    # Page 8 has the place of page 3, and the kernel reclaims nothing.
    ("a0:7 r-3 a8 a0:2 a4:7", 8, {"lru": 9, "min": 9, "resident": 9, "two-lists": 9}),
    # The same, but reclaim took page 3: the kernel's model takes all eight pages for page 8.
    ("a0:7 k~3 a8 a0:2 a4:7", 8, {"lru": 12, "min": 9, "resident": 9, "two-lists": 16}),
    # A write brings page 0 back, and reads nothing.
    ("a0 a1 r-0 a!0 a0:1", 2, {"lru": 2, "min": 2, "resident": 2, "two-lists": 2}),
]


def test_places_of_removed_pages_are_free_again(tmp_path, tracer):
    stories = [Story(text) for text, *_ in READ_BY_HAND]
    answer = answered(tracer, tmp_path / "t", stories, CAPACITIES)
    for number, (text, pages, read) in enumerate(READ_BY_HAND):
        row = rows_of(answer, number)[pages, "a", None]
        assert {name: row[name] for name in read} == read, text


TOLD = {
    "a0 r-0 a0": 2,
    "a0 r=0 a0": 2,
    "a0 a-0 a0": 2,
    "a0 x( r-0 x) a0": 2,
    "*0 a0 r-0 a0": 2,
    "a0 k~0 x0 r-0 a0": 2,
    "a0 r-0 r-0 a0 r-0 a0": 3,
    "a0 k~0 r-0 a0": 1,
    "a0 x~0 r-0 a0": 1,
    "a0 x( x~0 r-0 x) a0": 1,
    "a0 r-10 a0": 1,
    "a0 x10 r-10 a0": 1,
}
"""Stories, and the pages that each model reads with any memory: page 10 has page 0's inode number,
and lies on another partition."""


def test_each_removal_that_the_kernel_logs_costs_a_read(tmp_path, tracer):
    """LRU needs no memory to read nothing twice but what is taken out."""
    answer = answered(tracer, tmp_path / "t", [Story(text) for text in TOLD], [1, 8])
    for number, (text, read) in enumerate(TOLD.items()):
        rows = rows_of(answer, number)
        for pages in (1, 8):
            row = rows[pages, "a", None]
            assert [row[name] for name in READING] == [read] * 4, text
        assert answer["enough_bytes"][f"a{number}"] == (PAGE if read == 1 else 0), text


WINDOWS = {
    "x30 a31 a39 a^30:39 a0": (6, 4, 3, 3),
    "x30 a31 r-31 a^30:39 a0": (3, 3, 2, 0),
    "x30 a31:33 k~32 a^30:39 a^30:39 a0": (10, 5, 4, 4),
    "x30 b30:39 a31 r-33:37 a^32:38 a0 b0": (4, 4, 1, 0),
}
"""Stories, and the pages that are used, read by LRU and by the kernel with any room, and needed to
read none twice. Page 30 and all pages of b are in memory for the kernel's a."""


def test_only_the_cached_pages_of_a_window_around_a_fault_are_used(tmp_path, tracer):
    answer = answered(tracer, tmp_path / "t", [Story(text) for text in WINDOWS], [ALL])
    for number, (text, (used, read, of_kernel, enough_pages)) in enumerate(WINDOWS.items()):
        row = rows_of(answer, number)[ALL, "a", None]
        assert (row["used"], row["two-lists"]) == (used, of_kernel), text
        assert [row[model] for model in MODELS] == [read] * 3, text
        assert answer["enough_bytes"][f"a{number}"] == enough_pages * PAGE, text


def test_a_removal_takes_a_page_from_both_targets(tmp_path, tracer):
    """The kernel's page belongs to a, which brings it in; b finds it, with any limit."""
    stories, shared = [Story("a0 b0 r-0 a0 b0")] * 2, [False, True]
    answer = answered(tracer, tmp_path / "t", stories, [4], shared)
    for number, read in enumerate(
        [{"a": [2, 2, 2, 2], "b": [2, 2, 2, 0]}, {"a": [2, 2, 2, 2], "b": [0, 0, 0, 0]}]
    ):
        for target, pages in read.items():
            row = rows_of(answer, number)[4, target, None]
            assert [row[name] for name in READING] == pages


def test_pages_removed_between_epochs_are_read_by_the_next_one(tmp_path, tracer):
    """Three epochs use two pages. One page leaves after the first, one within the second."""
    story = Story("a| a0 a1 r-0 a| a0 a1 r-1 a| a0 a1")
    rows = rows_of(answered(tracer, tmp_path / "t", [story], [2]), 0)
    for name in READING:
        assert [rows[2, "a", epoch][name] for epoch in range(3)] == [2, 1, 1]
