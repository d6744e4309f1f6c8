"""The paper's model: closed forms, brute force, and what counts as a page write-back."""

import math
from collections import OrderedDict

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from analysis.flushlayer import devices, paper
from analysis.flushlayer.accesses import Accesses, page_writebacks
from analysis.flushlayer.policies import lru
from probes.errors import BadTrace, UsageError
from tests.support.traces import make_trace

PCM = devices.find("pcm-paper", "nvm")
HDD = devices.find("hdd-paper", "disk")
MEDIA = 350 / 8_000_000


def accesses(pages):
    dense = {page: number for number, page in enumerate(dict.fromkeys(pages))}
    ids = np.array([dense[p] for p in pages], np.int32)
    return Accesses(ids, len(dense), {}, {}, 0)


def simulate(pages, capacity):
    return paper.simulate(accesses(pages), capacity, PCM, HDD)


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


def test_the_papers_parameters_are_the_defaults():
    assert (PCM.write_ns, HDD.write_ns) == (350, 8_000_000)
    assert (PCM.confidence, HDD.confidence) == ("paper", "paper")


def test_the_result_has_the_papers_symbols():
    result = simulate([5, 5, 6, 7, 5], 2)
    # 5, 5 hit, 6, 7 evicts 5, 5 evicts 6
    assert (result.requests, result.unique_pages, result.disk_writes) == (5, 3, 2)
    assert result.improvement == pytest.approx(1 - 2 / 5 - MEDIA)


def test_no_write_backs_have_no_improvement():
    result = simulate([], 10)
    assert (result.requests, result.improvement, result.improvement_with_drain) == (0, None, None)


def reference(pages, capacity):
    """LRU by an ordered dictionary."""
    resident, destaged = OrderedDict(), 0
    for page in pages:
        if page in resident:
            resident.move_to_end(page)
        else:
            if len(resident) == capacity:
                resident.popitem(last=False)
                destaged += 1
            resident[page] = None
    return destaged, len(resident)


@given(st.lists(st.integers(0, 9), max_size=200), st.integers(1, 12))
def test_lru_equals_an_ordered_dictionary(pages, capacity):
    a = accesses(pages)
    assert lru(a.page, a.unique, capacity) == reference(a.page.tolist(), capacity)


@given(st.lists(st.integers(0, 30), min_size=1, max_size=200))
def test_a_larger_layer_never_writes_more(pages):
    written = [simulate(pages, capacity).disk_writes for capacity in range(33)]
    assert written == sorted(written, reverse=True)


@given(st.lists(st.integers(0, 9), max_size=100), st.integers(1, 12))
def test_every_first_write_is_destaged_or_resident(pages, capacity):
    result = simulate(pages, capacity)
    assert result.disk_writes + result.resident_pages >= result.unique_pages
    assert result.resident_pages == min(capacity, result.unique_pages)


def bio(ts, sector, nr_sector, rwbs="W", dev="254:0", tid=1):
    return {
        "ts": ts,
        "tid": tid,
        "event": "bio_queue",
        "dev": dev,
        "sector": sector,
        "nr_sector": nr_sector,
        "rwbs": rwbs,
    }


def test_a_bio_of_n_pages_is_n_write_backs(tmp_path):
    events = [bio(1, 0, 24), bio(2, 8, 8), bio(3, 0, 8, dev="7:0"), bio(4, 16, 8, "R")]
    with make_trace(tmp_path / "t", {"block": events}) as trace:
        found = page_writebacks(trace)
        only = page_writebacks(trace, ["7:0"])
    assert found.page.tolist() == [0, 1, 2, 1, 3]
    assert found.unique == 4
    assert found.by_device == {"254:0": 4, "7:0": 1}
    assert (len(only), only.unique) == (1, 1)


def test_the_recorders_own_files_are_left_out(tmp_path):
    tables = {
        "block": [bio(5, 0, 8, tid=50), bio(15, 80, 16, tid=50)],
        "writeback": [{"ts": 1, "tid": 50, "event": "start", "reason": "sync"}],
        "inode_writeback": [
            {"ts": 2, "tid": 50, "event": "start", "dev": "254:0", "ino": 11},
            {"ts": 12, "tid": 50, "event": "start", "dev": "254:0", "ino": 12},
        ],
    }
    with make_trace(tmp_path / "t", tables, own_files={"254:0": [12]}) as trace:
        found = page_writebacks(trace)
    assert (len(found), found.own, found.by_reason) == (1, 2, {"sync": 1})


def test_a_trace_that_claims_too_much_is_refused(tmp_path):
    events = [bio(1, 0, 1 << 40)]
    with (
        make_trace(tmp_path / "t", {"block": events}) as trace,
        pytest.raises(BadTrace, match="claims more than"),
    ):
        page_writebacks(trace)


def test_sectors_at_the_end_of_the_number_range(tmp_path):
    events = [bio(1, (1 << 64) - 8, 8), bio(2, (1 << 63), 8), bio(3, (1 << 64) - 8, 8)]
    with make_trace(tmp_path / "t", {"block": events}) as trace:
        assert page_writebacks(trace).page.tolist() == [0, 1, 0]


def test_an_unknown_device_names_those_there_are():
    with pytest.raises(UsageError, match=r"no nvm 'flux'; known: .*pcm-paper"):
        devices.find("flux", "nvm")
    with pytest.raises(UsageError, match="no nvm 'hdd-paper'"):
        devices.find("hdd-paper", "nvm")


def test_assumptions_name_the_latencies():
    said = " ".join(paper.assumptions(PCM, HDD))
    assert "8 ms" in said
    assert "350 ns" in said
    assert math.isclose(HDD.write_ns / 1e6, 8)
