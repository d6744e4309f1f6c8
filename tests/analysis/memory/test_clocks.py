"""The kernel's model by the clock of its statistics, against plain Python and planted worlds."""

import dataclasses
import random

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support import slow_page_cache as slow
from tests.support.page_events import (
    HOT,
    JOB,
    ONE,
    PAGE,
    PEER,
    SCANNED,
    TWO,
    PageEvents,
    sample,
    scanned,
)
from tests.support.page_runs import drawn, made
from tests.support.traces import make_trace
from tracer.analysis.memory.answer import answer_memory
from tracer.analysis.memory.clocks import BY_CLOCK, HIGH, LOW, ranged, summed
from tracer.analysis.memory.page_runs import READ
from tracer.analysis.memory.prediction import kernel_reads, predict
from tracer.analysis.memory.two_lists import CLOCKS, clocks, two_lists
from tracer.analysis.memory.words import basis, rows

SECOND = 1_000_000_000
CLOCKS_S = (0, 0.5, 1, 1.5)
LATEST_S = 9
"""The time of the last access in the planted worlds."""
ROOM = 40
"""Pages of the memory, which has room for those used twice, but not for those of the scan, too."""


def timed(seed, longest_ns, tenants=1):
    """Draws runs with times that are up to so far apart."""
    runs = drawn(seed, 150, [40, 90, 7], tenants=tenants)
    steps = np.random.default_rng(seed).integers(0, longest_ns, len(runs.first))
    return dataclasses.replace(runs, ts=5 + steps.cumsum())


