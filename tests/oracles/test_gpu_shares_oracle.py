"""Findings tell the shares of time that jobs wait for the GPU, as the jobs were laid out."""

import re
import tempfile
from functools import cache
from pathlib import Path

import pytest

from tests.oracles.drawing import seeds
from tests.oracles.gpu_shares import World
from tests.support.in_memory import PLACE
from tests.support.traces import make_trace
from tracer.analysis.findings.calls import calls
from tracer.analysis.findings.steps import steps
from tracer.analysis.findings.waits import waits
from tracer.analysis.views.catalogue import make_named
from tracer.store.trace import Trace

pytestmark = pytest.mark.slow

WORLDS = seeds(8)
LEAST = 5.0
"""Least share (%) of the steps' time that is told."""
SHARE = r"(?P<share>[^,]+? %)"


@cache
def told(seed, scheduled):
    """Returns the truth about a world, and the findings by their topics.

    The query of each gives its number in a trace that is opened anew.
    """
    world = World(seed)
    tables = {name: rows for name, rows in world.tables.items() if scheduled or name != "off_cpu"}
    with (
        tempfile.TemporaryDirectory(dir=PLACE) as folder,
        make_trace(Path(folder) / "t", tables, **world.manifest) as trace,
        Trace(trace.folder) as anew,
    ):
        parts = (steps, calls, waits) if scheduled else (steps, calls)
        found = {one.topic: one for part in parts for one in part(trace)}
        waited = trace.rows("SELECT total_ns, gpu_wait_ns FROM steps WHERE stage = 'train'")
        assert sorted(waited) == sorted((step.total, step.gpu) for step in world.truth.steps)
        for one in found.values():
            make_named(anew, one.query)
            assert anew.rows(one.query)[0][0] == pytest.approx(one.value), one
    return world.truth, found


def rounded(said, share):
    """Returns whether a percentage is the rounded share (0 to 100)."""
    if said == "more than 99 %":
        return 99 <= share < 100
    return abs(float(said.removesuffix(" %")) - share) <= (0.501 if share >= 9.9 else 0.0501)


@pytest.mark.parametrize("scheduled", [False, True], ids=["no sched", "sched"])
@pytest.mark.parametrize("seed", WORLDS)
def test_the_shares_of_waits_for_the_gpu_are_those_of_the_oracle(seed, scheduled):
    truth, found = told(seed, scheduled)
    of_gpu = 100 * truth.gpu / truth.total
    if scheduled:
        finding = found.get("steps: gpu")
        assert (finding is not None) == (of_gpu >= 2)
        if finding:
            assert "waits for the GPU" in finding.sentence
            assert finding.value == pytest.approx(of_gpu)
    else:
        finding = found.get("waits for the GPU")
        assert (finding is not None) == (of_gpu >= LEAST), (of_gpu, found)
        if finding:
            assert finding.value == pytest.approx(of_gpu)
            assert finding.weight == pytest.approx(of_gpu / 100)


@pytest.mark.parametrize("scheduled", [False, True], ids=["no sched", "sched"])
@pytest.mark.parametrize("seed", WORLDS)
def test_the_overhead_that_waits_for_the_gpu_is_that_of_the_oracle(seed, scheduled):
    truth, found = told(seed, scheduled)
    overhead = found.get("overhead")
    if overhead is None:
        assert 100 * truth.overhead / truth.total < LEAST
        return
    assert overhead.value == pytest.approx(100 * truth.overhead / truth.total)
    said = re.search(rf"; in {SHARE} of this time, it waits for the GPU", overhead.sentence)
    if 100 * truth.gpu_overhead / truth.total < LEAST:
        assert said is None, overhead.sentence
    else:
        assert said, overhead.sentence
        share = 100 * truth.gpu_overhead / truth.overhead
        assert rounded(said["share"], share), (overhead.sentence, share)


@pytest.mark.parametrize("scheduled", [False, True], ids=["no sched", "sched"])
@pytest.mark.parametrize("seed", WORLDS)
def test_calls_within_waits_for_the_gpu_do_not_count(seed, scheduled):
    truth, found = told(seed, scheduled)
    finding = found.get("calls")
    share = 100 * truth.calls.total() / truth.training
    assert finding is not None
    assert finding.value == pytest.approx(share)
    assert f"({truth.number_of_calls:,} calls), apart from waits for the GPU," in finding.sentence
    most, ns = truth.calls.most_common(1)[0]
    said = re.search(rf", {SHARE} in {most}", finding.sentence)
    assert said and rounded(said["share"], 100 * ns / truth.training), finding.sentence
