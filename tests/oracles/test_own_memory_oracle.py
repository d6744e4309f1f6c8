"""The kernel's model of `tracer predict` follows own memory over time as a naive kernel does."""

import itertools
import random
from statistics import median

import numpy as np
import pytest

from tests.oracles.drawing import seeds
from tests.oracles.drawn_calls import SIZES, Drawn, as_runs
from tests.oracles.nested_cgroups import (
    COMMON,
    DISKS,
    PAGE,
    Readers,
    limit_row,
    pages_read,
    with_cgroup,
)
from tests.oracles.own_memory import (
    changes,
    drawn_rows,
    drawn_times,
    memory_rows,
    own_at,
    samples_of,
    without,
)
from tests.oracles.two_lists import READ, Call, Own, TwoLists
from tests.support.traces import make_trace
from tracer.analysis.memory.answer import answer_memory
from tracer.analysis.memory.page_runs import OwnPages
from tracer.analysis.memory.prediction import kernel_reads
from tracer.store.trace import Trace

pytestmark = pytest.mark.slow

SECOND = 1_000_000_000
CLOCKS = (0, SECOND // 2, SECOND, 3 * SECOND // 2, None)
"""Times of the first update of the statistics; None: they are always up to date."""
MACHINE = {"name": "machine", "role": "target", "kind": "machine", "pid": 0}
RECORDING = {"name": "mono", "start_ns": 0, "end_ns": 600 * SECOND}
ROOMS = (70, 110)
"""Pages; each target has 60, and all have 30 more."""
NAMES = ("a", "b", "c")
SEEDS = seeds(2)


# The model itself, for calls that also write and map files.


def agree(calls, own, limits, capacity, ahead=0, sizes=SIZES):
    """Compares the model with the oracle, clock by clock; returns what the model reads."""
    given = OwnPages(
        np.array([one.ts for one in own], np.int64),
        np.array([one.limit for one in own], np.int32),
        np.array([one.pages for one in own], np.int64),
    )
    runs = as_runs(calls, sizes, timed=True)
    options = {"large_folios": False, "limits": limits, "own": given}
    found = kernel_reads(runs, [capacity], ahead, **options)[:, :, 0].tolist()
    for clock, read in zip(CLOCKS, found, strict=True):
        known = {"exact": True} if clock is None else {"exact": False, "clock": clock}
        cache = TwoLists([capacity] * (max(limits) + 1), limits, sizes, ahead, **known)
        _, expected = cache.run(calls, own)
        assert read == [expected.get(group, 0) for group in range(runs.groups)], (capacity, clock)
    return found


@pytest.mark.parametrize(("ahead", "capacities"), [(0, (33, 90, 200)), (8, (260,))])
@pytest.mark.parametrize("limits", [[0, 0], [0, 1]])
def test_pages_read_are_those_of_the_oracle(limits, ahead, capacities):
    """Own memory changes before the first call, between calls and at the times of calls.

    With read-ahead, 100 pages are left.
    """
    for seed, capacity in itertools.product(SEEDS, capacities):
        draw = random.Random(seed)
        calls = Drawn(draw, 400, 2, pause_ns=370_000_000).calls
        most = capacity - 100 if ahead else capacity + 9
        own = [
            Own(
                draw.choice([draw.choice(calls).ts, draw.randrange(-9, calls[-1].ts)]), limit, pages
            )
            for limit in limits
            for pages in [
                0,
                1,
                most // 3,
                most - 10,
                most - 9,
                most,
                *draw.choices(range(most), k=9),
            ]
        ]
        own.sort(key=lambda one: one.ts)
        agree(calls, own, limits, capacity, ahead)


def reads_of(pages, group, ts):
    """Calls of several readers, none of which reads twice: each call marks its page."""
    return [Call(0, group, (group, n), READ, "f", p, 1, ts) for n, p in enumerate(pages)]


@pytest.mark.parametrize(("grows", "read"), [(1.9, 0), (2.1, 20), (2.3, 0)])
def test_own_memory_takes_pages_by_the_statistics_of_its_time(grows, read):
    """30 of 40 pages are active, and own memory takes five. No call is near the update at 2 s.

    Only then is the inactive list known to be too small.
    """
    hot, others = [*range(30), *range(30)], range(100, 110)
    calls = [*reads_of([*hot, *others], 0, 0), *reads_of(range(30), 1, 2_200_000_000)]
    calls += reads_of([200], 2, 3 * SECOND)
    own = [Own(int(grows * SECOND), 0, 5)]
    assert agree(calls, own, [0], 40, sizes={"f": 300})[0] == [40, read, 1]


# The same from a recording.


@pytest.fixture
def made(tmp_path):
    """Makes the trace of readers; returns its folder."""
    count = 0

    def make(jobs, samples, targets=None):
        nonlocal count
        count += 1
        tables = jobs.tables(samples=sorted(samples, key=lambda row: row["ts"]))
        if targets == [MACHINE]:
            nobody = {"target": None, "role": "other"}
            tables["processes"] = [row | nobody for row in tables["processes"]]
        given = {"targets": targets or jobs.targets("container"), "disks": DISKS}
        given |= {"clock": RECORDING, "duration_s": 600.0}
        make_trace(tmp_path / f"{count}.trace", tables, **given).close()
        return tmp_path / f"{count}.trace"

    return make


def readers(seed, names, pause_ns=5 * SECOND):
    """Targets that read, with pauses. By default, they do so for some five minutes."""
    jobs = Readers(seed, names, reads=0)
    jobs.now = SECOND
    pauses = [100, SECOND // 1000, pause_ns // 25, pause_ns]
    for name in [*names, *jobs.draw.choices(names, k=240)]:
        jobs.now += jobs.draw.choice(pauses)
        ino = jobs.draw.choice([jobs.pid(name)] * 3 + [COMMON])
        first = jobs.draw.randrange(jobs.draw.choice([10, jobs.sizes[ino]]))
        jobs.read(name, ino, first, min(jobs.draw.choice([1, 1, 2, 4]), jobs.sizes[ino] - first))
    return jobs


def answered(folder, shared, rooms=ROOMS):
    with Trace(folder) as trace:
        return answer_memory(trace, [room * PAGE for room in rooms], None, 0, shared)


def reads_with(jobs, found, limits, changed):
    """The same of a naive kernel; `changed`: the changes of the own memory."""
    turns = [[name] for name in jobs.names]
    pages = sorted({size // PAGE for size in found.reads["memory_bytes"]})
    reads = {
        (room, clock): jobs.reads_below([room] * len(turns), limits, turns, clock, changed)
        for room in pages
        for clock in found.clocks_ns
    }
    return {
        (room, name): [reads[room, clock][name] for clock in found.clocks_ns]
        for room in pages
        for name in jobs.names
    }


def expected(jobs, found, own, last, shared):
    """The same; `own`: the samples of each target."""
    limits = [0 if shared else number for number in range(len(own))]
    return reads_with(jobs, found, limits, changes(own, last, limits))


def steps(own):
    """Changes of the own memory below one limit if samples count with their own size."""
    times = sorted({0, *(ts for samples in own.values() for ts in samples)})
    return [
        Own(ts, 0, -(-sum(own_at(samples, ts) for samples in own.values()) // PAGE)) for ts in times
    ]


def constant(own, choose):
    """The same samples if the own memory did not change."""
    return {name: {0: choose([*samples.values()])} for name, samples in own.items()}


def agrees(found, jobs, rows, own, shared):
    """Compares an answer with the oracle."""
    last = max(row["ts"] for row in rows)
    assert pages_read(found) == expected(jobs, found, own, last, shared)
    assert found.own_bytes == {name: max(told.values()) for name, told in own.items()}
    assert found.own_median_bytes == {
        name: pytest.approx(median(told.values()), abs=1) for name, told in own.items()
    }


@pytest.mark.parametrize(
    ("seed", "pause_ns"),
    [*((seed, 5 * SECOND) for seed in SEEDS), *((seed, SECOND // 4) for seed in seeds(1))],
)
@pytest.mark.parametrize(("names", "shared"), [("a", None), (NAMES, True), (NAMES, False)])
def test_targets_read_as_much_as_in_the_oracle(made, names, shared, pause_ns, seed):
    """The calls last for several minutes, or for a quarter of one."""
    jobs, draw = readers(seed, names, pause_ns), random.Random(seed)
    rows = []
    for name in names:
        rows += drawn_rows(draw, name, drawn_times(draw, jobs.times), draw.choice([30, 60, 130]))
    own = {name: samples_of(rows, name) for name in names}
    agrees(answered(made(jobs, rows), shared), jobs, rows, own, shared)


@pytest.mark.parametrize("shared", [True, False])
@pytest.mark.parametrize("inner", [{"a": "b", "b": "c", "c": ""}, {"a": "bc", "b": "", "c": ""}])
def test_targets_in_the_cgroups_of_others_read_as_much_as_in_the_oracle(made, inner, shared):
    """If the times of samples differ, those of the inner targets often end before the others."""
    for seed in SEEDS:
        same_times = seed % 2 == 0
        jobs, draw = readers(seed, NAMES), random.Random(seed)
        paths = zip(jobs.targets("cgroup"), ("/pod", "/pod/b", "/pod/b/c"), strict=True)
        if not inner["b"]:
            paths = zip(jobs.targets("cgroup"), ("/pod", "/pod/b", "/pod/c"), strict=True)
        targets = [with_cgroup(target, path, 2) for target, path in paths]
        ends = [1, 1, 1] if same_times else sorted(draw.choices([0.2, 0.4, 0.7, 1], k=3))
        times = [drawn_times(draw, jobs.times, end) for end in ends]
        rows, told = [], {}
        for name, most, at in zip("cba", (20, 50, 90), times, strict=True):
            rows += drawn_rows(draw, name, times[-1] if same_times else at, most)
            told[name] = samples_of(rows, name)
        last = max(row["ts"] for row in rows)
        own = {
            name: without(told[name], last, *(told[each] for each in below))
            for name, below in inner.items()
        }
        agrees(answered(made(jobs, rows, targets), shared), jobs, rows, own, shared)


def in_bytes(pages):
    """The same samples by ns."""
    return {
        name: {int(second * SECOND): own * PAGE for second, own in by_second.items()}
        for name, by_second in pages.items()
    }


@pytest.fixture(scope="module")
def two():
    return readers(1, "ab")


def rows_of(**pages):
    """Samples of targets: own pages by second, a half of them in tmpfs."""
    given = [(name, *each) for name, by_second in pages.items() for each in by_second.items()]
    return [
        row
        for name, second, own in given
        for row in memory_rows(name, int(second * SECOND), int(own * PAGE), PAGE, int(own * 2048))
    ]


def test_a_change_of_own_memory_changes_the_answer(made, two):
    """No constant reads as much: not the largest sample, the least, the first or the median."""
    a, b = {10: 10, 50: 50, 90: 10, 130: 90, 170: 0, 210: 30}, {20: 5, 100: 15, 215: 20}
    rows = rows_of(a=a, b=b)
    found = answered(made(two, rows), True)
    own = {name: samples_of(rows, name) for name in "ab"}
    agrees(found, two, rows, own, True)
    for choose in (max, min, lambda values: values[0], np.median):
        assert pages_read(found) != expected(two, found, constant(own, choose), 0, True)


@pytest.mark.parametrize(
    ("samples", "counts"),
    [
        ({40: 50, 70: 5, 150: 4}, {40: 50, 150: 4}),
        ({40: 50, 70.0001: 5, 150: 4}, {40: 50, 70.0001: 5, 150: 4}),
        ({40: 5, 70: 50, 150: 4}, {40: 50, 150: 4}),
        ({40: 5, 70.0001: 50, 150: 4}, {40: 5, 70.0001: 50, 150: 4}),
        ({40: 50, 69: 30, 98: 5, 150: 4}, {40: 50, 98: 30, 150: 4}),
    ],
)
def test_a_sample_counts_as_the_largest_one_within_half_a_minute(made, two, samples, counts):
    """The one that counts with this size makes no other one larger."""
    rows = rows_of(a=samples, b={150: 1})
    found = answered(made(two, rows), True)
    by_hand = in_bytes({"a": counts, "b": {150: 1}})
    read = pages_read(found)
    assert read == reads_with(two, found, [0, 0], steps(by_hand))
    if len(counts) < len(samples):
        plain = {name: samples_of(rows, name) for name in "ab"}
        assert read != reads_with(two, found, [0, 0], steps(plain))


@pytest.mark.parametrize(("last", "ends"), [(2, False), (2.0001, True)])
@pytest.mark.parametrize(("by", "pause"), [("target", 10), ("machine", 40)])
def test_own_memory_ends_with_its_samples_if_others_go_on(made, two, last, ends, by, pause):
    """The longest time between two samples of a is the pause. Others go on for `last` pauses."""
    half, begin = pause / 2, 20 + 5 * pause / 2
    a = {20: 40, 20 + half: 50, 20 + 3 * half: 60, begin: 55}
    rows = rows_of(a=a, b={10: 3, begin: 9})
    last_ns = int((begin + last * pause) * SECOND)
    if by == "target":
        rows += rows_of(b={begin + last * pause: 3})
    else:
        rows.append({"ts": last_ns, "target": None, "name": "memory_used", "value": 1e9})
    found = answered(made(two, rows), True)
    own = {name: samples_of(rows, name) for name in "ab"}
    read = pages_read(found)
    assert read == expected(two, found, own, last_ns, True)
    assert (read != expected(two, found, own, 0, True)) == ends


@pytest.mark.parametrize(
    ("times", "counts"),
    [
        ([20, 60, 100, 180], {20: 30, 100: 50}),
        ([20, 60, 99, 130, 180], {20: 30, 130: 50}),
        ([20, 60, 99, 129, 180], {20: 30, 99: 50}),
    ],
)
def test_an_inner_target_takes_nothing_once_its_samples_ended(made, two, times, counts):
    """They end at 100 s. The outer target's 50 pages have 20 of the inner one."""
    paths = zip(two.targets("cgroup"), ("/pod", "/pod/b"), strict=True)
    targets = [with_cgroup(target, path, 2) for target, path in paths]
    rows = rows_of(a=dict.fromkeys(times, 50), b={20: 20, 60: 20})
    found = answered(made(two, rows, targets), True)
    a, b = samples_of(rows, "a"), samples_of(rows, "b")
    own = {"a": without(a, 180 * SECOND, b), "b": b}
    by_hand = in_bytes({"a": counts, "b": {20: 20, 100: 0}})
    read = pages_read(found)
    assert read == reads_with(two, found, [0, 0], steps(by_hand))
    assert read == expected(two, found, own, 180 * SECOND, True)
    assert found.own_bytes == {"a": 50 * PAGE, "b": 20 * PAGE}


@pytest.mark.parametrize(("later", "left"), [(80, 20), (79, 40)])
def test_the_earlier_of_two_equally_near_samples_of_an_inner_target_counts(made, two, later, left):
    """The outer target's 50 pages have 30 of the inner one at 40 s, and 10 at a later time."""
    paths = zip(two.targets("cgroup"), ("/pod", "/pod/b"), strict=True)
    targets = [with_cgroup(target, path, 2) for target, path in paths]
    rows = rows_of(a={60: 50}, b={40: 30, later: 10})
    found = answered(made(two, rows, targets), True)
    assert found.own_bytes == {"a": left * PAGE, "b": 30 * PAGE}
    by_hand = in_bytes({"a": {60: left}, "b": {40: 30, later: 10}})
    assert pages_read(found) == reads_with(two, found, [0, 0], steps(by_hand))


@pytest.mark.parametrize("shared", [0, 30])
def test_a_sample_with_more_page_cache_than_memory_does_not_count(made, two, shared):
    """It has 99 pages, and one more in the page cache. So it would count with `shared` - 1."""
    wrong = memory_rows("a", 90 * SECOND, (shared - 1) * PAGE, (100 - shared) * PAGE, shared * PAGE)
    assert [row["value"] / PAGE for row in wrong] == [99, 100, shared]
    found = answered(made(two, [*rows_of(a={20: 10, 160: 50}, b={160: 3}), *wrong]), True)
    by_hand = in_bytes({"a": {20: 10, 160: 50}, "b": {160: 3}})
    assert pages_read(found) == reads_with(two, found, [0, 0], steps(by_hand))
    assert found.own_bytes == {"a": 50 * PAGE, "b": 3 * PAGE}
    assert found.own_median_bytes == {"a": 30 * PAGE, "b": 3 * PAGE}


def test_one_sample_of_a_target_counts_all_the_time(made, two):
    rows = rows_of(a={80: 45}, b={10: 3, 20: 9, 340: 3})
    found = answered(made(two, rows), True)
    agrees(found, two, rows, {name: samples_of(rows, name) for name in "ab"}, True)


def test_a_part_of_a_page_takes_a_page_of_the_limit(made, two):
    rows = rows_of(a={40: 10.25, 100: 50.75, 180: 20.25}, b={60: 1.5, 120: 3.75, 160: 0.5})
    found = answered(made(two, rows), True)
    agrees(found, two, rows, {name: samples_of(rows, name) for name in "ab"}, True)


def test_the_error_on_the_recording_is_that_of_the_memory_over_time(made):
    jobs = readers(5, "a")
    rows = [*rows_of(a={20: 10, 60: 50, 100: 20, 180: 60, 240: 0}), limit_row("a", "/a", 100)]
    found = answered(made(jobs, rows), None, (100,))
    own = {"a": samples_of(rows, "a")}
    (read,) = expected(jobs, found, own, 240 * SECOND, None).values()
    (recorded,) = found.reads["recorded_pages"]
    errors = [pages / recorded - 1 for pages in read]
    assert found.limit_bytes == {"a": 100 * PAGE}
    assert found.error == {"a": pytest.approx(errors[0])}
    assert found.error_low == {"a": pytest.approx(min(errors))}
    assert found.error_high == {"a": pytest.approx(max(errors))}


def test_a_machine_has_its_own_memory_over_time(made):
    """The samples `memory_used` tell it."""
    jobs = readers(2, "a")
    row = {"target": None, "name": "memory_used", "unit": "bytes"}
    samples = {20: 10, 60: 50, 100: 20, 180: 60, 240: 0}
    rows = [row | {"ts": at * SECOND, "value": float(n * PAGE)} for at, n in samples.items()]
    found = answered(made(jobs, rows, [MACHINE]), None)
    own = {"a": {at * SECOND: n * PAGE for at, n in samples.items()}}
    read = expected(jobs, found, own, 240 * SECOND, None)
    assert list(pages_read(found).values()) == list(read.values())
