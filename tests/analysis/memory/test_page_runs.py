"""The input of the memory models: nothing in it may lead out of an array."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.page_runs import drawn, made
from tracer.analysis.memory.lru import lru_misses
from tracer.analysis.memory.page_runs import FAULT, READ, REMOVE, WRITE
from tracer.probes.errors import BadTrace


def test_a_run_lies_in_its_file():
    runs = made([(1, 0, 3, READ), (0, 2, 2, WRITE), (1, 4, 1, FAULT)], sizes=[4, 5])
    assert runs.first.tolist() == [4, 2, 8]
    assert runs.all_pages == 9
    assert runs.accessed().tolist() == [4]


def test_pages_that_no_run_uses_can_be_left_out():
    rows = [(1, 7, 3), (0, 1 << 20, 2), (1, 8, 4), (1, 7, 1), (0, 0, 1)]
    used = made(rows, sizes=[1 << 21, 50]).only_used()
    assert used.first.tolist() == [3, 1, 4, 3, 0]
    assert (used.all_pages, used.pages.tolist()) == (8, [3, 2, 4, 1, 1])
    assert made([], sizes=[9]).only_used().all_pages == 0


@settings(deadline=None)
@given(seed=st.integers(0, 2**32))
def test_without_them_the_misses_are_the_same(seed):
    runs = drawn(seed, 30, [70, 3, 200], tenants=2)
    used = runs.only_used()
    assert used.all_pages < runs.all_pages
    assert lru_misses(used, [3, 20]).missed.tolist() == lru_misses(runs, [3, 20]).missed.tolist()


def test_the_runs_of_a_tenant_have_the_removals_of_its_pages_and_no_other_pages():
    rows = [
        (0, 10, 4, READ, 0, 1, 5), (1, 2, 2, WRITE, 1, 0, 0), (1, 0, 9, REMOVE, 0, 2, 1),
        (0, 30, 2, READ, 0, 1, 3), (0, 12, 20, REMOVE, 0, 0, 0), (0, 40, 9, REMOVE, 0, 1, 5),
        (0, 13, 1, FAULT, 0, 1, 5),
    ]  # fmt: skip
    writer, reader, removing = made(rows, sizes=[50, 9]).of_tenants
    assert (writer.first.tolist(), writer.pages.tolist()) == ([0, 0], [2, 2])
    assert writer.kind.tolist() == [WRITE, REMOVE]
    assert reader.first.tolist() == [0, 4, 2, 3]
    assert reader.pages.tolist() == [4, 2, 4, 1]
    assert reader.kind.tolist() == [READ, READ, REMOVE, FAULT]
    assert reader.groups[reader.group[[0, 1, 3]]].tolist() == [5, 3, 5]
    assert (writer.all_pages, reader.all_pages, removing.all_pages) == (2, 6, 0)
    assert len(removing.first) == 0
    assert made([], sizes=[]).of_tenants == []


def test_no_accesses_are_a_stream():
    runs = made([], sizes=[])
    assert (runs.all_pages, runs.readers, runs.tenants, runs.groups) == (0, 0, 0, 0)
    assert runs.accessed().tolist() == []


@pytest.mark.parametrize(
    "change",
    [
        {"first": np.array([3], np.int64)},
        {"first": np.array([-1], np.int64)},
        {"first": np.array([2**63 - 1], np.int64)},
        {"first": np.array([0], np.int32)},
        {"pages": np.array([0], np.int32)},
        {"pages": np.array([5], np.int32)},
        {"pages": np.array([1, 1], np.int32)},
        {"file": np.array([1], np.int32)},
        {"file": np.array([-1], np.int32)},
        {"reader": np.array([1], np.int32)},
        {"reader": np.array([-1], np.int32)},
        {"tenant": np.array([2**16], np.int32)},
        {"group": np.array([2**31 - 1], np.int32)},
        {"kind": np.array([5], np.int8)},
        {"kind": np.array([-1], np.int8)},
        {"base": np.array([2**62], np.int64)},
        {"base": np.array([-1], np.int64)},
        {"size_pages": np.array([2**31 - 1], np.int64)},
        {"size_pages": np.array([-1], np.int64)},
        {"random": np.array([True, False])},
        {"random": np.array([1], np.int8)},
        {"ts": np.array([1, 2], np.int64)},
        {"ts": np.array([1.0])},
    ],
    ids=str,
)
def test_a_foreign_trace_leads_out_of_no_array(change):
    with pytest.raises(BadTrace):
        made([(0, 0, 2, READ)], sizes=[4], **change)


def test_files_that_overlap_are_refused():
    with pytest.raises(BadTrace, match="overlap"):
        made([(0, 0, 2, READ)], sizes=[4, 4], base=np.array([0, 3], np.int64))
