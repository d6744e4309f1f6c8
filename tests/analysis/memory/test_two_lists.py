"""The kernel's two lists and LRU with read-ahead, against models in plain Python."""

import dataclasses

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support import slow_page_cache as slow
from tests.support.page_runs import drawn, made
from tests.support.slow_caches import accesses
from tracer.analysis.memory.lru import lru_misses
from tracer.analysis.memory.page_runs import FAULT, READ, WRITE
from tracer.analysis.memory.reclaim import inactive_is_low
from tracer.analysis.memory.two_lists import lru_with_read_ahead, two_lists
from tracer.probes.errors import UsageError

each_model = pytest.mark.parametrize("model", [two_lists, lru_with_read_ahead])


def assert_same(
    model, runs, capacities, ra_pages=32, io_pages=320, large_folios=True, limits=None, page_kib=4
):
    settings = ra_pages, io_pages, large_folios, limits
    fast = model(runs, capacities, *settings, page_bytes=page_kib << 10)
    kernel = model is two_lists
    missed, read, totals = slow.simulate(
        runs, list(capacities), kernel, *settings, page_kib=page_kib
    )
    assert fast.missed.tolist() == missed
    assert fast.read.tolist() == read
    for name in ("evicted", "refaulted", "activated", "unused"):
        assert getattr(fast, name).tolist() == [total[name] for total in totals]


def varied(seed):
    """Draws runs of any shape, and all arguments of a model."""
    draw = np.random.default_rng(seed)
    sizes = [[1, 7, 40], [200, 90], [300, 5, 5, 5, 64, 65]][draw.integers(3)]
    tenants = int(draw.integers(1, 3))
    rows, longest = int(draw.integers(10, 200)), int(draw.choice([2, 6, 60]))
    runs = drawn(seed, rows, sizes, tenants=tenants, longest=longest)
    if draw.random() < 0.3:
        times = draw.integers(0, 400_000_000, len(runs.first)).cumsum()
        runs = dataclasses.replace(runs, ts=times)
    if draw.random() < 0.3:
        runs = dataclasses.replace(runs, random=draw.random(runs.readers) < 0.5)
    capacities = draw.integers(0, draw.choice([40, 400]), runs.tenants)
    ra_pages, io_pages = int(draw.choice([0, 1, 4, 32, 48, 100])), int(draw.choice([0, 20, 320]))
    return runs, capacities.tolist(), ra_pages, io_pages, bool(draw.integers(2))


@each_model
@settings(deadline=None, max_examples=15)
@given(seed=st.integers(0, 2**32))
def test_reads_faults_and_writes_of_several_tenants(model, seed):
    assert_same(model, *varied(seed))


def shared(seed):
    """Draws runs of three tenants, the second and third with one limit, and all arguments."""
    draw = np.random.default_rng(seed)
    runs, _, *settings = varied(seed)
    tenant = draw.choice([0, 1, 2], len(runs.first), p=draw.dirichlet([1, 1, 1])).astype("i4")
    tenant[:3] = 0, 1, 2  # each has a run
    capacities = draw.integers(0, draw.choice([60, 400]), 2)
    # A fourth one has none, and stands between the others or beside them.
    numbers = draw.permutation(4).astype("i4")
    limits = [1, 1, 1, 1]
    limits[numbers[0]] = 0
    runs = dataclasses.replace(runs, tenant=numbers[tenant])
    return runs, capacities.tolist(), *settings, limits


@pytest.mark.parametrize("page_kib", [16, 64])
@settings(deadline=None, max_examples=15)
@given(seed=st.integers(0, 2**32))
def test_reads_faults_and_writes_of_kernels_with_larger_pages(page_kib, seed):
    assert_same(two_lists, *varied(seed), page_kib=page_kib)


@pytest.mark.parametrize(("page_kib", "evicted"), [(4, 512), (16, 2048), (64, 2048)])
def test_the_largest_folio_is_a_huge_page_or_what_the_tree_of_a_file_can_hold(page_kib, evicted):
    # One page more than fits takes the oldest folio: the first half of the file, or a part of it.
    rows = [(0, 0, 4096, WRITE), (1, 0, 1, READ)]
    runs = made(rows, sizes=[4096, 1])
    assert_same(two_lists, runs, [4096], page_kib=page_kib)
    found = two_lists(runs, 4096, ra_pages=0, page_bytes=page_kib << 10)
    assert found.evicted.tolist() == [evicted]


@settings(deadline=None, max_examples=25)
@given(seed=st.integers(0, 2**32))
def test_tenants_that_share_a_limit_have_lists_of_their_own(seed):
    assert_same(two_lists, *shared(seed))


@pytest.mark.slow
def test_many_streams_of_tenants_that_share_a_limit():
    for seed in range(120):
        assert_same(two_lists, *shared(seed))


