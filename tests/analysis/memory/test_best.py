"""MIN against each way to evict, and against the other models."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support import slow_caches as slow
from tests.support.page_runs import drawn, made
from tracer.analysis.memory.best import best_misses
from tracer.analysis.memory.lru import lru_misses
from tracer.analysis.memory.page_runs import READ, REMOVE, WRITE
from tracer.analysis.memory.resident import resident_misses
from tracer.analysis.memory.two_lists import lru_with_read_ahead, two_lists


@settings(deadline=None, max_examples=60)
@given(seed=st.integers(0, 2**32), capacity=st.integers(1, 4))
def test_no_way_to_evict_misses_fewer_pages(seed, capacity):
    runs = drawn(seed, 8, [2, 5], groups=1, longest=2)
    assert best_misses(runs, [capacity]).sum() == slow.fewest_misses(runs, capacity)


@pytest.mark.slow
def test_long_streams_whose_heap_is_cleared():
    for seed in range(20):
        runs = drawn(seed, 200, [3, 4], groups=1, longest=2)
        assert best_misses(runs, [3]).sum() == slow.fewest_misses(runs, 3)


@settings(deadline=None)
@given(seed=st.integers(0, 2**32), tenants=st.integers(1, 2))
def test_no_model_reads_fewer_pages(seed, tenants):
    runs = drawn(seed, 60, [3, 60], tenants=tenants)
    for capacity in (1, 2, 9, 40, 63):
        least = best_misses(runs, [capacity]).sum()
        assert least <= lru_misses(runs, [capacity]).missed.sum()
        assert least <= resident_misses(runs, [capacity]).sum()
        if tenants == 1:  # the others share pages between tenants
            for model in (two_lists, lru_with_read_ahead):
                assert least <= model(runs, capacity, ra_pages=0).missed.sum()
                assert least <= model(runs, capacity).read.sum()


def test_a_loop_misses_only_the_pages_that_do_not_fit():
    runs = made([(0, 0, 23, READ)] * 7, sizes=[23])
    assert best_misses(runs, [0, 22, 23]).tolist() == [[23 * 7, 23 + 6, 23]]


def test_a_page_that_is_overwritten_next_is_evicted_first():
    runs = made([(0, 0, 2, READ), (0, 2, 1, READ), (0, 0, 1, WRITE), (0, 1, 1, READ)], sizes=[3])
    assert best_misses(runs, [2]).tolist() == [[3]]


def test_a_page_that_is_removed_next_is_evicted_first():
    runs = made([(0, 0, 3, READ), (0, 0, 1, REMOVE), (0, 0, 3, READ)], sizes=[3])
    assert best_misses(runs, [0, 2, 3]).tolist() == [[6, 4, 4]]
    # It never evicts pages 0 and 1, and the removal makes room for page 0.
    assert resident_misses(runs, [0, 2, 3]).tolist() == [[6, 5, 4]]


def test_groups_and_tenants_are_counted_apart():
    runs = made([(0, 0, 3, READ, 0, t, g) for t, g in ((0, 0), (1, 1), (0, 2), (1, 3))], sizes=[3])
    assert best_misses(runs, np.array([[3], [0]])).tolist() == [[3], [3], [0], [3]]


@settings(deadline=None)
@given(seed=st.integers(0, 2**32))
def test_each_tenant_misses_as_many_pages_as_if_it_were_alone(seed):
    runs = drawn(seed, 80, [7, 20], tenants=3)
    found = best_misses(runs, [0, 1, 4, 9])
    for tenant in range(runs.tenants):
        own = (runs.tenant == tenant) & (runs.kind != REMOVE)
        columns = ("first", "pages", "file", "reader", "kind", "group")
        rows = own | (runs.kind == REMOVE)
        alone = {name: getattr(runs, name)[rows] for name in columns}
        alone |= {"tenant": np.zeros(rows.sum(), np.int32), "reader": alone["reader"] * 0}
        missed = best_misses(replace(runs, **alone), [0, 1, 4, 9])
        groups = np.unique(runs.group[own])
        assert found[groups].tolist() == missed[groups].tolist()
