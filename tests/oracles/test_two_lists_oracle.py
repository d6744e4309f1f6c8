"""The kernel's model of `tracer predict` reads as much as a naive kernel with two lists."""

import itertools
import random

import numpy as np
import pytest

from tests.oracles.called_jobs import CalledJobs, kernel_reads
from tests.oracles.drawing import seeds
from tests.oracles.drawn_calls import SIZES, Drawn, as_runs
from tests.oracles.own_memory import memory_rows
from tests.oracles.shared_cache import FILES, MODELS, counts, lru
from tests.oracles.two_lists import READ, REMOVAL, Call, Own, TwoLists
from tests.support.traces import make_trace
from tracer.analysis.memory.answer import answer_memory
from tracer.analysis.memory.prediction import kernel_reads as kernel_reads_by_clock
from tracer.analysis.memory.prediction import predict
from tracer.store.trace import Trace

pytestmark = pytest.mark.slow

PAGE = 4096
CAPACITIES = (1, 2, 31, 33, 60, 100, 170, 260, sum(SIZES.values()))
"""Pages: one, about one batch of reclaim and several, and all."""
ROOMY = tuple(pages for pages in CAPACITIES if pages >= 100)
"""Those with room for what a call reads ahead."""
SEEDS = seeds(3)


def naive(calls, limits, capacity, sizes=SIZES, **options):
    """The oracle after these calls, with the pages missed and read by group."""
    cache = TwoLists([capacity] * (max(limits) + 1), limits, sizes, **options)
    return cache, *cache.run(calls)


def found_by_model(calls, capacities, sizes=SIZES, ahead=0, timed=False, limits=None):
    """The pages missed and read by the model: two lists of groups by capacities."""
    runs = as_runs(calls, sizes, timed)
    return predict(runs, capacities, ahead, large_folios=False, limits=limits)


def agree(calls, limits, capacities, ahead=0, exact=True):
    """Returns how many pages became active as they were read again, over all capacities."""
    found = found_by_model(calls, capacities, ahead=ahead, timed=not exact, limits=limits)
    activated = 0
    for column, capacity in enumerate(capacities):
        cache, missed, read = naive(calls, limits, capacity, ahead=ahead, exact=exact)
        for group in missed:
            place = capacity, group
            assert found.missed[group, column] == missed[group], place
            assert found.read[group, column] == read[group], place
        activated += sum(limit.activated for limit in cache.limits)
    return activated


@pytest.mark.parametrize("exact", [True, False])
@pytest.mark.parametrize("limits", [[0], [0, 1], [0, 0], [0, 0, 1, 0]])
def test_pages_missed_and_read_are_those_of_the_oracle(limits, exact):
    for seed in SEEDS:
        calls = Drawn(random.Random(seed), 700, len(limits)).calls
        assert agree(calls, limits, CAPACITIES, exact=exact) > 0


@pytest.mark.parametrize("ahead", [1, 4, 8, 32, 64])
@pytest.mark.parametrize("limits", [[0], [0, 0]])
def test_pages_read_ahead_are_those_of_the_oracle(limits, ahead):
    for seed in SEEDS:
        calls = Drawn(random.Random(seed), 500, len(limits)).calls
        agree(calls, limits, ROOMY, ahead)


@pytest.mark.parametrize("limits", [[0], [0, 0]])
def test_pages_read_with_each_clock_are_those_of_the_oracle(limits):
    differ = 0
    for seed in SEEDS:
        calls = Drawn(random.Random(seed), 700, len(limits), pause_ns=370_000_000).calls
        runs = as_runs(calls, timed=True)
        found = kernel_reads_by_clock(runs, CAPACITIES, 0, large_folios=False, limits=limits)
        for number, clock in enumerate([0, 500_000_000, 1_000_000_000, 1_500_000_000, None]):
            known = {"exact": True} if clock is None else {"exact": False, "clock": clock}
            for column, capacity in enumerate(CAPACITIES):
                _, _, read = naive(calls, limits, capacity, **known)
                expected = [read.get(group, 0) for group in range(runs.groups)]
                assert found[number, :, column].tolist() == expected, (clock, capacity)
        differ += int((found.max(axis=0) > found.min(axis=0)).sum())
    assert differ > 0


