"""The reads of several workers at once, and of a worker's threads, count once in the findings."""

from __future__ import annotations

import pytest

from tests.oracles.drawing import answer_of, seeds
from tests.oracles.loaders import World
from tracer.analysis.findings.devices import reads
from tracer.analysis.findings.loaders import loaders

pytestmark = pytest.mark.slow

WORLDS = seeds(10)


def told(world, finding):
    """Returns the value of a finding; None: there is none."""
    found = answer_of(finding, world.tables, **world.manifest)
    return next((one.value for one in found), None)


@pytest.mark.parametrize("seed", WORLDS)
def test_the_loading_time_of_workers_has_the_union_of_their_threads_reads(seed):
    world = World(seed)
    value = told(world, loaders)
    assert (value or 0) == pytest.approx(world.loading or 0)


@pytest.mark.parametrize("seed", WORLDS)
def test_the_reads_of_all_threads_of_a_job_in_flight_at_once_count_once(seed):
    world = World(seed)
    value = told(world, reads)
    assert (value or 0) == pytest.approx(world.from_disks)
