"""LRU at every capacity in one pass, against LRU at each."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.streams import every_stream, numbered, zipf
from tracer.analysis.flushlayer.curves.stack_distances import lru_counts
from tracer.analysis.flushlayer.policies import simulate
from tracer.probes.errors import BadTrace


def assert_same(page, unique, op=None, capacities=None):
    counts = lru_counts(page, unique, op)
    assert len(counts.destaged) == unique + 1
    for capacity in range(1, unique + 1) if capacities is None else capacities:
        one = simulate("lru", page, unique, capacity, op)
        assert (one.destaged, one.resident, one.write_hits, one.read_hits) == (
            counts.destaged[capacity],
            counts.resident[capacity],
            counts.write_hits[capacity],
            counts.read_hits[capacity],
        )


def test_every_stream_of_eight_writes_over_three_pages():
    for pages in every_stream(8, 3):
        assert_same(*numbered(pages))


@settings(deadline=None)
@given(st.lists(st.tuples(st.integers(0, 20), st.integers(0, 3)), max_size=200))
def test_reads_and_writes_past_the_layer(stream):
    page, unique = numbered(p for p, _ in stream)
    assert_same(page, unique, np.array([kind for _, kind in stream], np.uint8))


def test_places_that_are_numbered_anew():
    page, unique = zipf(300_000, 700, 0.7)  # there are 65,536 places
    op = np.random.default_rng(1).choice(4, len(page), p=[0.5, 0.3, 0.1, 0.1]).astype(np.uint8)
    capacities = [1, 2, 50, 333, unique - 1, unique]
    assert_same(page, unique, None, capacities)
    assert_same(page, unique, op, capacities)


def test_more_pages_than_places_of_a_block():
    page, unique = zipf(60_000, 30_000, 0.3)
    assert_same(page, unique, None, [1, 511, 512, 513, 9_000, unique])


def test_ids_that_no_access_has():
    page = np.array([7, 3, 7, 3], np.int32)
    assert_same(page, 10)


def test_no_layer_holds_nothing():
    counts = lru_counts(*numbered([1, 1, 2]))
    assert [array[0] for array in (counts.destaged, counts.resident, counts.write_hits)] == [0] * 3


@pytest.mark.parametrize("op", [None, np.empty(0, np.uint8)])
def test_an_empty_stream(op):
    counts = lru_counts(np.empty(0, np.int32), 0, op)
    assert counts.destaged.tolist() == counts.resident.tolist() == [0]


def test_a_page_re_read_before_it_leaves_is_destaged_once():
    # Written, found at depth 3 by a read, then left at depth 2: layers of 2 wrote it, of 3 hold it.
    page, unique = numbered([0, 1, 2, 0, 1])
    counts = lru_counts(page, unique, np.array([0, 1, 1, 1, 1], np.uint8))
    assert counts.destaged.tolist() == [0, 1, 1, 0]
    assert counts.resident.tolist() == [0, 0, 0, 1]


def test_a_stream_that_cannot_be_is_refused():
    with pytest.raises(BadTrace):
        lru_counts(np.array([1], np.int32), 1)