def test_drawn_calls_tell_the_two_lists_from_lru():
    calls = Drawn(random.Random(1), 700).calls
    reads = [call for call in calls if call.kind == READ]
    uses = [("", call.file, index) for call in reads for index in range(call.first, call.end)]
    for capacity in ROOMY[:-1]:
        _, _, read = naive(reads, [0], capacity)
        assert sum(read.values()) != sum(lru(uses, capacity)), capacity


# Cases worked out by hand. All pages are of one file, each read by a call of its own.


def reads_of(pages, group=0, begin=0):
    """Calls of several readers, none of which reads twice: each call marks its page."""
    return [Call(0, group, (group, n), READ, "f", p, 1, begin) for n, p in enumerate(pages)]


def pages_read(calls, capacity, size=1000, **options):
    """The pages that the model and the oracle read in each group."""
    found = found_by_model(calls, [capacity], {"f": size}, **options).read[:, 0].tolist()
    exact = not options.get("timed", False)
    _, _, read = naive(
        calls, [0], capacity, {"f": size}, ahead=options.get("ahead", 0), exact=exact
    )
    assert [read[group] for group in sorted(read)] == found
    return found


def test_a_cache_smaller_than_a_batch_of_reclaim_loses_all_inactive_pages():
    """Reclaim for the ninth page wants 32; it takes the newest of the eight, too."""
    assert pages_read([*reads_of(range(9)), *reads_of([7], group=1)], 8) == [9, 1]


def test_pages_used_twice_outlast_a_scan():
    """Ten active pages; the inactive list never has fewer than 17."""
    hot = [*range(10), *range(10)]
    calls = [*reads_of(hot), *reads_of(range(100, 300), 1), *reads_of(range(10), 2)]
    assert pages_read(calls, 64) == [10, 200, 0]


def test_a_page_read_again_by_its_last_reader_is_used_once():
    calls = [Call(0, 0, 0, READ, "f", 0, 1)] * 2
    scan = reads_of(range(100, 300), 1)
    assert pages_read([*calls, *scan, *reads_of([0], 2)], 64) == [1, 200, 1]


def test_active_pages_stay_until_the_statistics_are_brought_up_to_date():
    """30 of 40 pages are active: the inactive list is too small, but only later known to be."""
    hot, scan = [*range(30), *range(30)], range(100, 200)
    calls = [*reads_of(hot), *reads_of(scan, 1), *reads_of(range(30), 2)]
    assert pages_read(calls, 40, timed=True) == [30, 100, 0]
    assert pages_read(calls, 40)[2] > 0
    late = 3_000_000_000
    calls = [*reads_of(hot), *reads_of(scan, 1, late), *reads_of(range(30), 2, late)]
    assert pages_read(calls, 40, timed=True)[2] > 0


