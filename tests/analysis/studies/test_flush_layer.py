"""The curve of a run over all capacities: thinned, with the points that were asked for kept."""

import shutil

import pytest

from tests.conftest import ROOT
from tests.support.traces import make_trace
from tracer.analysis.flushlayer import devices
from tracer.analysis.flushlayer.curves.every_capacity import curve, improvements, smallest_capacity
from tracer.analysis.flushlayer.trace.accesses import Identity, page_writebacks
from tracer.analysis.studies.flush_layer import layer_curve
from tracer.analysis.studies.papers.numbers import numbers
from tracer.store.trace import Trace

PAPERS = numbers("park2023_fig6_io_latency_improvement")["improvement"]
MS = 10**6


@pytest.fixture
def written(tmp_path):
    """2,000 pages written once, a tenth of them once more."""
    common = {"dev": "254:0", "nr_sector": 8, "rwbs": "W", "tid": 7, "pid": 7}
    rows = [
        {"ts": (n + 1) * MS, "event": "bio_queue", "sector": page * 8, **common}
        for n, page in enumerate([*range(2000), *range(200)])
    ]
    with make_trace(tmp_path / "t", {"block": rows}) as trace:
        yield trace


def test_a_thinned_curve_keeps_the_capacities_that_the_papers_numbers_need(written):
    found = layer_curve(written).query("identity == 'block' and writes == 'all'")
    assert len(found) < 200
    accesses = page_writebacks(written)
    medium, disk = devices.find_device("pcm-paper", "nvm"), devices.find_device("hdd-paper", "disk")
    whole = improvements(
        curve("lru", accesses.page, accesses.unique), medium.write_ns, disk.write_ns
    )
    for number in PAPERS:
        needed = smallest_capacity(whole, number)
        assert needed is not None
        assert smallest_capacity(found, number) == needed
    assert found["improvement_with_drain"].max() == whole["improvement_with_drain"].max()
    assert found["capacity_share"].iloc[-1] == 1


def test_a_trace_without_writes_has_no_curve(tmp_path):
    with make_trace(tmp_path / "t", {"block": []}) as trace:
        assert layer_curve(trace).empty


def test_another_device_has_none(tmp_path):
    shutil.copytree(ROOT / "fixtures" / "lenet.trace", tmp_path / "lenet.trace")
    with Trace(tmp_path / "lenet.trace") as trace:
        assert set(layer_curve(trace)["identity"]) == {*Identity}
        assert layer_curve(trace, "9:9").empty
