"""LRU at every capacity in one pass, against LRU at each."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support import slow_caches as slow
from tests.support.page_runs import drawn, made
from tracer.analysis.memory.lru import lru_misses
from tracer.analysis.memory.page_runs import READ, REMOVE, WRITE
from tracer.probes.errors import UsageError


def assert_same(runs, capacities):
    found = lru_misses(runs, capacities)
    assert found.accessed.tolist() == runs.accessed().tolist()
    wanted = np.broadcast_to(capacities, (runs.tenants, np.shape(capacities)[-1]))
    for at in range(wanted.shape[1]):
        missed, cold = slow.lru_misses(runs, wanted[:, at].tolist())
        assert found.missed[:, at].tolist() == missed.tolist()
        assert found.cold.tolist() == cold.tolist()


@settings(deadline=None)
@given(seed=st.integers(0, 2**32), tenants=st.integers(1, 3))
def test_reads_and_writes_of_several_tenants(seed, tenants):
    runs = drawn(seed, 80, [1, 7, 20], tenants=tenants)
    assert_same(runs, range(30))


def test_tenants_have_capacities_of_their_own():
    runs = drawn(3, 200, [10, 30], tenants=2)
    assert_same(runs, np.array([[5, 0, 12, 40], [3, 7, 30, 1]]))


def test_long_runs_over_several_blocks_of_places():
    runs = drawn(4, 300, [3000, 700], groups=2, longest=1500)
    assert_same(runs, [1, 100, 699, 700, 2000, 2999, 3000, 3500, 3700])


@pytest.mark.slow
def test_places_that_are_numbered_anew():
    runs = drawn(5, 6000, [300, 500], longest=200)  # there are 65,536 places
    assert runs.pages.sum() > 5 * 65_536
    assert_same(runs, [0, 1, 17, 299, 300, 400, 799, 800])


@settings(deadline=None)
@given(seed=st.integers(0, 2**32))
def test_misses_fall_with_the_capacity_down_to_the_cold_ones(seed):
    runs = drawn(seed, 60, [9, 14])
    found = lru_misses(runs, range(25))
    assert np.all(np.diff(found.missed, axis=1) <= 0)
    assert found.missed[:, 0].tolist() == found.accessed.tolist()
    assert found.missed[:, -1].tolist() == found.cold.tolist()


def test_a_loop_over_one_page_too_many_misses_everything():
    runs = made([(0, 0, 23, READ)] * 7, sizes=[23])
    assert lru_misses(runs, [22, 23]).missed.tolist() == [[23 * 7, 23]]


def test_a_write_makes_a_page_cached_and_misses_nothing():
    runs = made([(0, 0, 4, WRITE), (0, 2, 2, READ)], sizes=[4])
    found = lru_misses(runs, [1, 2])
    assert (found.accessed.tolist(), found.cold.tolist()) == ([2], [0])
    assert found.missed.tolist() == [[2, 0]]


def test_a_removed_page_is_new_again_and_makes_room():
    runs = made([(0, 0, 3, READ), (0, 1, 1, REMOVE), (0, 3, 1, READ), (0, 0, 4, READ)], sizes=[4])
    found = lru_misses(runs, [2, 3, 4])
    # With 3 pages, page 3 takes the free place. Page 0 is still there; page 1 evicts page 2.
    assert found.missed.tolist() == [[8, 7, 5]]
    assert found.cold.tolist() == [5]


def test_a_page_is_removed_for_each_tenant():
    reads = [(0, 0, 2, READ, 0, tenant, tenant) for tenant in range(2)]
    runs = made([*reads, (0, 0, 1, REMOVE, 0, 1, 0), *reads], sizes=[2])
    assert lru_misses(runs, [2]).missed.tolist() == [[3], [3]]


def test_no_accesses_have_no_misses():
    assert lru_misses(made([], sizes=[]), [1, 2]).missed.shape == (0, 2)


@pytest.mark.parametrize("capacities", [[-1], [[1], [2]], 3])
def test_capacities_that_cannot_be_are_refused(capacities):
    with pytest.raises(UsageError):
        lru_misses(made([(0, 0, 1, READ)], sizes=[1]), capacities)
