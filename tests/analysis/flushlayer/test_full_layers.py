"""A layer never holds more pages than it has room for, in whatever order its bios come."""

import dataclasses
import random

import numpy as np
import pytest

from tests.support.bios import bios
from tracer.analysis.flushlayer import devices
from tracer.analysis.flushlayer.policies import POLICIES, outcomes
from tracer.analysis.flushlayer.policies.operations import BUFFERS, operations
from tracer.analysis.flushlayer.timed import Layer, simulate
from tracer.analysis.flushlayer.timed.destage import policy_called
from tracer.analysis.flushlayer.timed.disk import Disk

HDD = Disk(devices.find_device("hdd-paper", "disk"))
PCM = devices.find_device("pcm-paper", "nvm")
MS = 1_000_000


def drawn(seed, count=80, pages=12):
    """Draws writes and reads of single pages by two processes, whose completions overlap."""
    numbers = random.Random(seed)
    times = sorted(numbers.randrange(4 * MS * count) for _ in range(count))
    ops = ["write", "write", "read"]
    return bios(
        [(ts, numbers.choice(ops), numbers.randrange(pages), 1) for ts in times],
        chain=[numbers.randrange(2) for _ in times],
        done=[ts + numbers.randrange(30) * MS for ts in times],
        tenant=[numbers.randrange(2) for _ in times],
        waited=[numbers.random() < 0.6 for _ in times],
    )


def test_a_write_that_comes_before_the_page_that_it_evicts_leaves_no_page_too_many():
    # The second process waited 990 ms for its read; the simulated disk takes 8 ms, so that its
    # write of page 3 comes before those of pages 1 and 2.
    rows = [(0, "read", 9, 1), (500 * MS, "write", 1, 1), (600 * MS, "write", 2, 1)]
    rows.append((1000 * MS, "write", 3, 1))
    ends = [990 * MS, 501 * MS, 601 * MS, 1001 * MS]
    requests = bios(rows, chain=[2, 1, 1, 2], done=ends)
    ops = operations("write-only", requests.op == 0, requests.op == 0, None)
    victims = outcomes("fifo", requests.page, requests.unique, 2, ops).victim
    assert victims.tolist() == [-1, -1, -1, 0]
    found = simulate(requests, HDD, Layer(2, PCM, evicted=victims), "closed")
    assert found.arrived_ns.argsort().tolist() == [0, 3, 1, 2]
    [layer] = found.layers
    assert (layer.most_dirty, layer.destaged, layer.resident) == (2, 1, 2)


@pytest.mark.parametrize("policy", POLICIES)
def test_a_layer_in_closed_replay_is_no_larger_than_it_is(policy):
    for seed in range(10):
        requests = drawn(seed)
        victims = outcomes(policy, requests.page, requests.unique, 4).victim
        [layer] = simulate(requests, HDD, Layer(4, PCM, evicted=victims), "closed").layers
        assert layer.most_dirty <= 4
        assert layer.written == layer.overwritten + layer.destaged + layer.resident


@pytest.mark.parametrize("policy", POLICIES)
def test_partitions_are_no_larger_than_they_are_if_tenants_write_the_same_pages(policy):
    for seed in range(10):
        requests = drawn(seed)
        assert requests.tenant is not None
        layer = Layer(5, PCM, shares=(1.0, 1.0))
        victims = np.full(len(requests.page), -1, np.int32)
        for tenant, capacity in enumerate(layer.capacities()):
            mine = requests.tenant == tenant
            made = outcomes(policy, requests.page[mine], requests.unique, capacity)
            victims[mine] = made.victim
        found = simulate(requests, HDD, dataclasses.replace(layer, evicted=victims))
        assert [part.capacity for part in found.layers] == [3, 2]
        assert all(part.most_dirty <= part.capacity for part in found.layers)


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("buffer", BUFFERS)
def test_bios_in_the_recorded_order_leave_by_the_policy(policy, buffer):
    for seed in range(10):
        requests = drawn(seed)
        ops = operations(buffer, requests.op == 0, requests.waited, None)
        made = outcomes(policy, requests.page, requests.unique, 4, ops)
        outcome = simulate(requests, HDD, Layer(4, PCM, buffer=buffer, evicted=made.victim))
        [layer] = outcome.layers
        assert (outcome.disk_pages, layer.resident) == (
            made.counts.disk_writes, made.counts.resident,
        )  # fmt: skip


def test_a_layer_that_has_room_evicts_nothing():
    """Pages leave by the destaging of dm-writecache, so that the one that MIN chooses can stay."""
    rows = [(30 * MS * n, "write", n, 1) for n in range(40)]
    requests = bios(rows)
    made = outcomes("min", requests.page, requests.unique, 8)
    rule = policy_called("dm-writecache-pmem")
    outcome = simulate(requests, HDD, Layer(8, PCM, rule, evicted=made.victim))
    assert outcome.layers[0].most_dirty < 8
    assert not outcome.evictions.any()
