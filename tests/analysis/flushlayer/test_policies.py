"""Every policy against a slow one, on every small stream; what holds of all of them."""

from dataclasses import replace
from functools import cache
from itertools import product
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.slow_policies import SLOW, run
from tests.support.streams import every_stream, numbered, zipf
from tracer.analysis.flushlayer.policies import POLICIES, catalogue, lru, outcomes, simulate
from tracer.probes.errors import BadTrace, UsageError

DOC = Path(__file__).parents[3] / "docs" / "what-if.md"

pytestmark = pytest.mark.slow

WRITE, READ, PAST, LOOK, PAST_PART = range(5)
each_policy = pytest.mark.parametrize("policy", POLICIES)

accesses = st.lists(
    st.tuples(st.integers(0, 14), st.sampled_from([WRITE, WRITE, READ, PAST, LOOK])), max_size=120
)


def split(stream):
    page, unique = numbered(p for p, _ in stream)
    return page, unique, np.array([kind for _, kind in stream], np.uint8)


def assert_same(policy, page, unique, capacity, op=None):
    fast = outcomes(policy, page, unique, capacity, op)
    slow = run(policy, min(capacity, unique), page.tolist(), None if op is None else op.tolist())
    assert fast.found.tolist() == slow.found
    assert fast.victim.tolist() == slow.victim
    counts = fast.counts
    assert (counts.destaged, counts.overwritten, counts.dropped, counts.resident) == (
        slow.destaged,
        slow.overwritten,
        slow.dropped,
        slow.resident,
    )
    kinds = [WRITE] * len(page) if op is None else op.tolist()
    hits = [kind for kind, found in zip(kinds, slow.found, strict=True) if found & 1]
    assert counts.write_hits == hits.count(WRITE)
    assert counts.read_hits == hits.count(READ) + hits.count(LOOK)
    assert simulate(policy, page, unique, capacity, op) == counts


def test_there_is_a_slow_one_of_each():
    assert SLOW.keys() == POLICIES.keys()