def slow_reads(runs, capacities, limits=None):
    """The pages that the slow model reads, by clock and group."""
    found = []
    span = min(2 * SECOND, int(runs.ts[-1] - runs.ts[0]))
    for clock in (0, span // 4, span // 4 * 2, span // 4 * 3, None):
        _, read, _ = slow.simulate(runs, capacities, True, 0, 320, False, limits, clock)
        found.append(np.bincount(runs.group, read, runs.groups).astype(int).tolist())
    return found


@pytest.mark.parametrize(
    ("ts", "expected_s"),
    [
        ([5, 6 * SECOND], [*CLOCKS_S, None]),
        ([5, 2 * SECOND + 5], [*CLOCKS_S, None]),
        ([5, 9, SECOND + 5], [0, 0.25, 0.5, 0.75, None]),
        ([5, 5], [0, 0, 0, 0, None]),
        ([], [0, 0, 0, 0, None]),
    ],
)
def test_the_clocks_are_quarters_of_2_s_or_of_a_shorter_run(ts, expected_s):
    runs = made([(0, 0, 1)] * len(ts), [1], ts=np.array(ts, np.int64))
    assert clocks(runs) == [None if at is None else at * SECOND for at in expected_s]
    assert len(expected_s) == CLOCKS


@pytest.mark.parametrize("longest_ns", [1, 60_000_000, 5 * SECOND])
@settings(deadline=None, max_examples=15)
@given(seed=st.integers(0, 2**32), capacity=st.sampled_from([3, 33, 60, 100, 137]))
def test_each_clock_reads_as_much_as_the_slow_model(longest_ns, seed, capacity):
    runs = timed(seed, longest_ns)
    found = kernel_reads(runs, [capacity], 0, large_folios=False)
    assert found[:, :, 0].tolist() == slow_reads(runs, [capacity])


@settings(deadline=None, max_examples=15)
@given(seed=st.integers(0, 2**32), capacity=st.sampled_from([33, 60, 100]))
def test_each_clock_of_a_shared_limit_reads_as_much_as_the_slow_model(seed, capacity):
    runs = timed(seed, 60_000_000, tenants=2)
    found = kernel_reads(runs, [capacity], 0, large_folios=False, limits=[0, 0])
    assert found[:, :, 0].tolist() == slow_reads(runs, [capacity], [0, 0])


def test_the_first_clock_is_that_of_the_prediction():
    runs, capacities = timed(3, 60_000_000), [10, 60, 100]
    expected = predict(runs, capacities, 0).read
    assert kernel_reads(runs, capacities, 0)[0].tolist() == expected.tolist()


def planted(scan_ns, scanner=0):
    """Runs of pages used twice, then of a scan by a tenant, then of the same pages again; and of
    another page, much later.

    The first two uses make the pages active. They stay unless the kernel knows of that before the
    scan: it then takes the active pages for too many.
    """
    hot, scan = range(HOT), range(SCANNED)
    uses = [
        *((0, page, 0, 0) for page in (*hot, *hot)),
        *((1, page, scanner, 1) for page in scan),
        *((0, page, 0, 2) for page in hot),
        (2, 0, 0, 3),
    ]
    table = [
        (file, page, 1, READ, number, tenant, group)
        for number, (file, page, tenant, group) in enumerate(uses)
    ]
    ts = [[0, scan_ns, scan_ns, LATEST_S * SECOND][group] for *_, group in table]
    return made(table, [HOT, SCANNED, 1], ts=np.array(ts, np.int64))


@pytest.mark.parametrize("scanner", [0, 1])
@pytest.mark.parametrize(
    ("scan_s", "lost"),
    [
        (0.3, [False, False, False, False]),
        (0.5, [False, True, False, False]),
        (0.7, [False, True, False, False]),
        (1.2, [False, True, True, False]),
        (1.9, [False, True, True, True]),
        (2.1, [True, True, True, True]),
    ],
)
def test_pages_are_lost_if_the_statistics_are_brought_up_to_date_before_a_scan(
    scanner, scan_s, lost
):
    runs, limits = planted(int(scan_s * SECOND), scanner), [0] * (scanner + 1)
    found = kernel_reads(runs, [ROOM], 0, limits=limits)[:, :, 0]
    assert found[:, :2].tolist() == [[HOT, SCANNED]] * CLOCKS
    assert found[:-1, 2].tolist() == [HOT if one else 0 for one in lost]
    assert found.tolist() == slow_reads(runs, [ROOM], limits)
    assert 0 < found[-1, 2] <= HOT  # the kernel always knows


@pytest.mark.parametrize(
    ("scan_s", "lost"),
    [
        (3.2, [False, True, True, False]),
        (3.7, [False, True, True, True]),
        (4.2, [True, True, True, True]),
    ],
)
def test_updates_are_two_seconds_apart_however_long_no_access_comes(scan_s, lost):
    """One page is used at 0 s, and the pages that the scan may take at 2.4 s."""
    runs = planted(int(scan_s * SECOND))
    ts = np.where(runs.group == 0, int(2.4 * SECOND), runs.ts)
    ts[0] = 0
    found = kernel_reads(dataclasses.replace(runs, ts=ts), [ROOM], 0)[:-1, 2, 0]
    assert found.tolist() == [HOT if one else 0 for one in lost]


def test_accesses_of_one_time_know_no_update_or_all():
    runs = planted(0)
    runs = dataclasses.replace(runs, ts=np.zeros_like(runs.ts))
    found = kernel_reads(runs, [ROOM], 0)
    assert found[:-1, 2, 0].tolist() == [0] * 4 and found[-1, 2, 0] > 0


def test_accesses_without_times_always_know_the_statistics():
    runs = dataclasses.replace(planted(SECOND), ts=np.empty(0, np.int64))
    expected = two_lists(runs, ROOM, 0).read.sum()
    assert kernel_reads(runs, [ROOM], 0).sum(axis=1)[:, 0].tolist() == [expected] * CLOCKS


@pytest.mark.parametrize("ts", [{}, {"ts": np.empty(0, np.int64)}])
def test_no_accesses_read_nothing_with_any_clock(ts):
    assert kernel_reads(made([], [], **ts), [ROOM, 0]).shape == (CLOCKS, 0, 2)


def test_times_that_cannot_be_are_no_trouble():
    runs = planted(SECOND)
    for first, last in ((2**63 - 1, 2**63 - 1), (-(2**63), 2**63 - 1), (2**63 - 1, -(2**63))):
        ts = np.full(len(runs.first), last, np.int64)
        ts[0] = first
        found = kernel_reads(dataclasses.replace(runs, ts=ts), [ROOM], 0)
        assert (found[:, :2, 0] == [HOT, SCANNED]).all()


# The answer for a recording.


def answered(world, folder, pages, samples=(), targets=ONE, shared=None):
    tables = {**world.tables, "samples": list(samples)}
    name = f"{random.random()}.trace"
    with make_trace(folder / name, tables, targets=targets, clock=world.clock) as trace:
        return answer_memory(trace, [count * PAGE for count in pages], None, 0, shared)


def pages_of(frame):
    return frame[["two-lists_pages", LOW, HIGH]].to_numpy().tolist()


def test_an_answer_has_the_least_and_the_most_of_each_epoch(tmp_path):
    found = answered(scanned(700_000_000), tmp_path, [ROOM, 2000])
    assert pages_of(found.reads) == [
        *([HOT] * 3, [SCANNED] * 3, [0, 0, HOT]),
        *([HOT] * 3, [SCANNED] * 3, [0, 0, 0]),
    ]
    # The run takes 0.7 s; the kernel may know of the active pages at each quarter of it.
    assert found.reads[BY_CLOCK][2][:4] == [0, HOT, HOT, HOT]
    assert found.clocks_ns[1:4] == [found.reading_ns // 4 * number for number in (1, 2, 3)]


def test_targets_that_share_a_limit_have_the_least_and_the_most_together(tmp_path):
    world = scanned(700_000_000, PEER)
    found = answered(world, tmp_path, [ROOM], targets=TWO, shared=True)
    by_target = dict(iter(found.reads.groupby("target")))
    assert pages_of(by_target["job"]) == [[HOT] * 3, [0] * 3, [0, 0, HOT]]
    assert pages_of(by_target["peer"]) == [[0] * 3, [SCANNED] * 3, [0] * 3]
    all_of = HOT + SCANNED
    assert pages_of(found.sums) == [[all_of, all_of, all_of + HOT]]
    apart = answered(world, tmp_path, [ROOM], targets=TWO, shared=False)
    assert apart.sums.empty and list(apart.sums) == list(found.sums)
    assert pages_of(apart.reads) == [[count] * 3 for count in (HOT, 0, 0, 0, SCANNED, 0)]


def test_the_error_on_the_recording_has_a_range(tmp_path):
    world = scanned(700_000_000)
    found = answered(world, tmp_path, [ROOM], [sample("job", "cgroup_memory_max", ROOM * PAGE)])
    read = HOT + SCANNED
    assert (found.error, found.error_low) == ({"job": 0}, {"job": 0})
    assert found.error_high == {"job": pytest.approx(HOT / read)}
    said = " ".join(basis(found))
    assert (
        "at its limit of 160.0 KiB, the kernel's model reads as much as was read"
        " (as much to 2.9 % more, depending on when its statistics are brought up to date)."
    ) in said
    free = answered(world, tmp_path, [ROOM])
    assert free.error == free.error_low == free.error_high == {"job": 0}
    assert "the kernel's model reads as much as was read." in " ".join(basis(free))


@pytest.mark.parametrize("seed", range(4))
def test_a_number_lies_in_its_range(tmp_path, seed):
    numbers, world = random.Random(seed), PageEvents()
    for epoch in range(3):
        for _ in range(60):
            tid = numbers.choice([JOB, PEER])
            world.now += numbers.choice([0, 0, 100_000_000])
            for page in range(first := numbers.randrange(60), first + numbers.choice([1, 30])):
                world.read(page, 1, tid, tid)
        for tid in (JOB, PEER):
            world.end_epoch(epoch, tid)
    samples = [
        {**sample(name, "cgroup_memory_max", 90 * PAGE), "instance": "/pod"}
        for name in ("job", "peer")
    ]
    found = answered(world, tmp_path, [40, 70, 100], samples, TWO, True)
    for frame in (found.reads, found.sums):
        assert (frame[LOW] <= frame["two-lists_pages"]).all()
        assert (frame["two-lists_pages"] <= frame[HIGH]).all()
        assert (frame[LOW] < frame[HIGH]).any()
    for name, error in found.error.items():
        assert found.error_low[name] <= error <= found.error_high[name]
    # All epochs and both targets have one clock.
    added = found.reads.groupby("memory_bytes")[[LOW, HIGH]].sum().reset_index()
    assert (added[LOW] <= found.sums[LOW]).all() and (found.sums[HIGH] <= added[HIGH]).all()


def test_a_mean_has_the_range_of_its_clocks():
    """Each later epoch reads 0 or 30 pages, both together 30 with any clock but one."""
    later = np.array([[0, 30], [30, 0], [0, 30], [30, 0], [20, 30]])
    by_clock = np.column_stack([np.full(5, 9), later])
    names = ("two-lists", "lru", "min", "resident")
    frame = pd.DataFrame(
        {
            **{f"{name}_pages": by_clock[0] for name in (*names, "used", "recorded")},
            **ranged(by_clock),
            "epoch": [0, 1, 2],
            "partial": pd.array([False] * 3, "boolean"),
            "memory_bytes": PAGE,
            "cache_bytes": PAGE,
        }
    )
    assert frame[[LOW, HIGH]].to_numpy().tolist() == [[9, 9], [0, 30], [0, 30]]
    assert summed(frame).tolist() == [39, 39, 39, 39, 59]
    first, mean = rows(frame, 1 << 20)
    assert first[-2:] == (9, 9) and mean[-2:] == (15, 25)
