"""A simulated layer hands on as many pages as the naive policies do, whatever the policy."""

import random

import pytest

from tests.oracles.drawing import seeds
from tests.oracles.layer import improvement, pages_of
from tests.oracles.policies import LEAST, POLICIES, disk_writes
from tests.support.traces import make_trace
from tracer.analysis.flushlayer.devices.device import catalogue
from tracer.analysis.flushlayer.one_capacity import simulate
from tracer.analysis.flushlayer.trace.accesses import page_writebacks

pytestmark = pytest.mark.slow

CAPACITIES = (0, 1, 10, 47, 130)
DISKS = ({"dev": "8:0", "name": "sda"}, {"dev": "8:16", "name": "sdb"})
JOB = {"pid": 7, "tid": 7, "comm": "job"}


def bios(seed, count):
    """Bios on two disks, a third of them at the time of the one before.

    Some pages are written often, some once, and some in a loop longer than most capacities.
    """
    numbers, now, rows = random.Random(seed), 0, []
    for place in range(count):
        now += numbers.choice([0, 1, 5])
        page = numbers.choice(
            [numbers.randrange(20), numbers.randrange(300), 1000 + place % 90, 2000 + place]
        )
        row = {"ts": now, "event": "bio_queue", **JOB, "dev": numbers.choice(["8:0", "8:16"])}
        row |= {"rwbs": numbers.choice(["W", "W", "WS", "FWFS"])}
        rows.append(row | {"sector": 8 * page, "nr_sector": numbers.choice([8, 8, 8, 16, 1])})
        if numbers.random() < 0.2:  # neither is a write that reaches a device's queue
            other = {"rwbs": "R"} if numbers.random() < 0.5 else {"event": "issue"}
            rows.append(rows[-1] | other)
    return rows


@pytest.fixture(scope="module", params=seeds(1))
def written(tmp_path_factory, request):
    """The page accesses of a trace of some thousand writes, and the same pages by the oracle."""
    block = bios(request.param, 2500)
    with make_trace(
        tmp_path_factory.mktemp("policies") / "t", {"block": block}, disks=list(DISKS)
    ) as trace:
        return page_writebacks(trace), pages_of(block)


@pytest.mark.parametrize("policy", POLICIES)
def test_a_policy_hands_on_as_many_pages_as_the_oracle(policy, written):
    accesses, pages = written
    medium, disk = catalogue()["pcm-paper"], catalogue()["hdd-paper"]
    for capacity in (*CAPACITIES, len(set(pages))):
        if 0 < capacity < LEAST.get(policy, 1):
            continue
        found = simulate(accesses, capacity, medium, disk, policy)
        destaged, left = disk_writes(policy, pages, capacity)
        assert (found.requests, found.unique_pages) == (len(pages), len(set(pages)))
        assert (found.disk_writes, found.resident_pages) == (destaged, left), capacity
        into = len(pages) if capacity else 0
        gain = improvement(len(pages), into, destaged, medium.write_ns, disk.write_ns)
        assert found.improvement == pytest.approx(gain, abs=1e-12)


@pytest.mark.parametrize("seed", seeds(1))
def test_the_command_gives_the_answer_of_the_oracle(tmp_path, tracer, seed):
    block = bios(1000 + seed, 300)
    make_trace(tmp_path / "t", {"block": block}, disks=list(DISKS)).close()
    options = "--policy", "arc", "--capacity-pages", 40, "--identity", "block", "--json"
    found = tracer("simulate", tmp_path / "t", *options).json
    assert (found["disk_writes"], found["resident_pages"]) == disk_writes(
        "arc", pages_of(block), 40
    )


def test_a_trace_without_writes_has_no_improvement(tmp_path, tracer):
    make_trace(tmp_path / "t", {"block": []}, disks=list(DISKS)).close()
    options = "--policy", "s3-fifo", "--capacity-pages", 10, "--json"
    found = tracer("simulate", tmp_path / "t", *options).json
    assert (found["requests"], found["disk_writes"]) == (0, 0)
    assert found["improvement"] is None