@each_policy
def test_every_stream_of_eight_writes_over_three_pages(policy):
    streams = list(every_stream(8, 3))
    assert len(streams) == sum((3 ** (n - 1) + 1) // 2 for n in range(1, 9))
    for pages in streams:
        page, unique = numbered(pages)
        for capacity in (1, 2, 3):
            assert_same(policy, page, unique, capacity)


@each_policy
def test_every_operation_on_every_stream_of_four_accesses(policy):
    for pages in every_stream(4, 3):
        page, unique = numbered(pages)
        for kinds in product((WRITE, READ, PAST, LOOK), repeat=len(pages)):
            for capacity in (1, 2):
                assert_same(policy, page, unique, capacity, np.array(kinds, np.uint8))


@each_policy
@settings(deadline=None)
@given(stream=accesses, capacity=st.integers(1, 16))
def test_reads_and_writes_past_the_layer(policy, stream, capacity):
    assert_same(policy, *split(stream)[:2], capacity, split(stream)[2])


@each_policy
@settings(deadline=None)
@given(stream=accesses, capacity=st.integers(0, 16), places=st.sets(st.integers(0, 119)))
def test_a_write_past_the_layer_of_a_part_of_a_page_changes_nothing_in_it(
    policy, stream, capacity, places
):
    page, unique, op = split(stream)
    parts = np.array([n in places for n in range(len(op))], bool)
    without = outcomes(policy, page[~parts], unique, capacity, op[~parts])
    op[parts] = PAST_PART
    made = outcomes(policy, page, unique, capacity, op)
    assert made.found[~parts].tolist() == without.found.tolist()
    assert made.victim[~parts].tolist() == without.victim.tolist()
    assert set(made.found[parts]) <= {0} and set(made.victim[parts]) <= {-1}
    past = without.counts.past + int(parts.sum())
    assert made.counts == replace(without.counts, past=past)
    assert simulate(policy, page, unique, capacity, op) == made.counts


@each_policy
@pytest.mark.parametrize("skew", [0.4, 1.1])
def test_queues_that_wrap_and_are_squeezed(policy, skew):
    page, unique = zipf(3_000, 120, skew, seed=7)
    op = np.random.default_rng(8).choice(4, len(page), p=[0.6, 0.2, 0.15, 0.05]).astype(np.uint8)
    for capacity in (1, 7, 40, 90):
        assert_same(policy, page, unique, capacity)
        assert_same(policy, page, unique, capacity, op)


@each_policy
@settings(deadline=None)
@given(stream=accesses, capacity=st.integers(0, 16))
def test_each_written_page_is_overwritten_dropped_destaged_or_resident(policy, stream, capacity):
    page, unique, op = split(stream)
    counts = simulate(policy, page, unique, capacity, op)
    went = counts.overwritten + counts.dropped + counts.destaged + counts.resident
    assert counts.writes == went
    assert counts.writes + counts.past == np.isin(op, (WRITE, PAST)).sum()
    assert counts.reads == np.isin(op, (READ, LOOK)).sum()
    assert counts.resident <= capacity


@each_policy
def test_no_layer_sends_every_write_to_the_disk(policy):
    page, unique = numbered([1, 2, 1, 1])
    counts = simulate(policy, page, unique, 0)
    assert (counts.writes, counts.past, counts.disk_writes, counts.resident) == (0, 4, 4, 0)


@each_policy
def test_a_layer_with_room_for_all_destages_nothing(policy):
    page, unique = zipf(500, 60, 0.5)
    for capacity in (unique, unique + 1, 10**15):
        counts = simulate(policy, page, unique, capacity)
        assert (counts.destaged, counts.resident) == (0, unique)
        assert counts.misses == unique


@each_policy
def test_an_empty_stream(policy):
    counts = simulate(policy, np.empty(0, np.int32), 0, 5)
    assert (counts.writes, counts.disk_writes, counts.resident) == (0, 0, 0)


def test_a_cyclic_scan_with_one_page_too_few_never_hits_under_lru():
    page, unique = numbered(list(range(23)) * 7)
    assert simulate("lru", page, unique, 22).write_hits == 0
    assert simulate("min", page, unique, 22).write_hits == 23 * 7 - 23 - 6
    assert simulate("lru", page, unique, 23).write_hits == 23 * 6


@settings(deadline=None)
@given(st.lists(st.integers(0, 14), max_size=150), st.integers(1, 16))
def test_min_misses_no_more_than_any(pages, capacity):
    page, unique = numbered(pages)
    least = simulate("min", page, unique, capacity)
    for policy in POLICIES:
        counts = simulate(policy, page, unique, capacity)
        assert least.misses <= counts.misses
        assert least.destaged <= counts.destaged


def fewest_misses(pages, capacity):
    """The least of every way to choose who leaves."""

    @cache
    def after(at, resident):
        if at == len(pages):
            return 0
        page = pages[at]
        if page in resident:
            return after(at + 1, resident)
        if len(resident) < capacity:
            return 1 + after(at + 1, resident | {page})
        return 1 + min(after(at + 1, resident - {gone} | {page}) for gone in resident)

    return after(0, frozenset())


def test_min_is_the_least_of_all_choices():
    for pages in every_stream(8, 4):
        page, unique = numbered(pages)
        for capacity in (1, 2, 3):
            assert simulate("min", page, unique, capacity).misses == fewest_misses(
                tuple(pages), capacity
            )


def test_min_is_not_the_least_of_destages_where_pages_are_read():
    # For page 2, MIN gives up dirty page 1, LFU page 0, which is clean but needed sooner.
    page = np.array([0, 1, 1, 2, 0, 1], np.int32)
    op = np.array([READ, WRITE, WRITE, READ, READ, WRITE], np.uint8)
    assert (simulate("min", page, 3, 2, op).misses, simulate("lfu", page, 3, 2, op).misses) == (
        4,
        4,
    )
    assert simulate("min", page, 3, 2, op).destaged == 1
    assert simulate("lfu", page, 3, 2, op).destaged == 0


def test_sums_of_one_stream():
    page, unique = numbered([5, 6, 5, 6, 7, 5, 5])
    op = np.array([WRITE, READ, WRITE, WRITE, PAST, PAST, LOOK], np.uint8)
    counts = simulate("lru", page, unique, 2, op)
    assert (counts.writes, counts.write_hits, counts.overwritten) == (3, 2, 1)
    assert (counts.reads, counts.read_hits, counts.past, counts.dropped) == (2, 0, 2, 1)
    assert (counts.destaged, counts.resident, counts.disk_writes) == (0, 1, 2)
    assert counts.misses == 3


def test_lru_says_what_reaches_the_disk_and_what_is_left():
    page, unique = numbered([5, 5, 6, 7, 5])
    assert lru(page, unique, 2) == (2, 2)
    assert lru(page, unique, 0) == (5, 0)


def test_an_unknown_policy_names_those_there_are():
    with pytest.raises(UsageError, match=r"no policy 'mru'; known: fifo, lru, .*min"):
        simulate("mru", np.zeros(1, np.int32), 1, 1)


def test_each_policy_says_what_it_does():
    assert len(catalogue.lines()) == len(POLICIES) == 10
    assert all(policy.description and policy.source for policy in POLICIES.values())


def test_the_documentation_has_the_parameters_and_sources_of_every_policy():
    rows = [policy.row for policy in POLICIES.values()]
    assert "\n".join(rows) in DOC.read_text()


@pytest.mark.parametrize(
    ("page", "op", "said"),
    [
        (np.array([0, 3], np.int32), None, r"not all in 0 \.\. 1"),
        (np.array([-1, 0], np.int32), None, r"not all in 0 \.\. 1"),
        (np.array([0, 1], np.int64), None, "int64, not int32"),
        (np.array([0, 1], np.int32), np.zeros(1, np.uint8), "one operation byte per access"),
        (np.array([0, 1], np.int32), np.full(2, 5, np.uint8), "no operation 5"),
    ],
)
def test_a_stream_that_cannot_be_is_refused(page, op, said):
    with pytest.raises(BadTrace, match=said):
        simulate("arc", page, 2, 1, op)


def test_a_negative_capacity_is_refused():
    with pytest.raises(UsageError, match="capacity of -1 pages"):
        simulate("fifo", np.zeros(1, np.int32), 1, -1)
