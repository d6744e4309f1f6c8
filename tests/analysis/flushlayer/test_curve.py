"""The model curve: closed forms, equality with single runs, the inverse, thinning."""

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.streams import numbered, zipf
from tracer.analysis.flushlayer.curves.every_capacity import (
    curve,
    improvements,
    smallest_capacity,
    spread,
    thinned,
)
from tracer.analysis.flushlayer.policies import POLICIES, simulate
from tracer.probes.errors import UsageError

pytestmark = pytest.mark.slow

NVM, DISK = 350.0, 8_000_000.0
MEDIA = NVM / DISK
PAGES = [1, 2, 3, 1, 2, 1, 1, 3, 4, 1]  # N 10, U 4


def of(policy, pages, **how):
    page, unique = numbered(pages)
    return curve(policy, page, unique, **how)


@pytest.mark.parametrize("policy", POLICIES)
def test_the_closed_forms(policy):
    frame = improvements(of(policy, PAGES, capacities=[0, 4, 9]), NVM, DISK)
    assert frame["capacity_pages"].tolist() == [0, 4, 9]
    none, all_of_them, more = frame.itertuples(index=False)
    assert (none.improvement, none.improvement_with_drain, none.disk_writes) == (0, 0, 10)
    for row in (all_of_them, more):
        assert (row.disk_writes, row.resident) == (0, 4)
        assert row.improvement == pytest.approx(1 - MEDIA)
        assert row.improvement_with_drain == pytest.approx(1 - 4 / 10 - MEDIA)


@settings(deadline=None)
@given(st.lists(st.tuples(st.integers(0, 9), st.integers(0, 4)), max_size=80))
def test_a_curve_is_what_single_runs_say(stream):
    page, unique = numbered(p for p, _ in stream)
    op = np.array([kind for _, kind in stream], np.uint8)
    for policy in POLICIES:
        whole = curve(policy, page, unique, range(unique + 3), op)
        runs = [simulate(policy, page, unique, c, op) for c in range(unique + 3)]
        assert whole.resident.tolist() == [run.resident for run in runs]
        assert whole.read_hits.tolist() == [run.read_hits for run in runs]
        disk_writes = improvements(whole, NVM, DISK)["disk_writes"]
        assert disk_writes.tolist() == [run.disk_writes for run in runs]


def test_lru_has_every_capacity_and_others_a_spread_of_them():
    page, unique = zipf(3_000, 300, 0.8)
    assert curve("lru", page, unique).capacity.tolist() == list(range(unique + 1))
    few = curve("sieve", page, unique).capacity
    assert (few[0], few[-1], len(few)) == (1, unique, len(spread(unique)))
    assert len(few) <= 64


def test_writes_past_the_layer_pass_no_medium():
    page, unique = numbered([1, 2, 1, 1])
    op = np.array([0, 2, 0, 2], np.uint8)
    frame = improvements(curve("lru", page, unique, [2], op), NVM, DISK)
    assert frame["disk_writes"].tolist() == [2]
    assert frame["improvement"].tolist() == pytest.approx([1 - 2 / 4 * MEDIA - 2 / 4])


def test_a_size_in_bytes_is_that_of_the_pages():
    frame = improvements(of("lru", PAGES), NVM, DISK, page_bytes=16384)
    assert frame["capacity_bytes"].tolist() == [0, 16384, 32768, 49152, 65536]


def test_the_smallest_capacity_for_an_improvement():
    frame = improvements(of("lru", PAGES), NVM, DISK)
    for column in ("improvement", "improvement_with_drain"):
        for row in frame.itertuples():
            wanted = getattr(row, column)
            found = smallest_capacity(frame, wanted, column)
            assert found == min(frame.loc[frame[column] >= wanted, "capacity_pages"])
    assert smallest_capacity(frame, 1 - MEDIA) == 4
    assert smallest_capacity(frame, 0.99) == 4
    assert smallest_capacity(frame, 0.0) == 0
    assert smallest_capacity(frame, 1.0) is None
    assert smallest_capacity(frame, 0.61, "improvement_with_drain") is None


def test_no_writes_have_no_improvement():
    frame = improvements(of("lru", []), NVM, DISK)
    assert frame["improvement"].isna().all()
    assert smallest_capacity(frame, 0.0) is None
    assert len(of("fifo", []).capacity) == 0


def test_a_thinned_curve_keeps_its_ends_and_its_steps():
    capacity = np.arange(100_000)
    frame = pd.DataFrame({"capacity_pages": capacity, "improvement": 0.9 * (capacity > 70_000)})
    few = thinned(frame, 100)
    assert len(few) <= 100
    assert few.index[[0, -1]].tolist() == [0, 99_999]
    assert 70_001 in few.index
    assert thinned(few, 100) is few


def test_capacities_are_put_in_order_once_each():
    assert of("fifo", PAGES, capacities=[3, 1, 3]).capacity.tolist() == [1, 3]


def test_impossible_arguments_are_refused():
    with pytest.raises(UsageError, match="capacity of -2 pages"):
        of("lru", PAGES, capacities=[-2, 5])
    with pytest.raises(UsageError, match="no policy"):
        of("best", PAGES)