def test_reclaim_at_a_shared_limit_takes_the_tenants_in_turn():
    # Tenant 0 has read 500 pages, tenant 1 reads on. One list of all would lose those of tenant 0
    # first; in turns, both lose pages, and tenant 1 its oldest.
    first = [(0, at, 1, READ, 0, 0) for at in range(500)]
    more = [(1, at, 1, READ, 1, 1) for at in range(600)]
    found = two_lists(made([*first, *more], [500, 600]), [600], ra_pages=0, limits=[0, 0])
    assert found.evicted.min() > 100 and 500 <= found.evicted.sum() < 600
    one = two_lists(made([*first, *more], [500, 600]).as_one([0, 0]), [600], ra_pages=0)
    assert one.evicted.sum() == pytest.approx(found.evicted.sum(), abs=50)


@pytest.mark.parametrize("number", range(3))
def test_a_tenant_without_pages_changes_reclaim_only_if_it_comes_last(number):
    # Two tenants loop over their pages. A round that begins with the last of three ends with it.
    pages = 1 << 16
    loops = [(n, at, 64, READ, n, n) for at in [*range(0, pages, 64)] * 4 for n in (0, 1)]
    runs = made(loops, [pages, pages])
    moved = np.array([at + (at >= number) for at in (0, 1)], np.int32)[runs.tenant]
    alone, beside = (
        two_lists(one, [2 * pages * 9 // 10], ra_pages=0, limits=limits).read.tolist()
        for one, limits in ((runs, [0, 0]), (dataclasses.replace(runs, tenant=moved), [0, 0, 0]))
    )
    assert (beside == alone) == (number < 2)


@each_model
def test_limits_of_one_tenant_each_change_nothing(model):
    runs = drawn(9, 200, [40, 90], tenants=3)
    alone, given = model(runs, [5, 60, 20]), model(runs, [5, 60, 20], limits=[0, 1, 2])
    assert alone.read.tolist() == given.read.tolist()


@pytest.mark.parametrize("limits", [[0], [0, 2], [0, -1], [[0, 0]], [1, 1]])
def test_limits_that_do_not_fit_the_tenants_are_refused(limits):
    runs = made([(0, 0, 1, READ, 0, 0), (0, 0, 1, READ, 0, 1)], sizes=[1])
    with pytest.raises(UsageError):
        two_lists(runs, 5, limits=limits)


@pytest.mark.slow
@each_model
def test_many_streams(model):
    for seed in range(75):
        assert_same(model, *varied(seed))


@pytest.mark.slow
@each_model
def test_a_cache_large_enough_for_the_higher_priorities(model):
    runs = drawn(11, 700, [3000, 2000, 40], kinds=(READ, READ, FAULT), longest=100)
    for capacity in (500, 2100, 4000):
        assert_same(model, runs, [capacity])


@settings(deadline=None)
@given(seed=st.integers(0, 2**32), capacity=st.integers(0, 40))
def test_lru_without_read_ahead_is_plain_lru(seed, capacity):
    runs = drawn(seed, 80, [1, 7, 20], kinds=(READ, FAULT), groups=1)
    found = lru_with_read_ahead(runs, capacity, ra_pages=0)
    assert found.missed.sum() == found.read.sum() == lru_misses(runs, [capacity]).missed.sum()


@each_model
@settings(deadline=None)
@given(seed=st.integers(0, 2**32))
def test_a_cache_of_all_pages_misses_each_page_once(model, seed):
    runs = drawn(seed, 60, [9, 40], kinds=(READ, FAULT))
    pages = {page for _, page, _ in accesses(runs)}
    alone = model(runs, 49, ra_pages=0)
    assert alone.missed.sum() == alone.read.sum() == len(pages)
    ahead = model(runs, 49)
    assert ahead.missed.sum() <= len(pages) <= ahead.read.sum() <= 49
    assert ahead.read_ahead == ahead.read.sum() - ahead.missed.sum()
    assert ahead.evicted.tolist() == [0]


@each_model
def test_a_loop_over_too_many_pages_misses_everything(model):
    loop = [(0, at, 10, READ, n) for n in range(4) for at in range(0, 1000, 10)]
    found = model(made(loop, sizes=[1000]), 900)
    assert found.read.reshape(4, 100).sum(axis=1).tolist() == [1000] * 4
    alone = model(made(loop, sizes=[1000]), 900, ra_pages=0)
    assert alone.missed.tolist() == alone.read.tolist() == [10] * 400


def test_pages_used_twice_survive_a_scan():
    # The kernel keeps the hundred pages in the active list, LRU does not.
    hot = [(0, 0, 100, READ, n) for n in range(2)]
    scan = [(1, at, 10, READ, 3) for at in range(0, 1000, 10)]
    runs = made([*hot, *scan, (0, 0, 100, READ, 4)], sizes=[100, 1000])
    assert two_lists(runs, 500).missed[-1] == 0
    assert lru_with_read_ahead(runs, 500).missed[-1] == 100


def test_a_read_that_goes_on_in_the_same_page_marks_it_once():
    # Bytes of page 0 read in two calls: the page stays inactive, so the scan evicts it.
    scan = [(1, at, 1, READ, 9) for at in range(200)]
    twice = [(0, 0, 1, READ, 0), (0, 0, 1, READ, 0)]
    opened_again = [(0, 0, 1, READ, 0), (0, 0, 1, READ, 1)]
    for reads, missed in ((twice, 1), (opened_again, 0)):
        runs = made([*reads, *scan, (0, 0, 1, READ, 2)], sizes=[1, 200])
        assert two_lists(runs, 100, ra_pages=0).missed[-1] == missed


def test_a_mapped_page_gets_another_round():
    # Reclaim at the limit of 100 looks at the oldest pages: those mapped are spared once.
    faults = [(0, at, 1, FAULT) for at in range(16)]
    scan = [(1, at, 1, READ) for at in range(100)]
    runs = made([*faults, *scan, *faults], sizes=[16, 100])
    assert two_lists(runs, 100, ra_pages=0).missed[-16:].sum() == 0
    assert lru_with_read_ahead(runs, 100, ra_pages=0).missed[-16:].sum() == 16


def test_a_page_that_comes_back_soon_becomes_active():
    # Pages 0 .. 99 are active. A page of the second file comes back after fewer evictions than
    # that, so it becomes active at once: 100 + 1 activations.
    active = [(0, 0, 100, READ, n) for n in range(2)]
    scan = [(2, at, 1, READ, 4) for at in range(100)]
    runs = made([*active, (1, 0, 1, READ, 3), *scan, (1, 0, 1, READ, 5)], [100, 1, 100])
    found = two_lists(runs, 150, ra_pages=0)
    assert (found.refaulted.tolist(), found.activated.tolist()) == ([1], [101])


def test_reclaim_frees_at_least_32_pages_at_a_time():
    runs = made([(0, at, 1) for at in range(101)], sizes=[101])
    # 100 >> 6, then 99 >> 5, 96 >> 4, 90 >> 3 and 79 >> 2: each priority sees a smaller list.
    assert two_lists(runs, 100, ra_pages=0).evicted.tolist() == [1 + 3 + 6 + 11 + 19]
    assert lru_with_read_ahead(runs, 100, ra_pages=0).evicted.tolist() == [1]


def test_a_written_page_is_read_without_the_disk():
    runs = made([(0, 0, 8, WRITE), (0, 0, 8, READ)], sizes=[8])
    found = two_lists(runs, 100)
    assert (found.missed.tolist(), found.read.tolist()) == ([0, 0], [0, 0])


def test_a_page_is_charged_to_the_tenant_that_read_it_first():
    # Tenant 1 hits the pages of tenant 0, though its own memory holds nothing.
    runs = made([(0, 0, 8, READ, 0, 0), (0, 0, 8, READ, 1, 1)], sizes=[8])
    assert two_lists(runs, [8, 0]).missed.tolist() == [8, 0]


def test_pages_read_ahead_for_nothing_are_counted():
    found = two_lists(made([(0, 0, 1)], sizes=[100]), 1000)
    assert (found.read.tolist(), found.unused.tolist()) == ([4], [3])


def test_the_inactive_list_may_be_smaller_in_larger_memories():
    for page_bits in (12, 14, 16):
        gib = 1 << 30 - page_bits
        assert inactive_is_low(99, 100, gib) and not inactive_is_low(100, 100, gib)
        assert inactive_is_low(gib // 4 - 1, gib - gib // 4 + 1, gib)  # 1 GiB: a ratio of 3
        assert not inactive_is_low(gib // 4, gib - gib // 4, gib)
        assert not inactive_is_low(gib, 9 * gib, gib)  # 10 GiB: a ratio of 10


def test_the_ratio_of_the_lists_is_that_of_their_bytes():
    # 8 GiB of pages of 64 KiB have a ratio of 8; so many pages of 4 KiB are below 1 GiB.
    assert not inactive_is_low(20_000, 111_072, 1 << 14)
    assert inactive_is_low(20_000, 111_072, 1 << 18)
    # 1.25 GiB of pages of 64 KiB, 12,000 of them active and 8,480 inactive, and a file that is read
    # once: the ratio of 3 keeps the active ones, a ratio of 1 does not.
    hot = [(0, 0, 12_000, READ, n) for n in range(2)]
    scan = [(1, at, 20, READ, 3) for at in range(0, 20_000, 20)]
    runs = made([*hot, *scan, (0, 0, 12_000, READ, 4)], sizes=[12_000, 20_000])
    for page_bytes, missed in ((4096, True), (65536, False)):
        found = two_lists(runs, 20_480, ra_pages=0, page_bytes=page_bytes)
        assert (found.missed[-1] > 0) == missed


@pytest.mark.parametrize("capacity", [-1, [1, 2, 3], [[1]]])
def test_capacities_that_cannot_be_are_refused(capacity):
    with pytest.raises(UsageError):
        two_lists(made([(0, 0, 1)], sizes=[1]), capacity)


def test_numbers_of_pages_below_0_are_refused():
    with pytest.raises(UsageError):
        two_lists(made([(0, 0, 1)], sizes=[1]), 1, ra_pages=-1)


@each_model
def test_no_accesses_read_nothing(model):
    found = model(made([], sizes=[]), 10)
    assert (len(found.missed), found.read_ahead) == (0, 0)
