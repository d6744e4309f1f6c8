"""The paper's model at one capacity: closed forms and what it assumes."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.streams import numbered
from tracer.analysis.flushlayer import devices, one_capacity
from tracer.analysis.flushlayer.policies import POLICIES
from tracer.analysis.flushlayer.policies.operations import PAST, READ, WRITE
from tracer.analysis.flushlayer.trace.accesses import Accesses
from tracer.probes.errors import UsageError

PCM = devices.find_device("pcm-paper", "nvm")
HDD = devices.find_device("hdd-paper", "disk")
MEDIA = 350 / 8_000_000


def accesses(pages):
    return Accesses(*numbered(pages), {}, {}, 0)


def simulate(pages, capacity):
    return one_capacity.simulate(accesses(pages), capacity, PCM, HDD)


def test_no_layer_improves_nothing():
    result = simulate([1, 2, 1, 2], 0)
    assert (result.improvement, result.improvement_with_drain) == (0, 0)
    assert (result.disk_writes, result.resident_pages) == (4, 0)


def test_a_layer_that_holds_every_page_writes_none_until_the_drain():
    pages = [1, 2, 3, 1, 2, 1, 1, 3]
    result = simulate(pages, 3)
    assert result.disk_writes == 0
    assert result.improvement == pytest.approx(1 - MEDIA)
    assert result.improvement_with_drain == pytest.approx(1 - 3 / 8 - MEDIA)


def test_a_cyclic_scan_with_one_page_too_few_never_hits():
    scan = list(range(23)) * 7
    result = simulate(scan, 22)
    assert result.disk_writes == len(scan) - 22
    assert simulate(scan, 23).disk_writes == 0


def test_the_result_has_the_papers_symbols():
    result = simulate([5, 5, 6, 7, 5], 2)
    # 5, 5 hit, 6, 7 evicts 5, 5 evicts 6
    assert (result.requests, result.unique_pages, result.disk_writes) == (5, 3, 2)
    assert result.improvement == pytest.approx(1 - 2 / 5 - MEDIA)


@pytest.mark.parametrize(
    ("buffer", "pages", "op", "other", "of_min", "of_other"),
    [
        ("write-only", [0, 0, 1, 2, 1, 0], [WRITE] * 6, "lfu", 2, 2),
        # MIN evicts page 0, which is dirty; LFU evicts page 1, which was only read.
        ("read-write", [0, 0, 1, 2, 1, 0], [WRITE, WRITE, READ, *[WRITE] * 3], "lfu", 2, 1),
        # MIN evicts page 1, which a write past the layer replaces next; LRU evicts page 0.
        ("sync-only", [0, 1, 2, 1, 1], [WRITE, WRITE, WRITE, PAST, WRITE], "lru", 3, 2),
    ],
)
def test_min_is_called_a_bound_of_d_only_if_it_is_one(buffer, pages, op, other, of_min, of_other):
    asked = accesses(pages), 2, PCM, HDD
    ops = np.array(op, np.uint8)
    least, beside = (one_capacity.simulate(*asked, policy, ops) for policy in ("min", other))
    assert (least.disk_writes, beside.disk_writes) == (of_min, of_other)
    assert (least.improvement < beside.improvement) == (of_min > of_other)
    said = " ".join(one_capacity.assumptions(PCM, HDD, "min", buffer))
    assert "no policy misses less often" in said
    assert ("no policy has a smaller D" in said) == (buffer == "write-only")
    assert ("another policy may have a smaller D" in said) == (buffer != "write-only")


def test_no_write_backs_have_no_improvement():
    result = simulate([], 10)
    assert (result.requests, result.improvement, result.improvement_with_drain) == (0, None, None)


@settings(deadline=None)
@given(st.lists(st.integers(0, 30), min_size=1, max_size=200))
def test_a_larger_layer_never_writes_more(pages):
    written = [simulate(pages, capacity).disk_writes for capacity in range(33)]
    assert written == sorted(written, reverse=True)


@settings(deadline=None)
@given(st.lists(st.integers(0, 9), max_size=100), st.integers(1, 12))
def test_every_first_write_is_destaged_or_resident(pages, capacity):
    result = simulate(pages, capacity)
    assert result.disk_writes + result.resident_pages >= result.unique_pages
    assert result.resident_pages == min(capacity, result.unique_pages)


@pytest.mark.parametrize("policy", POLICIES)
def test_any_policy_has_the_closed_forms(policy):
    pages = accesses([1, 2, 3, 1, 2, 1, 1, 3])
    assert one_capacity.simulate(pages, 0, PCM, HDD, policy).improvement == 0
    held = one_capacity.simulate(pages, 3, PCM, HDD, policy)
    assert held.improvement == pytest.approx(1 - MEDIA)
    assert held.improvement_with_drain == pytest.approx(1 - 3 / 8 - MEDIA)


def test_an_unknown_policy_is_refused():
    with pytest.raises(UsageError, match="no policy 'mru'"):
        one_capacity.simulate(accesses([1]), 1, PCM, HDD, "mru")


def test_assumptions_name_the_latencies():
    said = " ".join(one_capacity.assumptions(PCM, HDD))
    assert "8 ms" in said
    assert "350 ns" in said
    assert math.isclose(HDD.write_ns / 1e6, 8)
    assert "write-only buffer (" in said and "lru (" in said
    assert "sync-only buffer (" in " ".join(
        one_capacity.assumptions(PCM, HDD, "sieve", "sync-only")
    )