def test_pages_read_ahead_that_nobody_uses_count_as_read():
    """The first read of a file reads four pages, if read-ahead is 32 (get_init_ra_size)."""
    sizes = {f"f{n}": 50 for n in range(8)}
    calls = [Call(0, n // 8, n, READ, f"f{n % 8}", 0, 1) for n in range(16)]
    found = found_by_model(calls, [40], sizes, ahead=32)
    assert (found.missed[:, 0].tolist(), found.read[:, 0].tolist()) == ([8, 0], [32, 0])
    _, missed, read = naive(calls, [0], 40, sizes, ahead=32)
    assert (missed, read) == ({0: 8, 1: 0}, {0: 32, 1: 0})


def singles(pages):
    """Reads of single pages, each by a reader of its own."""
    return [Call(0, 0, page, READ, "f", page, 1) for page in pages]


@pytest.mark.parametrize(
    ("before", "asked", "read"), [(7, 6, 8), (7, 7, 7), (13, 6, 8), (13, 7, 7)]
)
def test_cached_pages_before_a_read_count_less_than_the_longest_window(before, asked, read):
    """Linux 6.18 reads as much: if it looks at eight cached pages, it counts seven of them."""
    calls = singles(range(99, 99 - before, -1))
    assert pages_read([*calls, Call(0, 1, 0, READ, "f", 100, asked)], 500, ahead=8) == [
        before,
        read,
    ]


@pytest.mark.parametrize(("first", "read"), [(30, 4), (31, 8)])
def test_a_read_that_goes_on_in_a_page_is_sequential_up_to_the_next_one(first, read):
    """Linux 6.18 reads as much. The reader has read page 30, and lacks pages from 32 on."""
    calls = [*singles([30, 31]), Call(0, 1, 30, READ, "f", first, 36 - first)]
    assert pages_read(calls, 500, ahead=8) == [2, read]


def test_memory_for_all_pages_reads_each_once():
    calls = Drawn(random.Random(3), 300).calls
    found = found_by_model(calls, [sum(SIZES.values()), 10**6])
    assert np.array_equal(found.read[:, 0], found.read[:, 1])
    first_uses = {}
    for call in calls:
        for index in range(call.first, call.end):
            first_uses.setdefault((call.file, index), call)
    read = sum(call.kind != "write" for call in first_uses.values())
    assert found.read[:, 0].sum() == found.missed[:, 0].sum() == read


def test_no_calls_read_nothing():
    found = found_by_model([], [1, 100])
    assert found.read.sum() == found.missed.sum() == found.accessed.sum() == 0


# The same from a recording.

TARGETS = [
    {"name": name, "role": "target", "kind": "container", "pid": pid, "container": name * 64}
    for name, pid in (("a", 100), ("b", 200))
]
DISKS = [
    {"dev": "8:0", "name": "sda"},
    *({"dev": f"8:{n}", "name": f"sda{n}", "partition_of": "8:0"} for n in (1, 2)),
]
RECORDED = (1, 7, 40, 66, 90, 400)
"""Pages; the jobs use 160."""


def made(folder, jobs, **tables):
    clock = {"name": "mono", "start_ns": 0, "end_ns": 2 * 10**11}
    given = jobs.tables | tables
    make_trace(folder, given, targets=TARGETS, disks=DISKS, clock=clock, duration_s=200.0).close()


def recorded_reads(tracer, folder, pages, *options):
    """The pages that the kernel's model reads, by capacity, target and epoch."""
    memory = ",".join(str(number * PAGE) for number in pages)
    answer = tracer("predict", folder, "--memory", memory, *options, "--json").json
    return by_epoch(answer["reads"])


def by_epoch(rows):
    return {
        (row["memory_bytes"] // PAGE, row["target"], row["epoch"]): row["two-lists_pages"]
        for row in rows
    }


def expected_reads(jobs, pages, shared, ahead=0):
    """Those of the oracle. Other processes have as much memory as they need."""
    sizes = {(dev, ino): size for dev, ino, size in FILES}
    return {
        (number, *group): read
        for number in pages
        for group, read in kernel_reads(jobs.calls, sizes, number, shared, ahead).items()
    }


def assert_reads_are_those_of_the_oracle(folder, jobs):
    """Compares shared limits and one for each target, with read-ahead and without."""
    with Trace(folder) as trace:
        for shared, ahead in itertools.product((True, False), (0, 8)):
            pages = RECORDED if ahead == 0 else RECORDED[2:]
            memory = [number * PAGE for number in pages]
            reads = answer_memory(trace, memory, read_ahead=ahead * PAGE, shared=shared).reads
            found = by_epoch(reads.astype(object).where(reads.notna(), None).to_dict("records"))
            assert found == expected_reads(jobs, pages, shared, ahead)


@pytest.mark.parametrize("seed", seeds(1))
@pytest.mark.parametrize("common", [True, False])
@pytest.mark.parametrize("pause_ns", [0, 6_000_000_000])
def test_each_epoch_of_each_target_reads_as_much_as_in_the_oracle(tmp_path, common, pause_ns, seed):
    jobs = CalledJobs(seed, common, pause_ns)
    made(tmp_path / "t", jobs)
    assert_reads_are_those_of_the_oracle(tmp_path / "t", jobs)


def test_the_cache_is_what_anonymous_memory_leaves(tmp_path, tracer):
    """Own memory is 10 pages, and 60 in the middle of the recording. Samples are 31 s apart.

    The most counts for all models but the kernel's.
    """
    jobs = CalledJobs(21, pause_ns=31_000_000_000)
    begun = sorted({row["start"] for row in jobs.tables["phases"]})
    pages = dict(zip(begun, (10, 60, 60, 10), strict=False))
    samples = [
        row
        for ts, own in pages.items()
        for target in "ab"
        for row in memory_rows(target, ts, own * PAGE, 50 * PAGE)
    ]
    made(tmp_path / "t", jobs, samples=samples)
    asked = ["predict", tmp_path / "t", "--memory", 100 * PAGE, "--apart", "--json"]
    asked += ["--read-ahead", 0]
    found = tracer(*asked).json["reads"]
    own = [Own(ts, limit, number) for ts, number in pages.items() for limit in (0, 1)]
    sizes = {(dev, ino): size for dev, ino, size in FILES}
    expected = kernel_reads(jobs.calls, sizes, 100, False, own=own)
    assert by_epoch(found) == {(100, *key): read for key, read in expected.items()}
    assert {row["cache_bytes"] for row in found} == {40 * PAGE}
    for row in found:
        mine = [use for use in jobs.uses if use.target == row["target"]]
        for model in MODELS:
            read = counts(mine, 40, model)[row["target"], row["epoch"]]
            assert row[f"{model}_pages"] == read
    given = by_epoch(tracer(*asked, "--own-memory", 10 * PAGE).json["reads"])
    roomy, narrow = (expected_reads(jobs, [room], False) for room in (90, 40))
    assert given == {(100, *key): read for (_, *key), read in roomy.items()}
    assert sum(roomy.values()) < sum(expected.values()) < sum(narrow.values())


def deletions(jobs):
    return sum(row["event"] == "delete" for row in jobs.tables["page_cache"])


def removals(jobs):
    return sum(call.kind == REMOVAL for call in jobs.calls)


def test_pages_that_reclaim_took_in_the_recording_stay_in_the_model(tmp_path, tracer):
    jobs = CalledJobs(22, evicts=0.3)
    assert deletions(jobs) > removals(jobs) == 0
    made(tmp_path / "t", jobs)
    found = recorded_reads(tracer, tmp_path / "t", RECORDED, "--shared", "--read-ahead", 0)
    assert found == expected_reads(jobs, RECORDED, True)


@pytest.mark.parametrize("seed", seeds(1))
@pytest.mark.parametrize("evicts", [0, 0.2])
@pytest.mark.parametrize("pause_ns", [0, 6_000_000_000])
def test_pages_that_programs_took_in_the_recording_leave_the_model(
    tmp_path, evicts, pause_ns, seed
):
    jobs = CalledJobs(seed, pause_ns=pause_ns, evicts=evicts, drops=0.2)
    assert removals(jobs) > 0
    assert (deletions(jobs) > removals(jobs)) == (evicts > 0)
    made(tmp_path / "t", jobs)
    assert_reads_are_those_of_the_oracle(tmp_path / "t", jobs)


def test_removals_that_no_event_tells_from_evictions_change_no_model(tmp_path, tracer):
    jobs = CalledJobs(23, drops=0.2)
    del jobs.tables["reclaim"]
    made(tmp_path / "t", jobs)
    found = recorded_reads(tracer, tmp_path / "t", RECORDED, "--shared", "--read-ahead", 0)
    told = expected_reads(jobs, RECORDED, True)
    jobs.calls = [call for call in jobs.calls if call.kind != REMOVAL]
    assert found == expected_reads(jobs, RECORDED, True) != told
