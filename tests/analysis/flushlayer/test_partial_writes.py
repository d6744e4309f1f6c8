"""Writes past a sync-only layer that replace a part of a page: the models agree."""

import random

import pytest

from tests.support.traces import make_trace
from tracer.analysis.flushlayer.answers import curve, paper
from tracer.analysis.flushlayer.answers.question import Capacity, Question
from tracer.analysis.flushlayer.answers.timed import layer_of
from tracer.analysis.flushlayer.devices import find_device
from tracer.analysis.flushlayer.policies import POLICIES
from tracer.analysis.flushlayer.timed import simulate
from tracer.analysis.flushlayer.timed.destage import Destage
from tracer.analysis.flushlayer.timed.disk import Disk
from tracer.analysis.flushlayer.trace.accesses import Identity, page_writebacks
from tracer.analysis.flushlayer.trace.recorded import recorded_requests

pytestmark = pytest.mark.slow

MS = 10**6
PCM, HDD = find_device("pcm-paper", "nvm"), find_device("hdd-paper", "disk")
SMALL = {"dev": "254:0", "block_bytes": 512}
PARTS = [(first, end) for first in range(8) for end in range(first + 1, 9)]
"""The sectors of a page that a write may cover: the first one, and the one behind the last."""


def lru(writes, capacity):
    """Returns (pages written to the disk, pages absorbed, pages left, sectors written to the disk).

    `writes` are (waited for, page, part). The dirty part of a page in the layer reaches from its
    first dirty sector to its last one.
    """
    layer, past, destaged, absorbed, sectors = {}, 0, 0, 0, 0
    for waited, page, (first, end) in writes:
        dirty = set(range(*layer[page])) if page in layer else set()
        if waited:
            absorbed += bool(dirty)
            layer.pop(page, None)
            if len(layer) == capacity:
                low, high = layer.pop(next(iter(layer)))
                destaged, sectors = destaged + 1, sectors + high - low
            dirty |= {first, end - 1}
            layer[page] = min(dirty), max(dirty) + 1
        else:
            past, sectors = past + 1, sectors + end - first
            left = dirty - set(range(first, end))
            if left:
                layer[page] = min(left), max(left) + 1
            elif dirty:
                absorbed += 1
                del layer[page]
    return past + destaged, absorbed, len(layer), sectors


def drawn(seed, same_part):
    """Returns 80 writes to 6 pages; `same_part`: those that go into the layer are of one part."""
    numbers = random.Random(seed)
    parts = [numbers.choice(PARTS) for _ in range(6)]
    writes = []
    for _ in range(80):
        waited, page = numbers.random() < 0.6, numbers.randrange(6)
        part = parts[page] if waited and same_part else numbers.choice(PARTS)
        writes.append((waited, page, part))
    return writes


@pytest.fixture(params=["block", "file"])
def recorded(request, tmp_path):
    """Returns the accesses and requests of writes; by file, its pages begin inside of others."""
    by_file = request.param == "file"

    def make(writes):
        begin = 803 if by_file else 800
        block = [
            {"ts": 1 + 50 * MS * n, "tid": 7, "pid": 7, "event": "bio_queue", "dev": "254:0",
             "sector": begin + 8 * page + first, "nr_sector": end - first,
             "rwbs": "WS" if waited else "W"}
            for n, (waited, page, (first, end)) in enumerate(writes)
        ]  # fmt: skip
        extent = {"ts": 0, "tid": 7, "event": "known", "dev": "254:0", "ino": 11, "file_block": 0,
                  "disk_block": begin, "blocks": 48}  # fmt: skip
        tables = {"block": block, "extents": [extent]}
        with make_trace(tmp_path / "t", tables, file_systems=[SMALL]) as trace:
            accesses = page_writebacks(trace, None, Identity(request.param), True, True)
            return accesses, recorded_requests(trace, accesses)

    return make


def asked(capacity, policy="lru"):
    return Question(PCM, HDD, Capacity(pages=capacity), policy, "sync-only")


def facts_of(question, accesses):
    """Returns the pages written to the disk and the pages left, by the models without time."""
    by_paper = paper.answer(question, {Identity.BLOCK: accesses})
    by_curve = curve.answer(question, accesses)["curve"]
    (row,) = [r for r in by_curve if r["capacity_pages"] == by_paper["capacity_pages"]]
    assert (row["disk_writes"], row["resident"]) == (
        by_paper["disk_writes"],
        by_paper["resident_pages"],
    )
    return by_paper["disk_writes"], by_paper["resident_pages"]


@pytest.mark.parametrize("seed", range(4))
def test_all_models_absorb_the_same_pages(recorded, seed):
    writes = drawn(seed, same_part=True)
    accesses, requests = recorded(writes)
    past = sum(not waited for waited, *_ in writes)
    for capacity in range(1, 7):
        question = asked(capacity)
        disk_pages, absorbed, left, sectors = lru(writes, capacity)
        assert facts_of(question, accesses) == (disk_pages, left)
        outcome = simulate(requests, Disk(HDD), layer_of(question, accesses, Destage()), "open")
        [layer] = outcome.layers
        assert (layer.overwritten, layer.destaged + past, layer.resident) == (
            absorbed, disk_pages, left,
        )  # fmt: skip
        assert outcome.disks[0].bytes_written == 512 * sectors
        assert layer.written == len(writes) - past


@pytest.mark.parametrize("policy", POLICIES)
def test_all_models_absorb_the_same_pages_by_each_policy(recorded, policy):
    writes = drawn(11, same_part=True)
    accesses, requests = recorded(writes)
    past = sum(not waited for waited, *_ in writes)
    for capacity in (2, 4):
        question = asked(capacity, policy)
        outcome = simulate(requests, Disk(HDD), layer_of(question, accesses, Destage()), "open")
        [layer] = outcome.layers
        assert facts_of(question, accesses) == (layer.destaged + past, layer.resident)
        assert layer.most_dirty <= capacity


@pytest.mark.parametrize("seed", range(4))
def test_all_models_absorb_the_same_pages_of_any_parts_if_no_page_leaves(recorded, seed):
    writes = drawn(seed, same_part=False)
    accesses, requests = recorded(writes)
    disk_pages, absorbed, left, sectors = lru(writes, 6)
    assert facts_of(asked(6), accesses) == (disk_pages, left)
    outcome = simulate(requests, Disk(HDD), layer_of(asked(6), accesses, Destage()), "open")
    [layer] = outcome.layers
    assert (layer.overwritten, layer.destaged, layer.resident) == (absorbed, 0, left)
    assert outcome.disks[0].bytes_written == 512 * sectors


def test_only_the_timed_model_knows_what_left_the_layer_before(recorded):
    """Page 0 leaves with its first half, comes back with the other one, which is then replaced."""
    writes = [(True, 0, (0, 4)), (True, 1, (0, 8)), (True, 0, (4, 8)), (False, 0, (4, 8))]
    accesses, requests = recorded(writes)
    assert lru(writes, 1)[:3] == (3, 1, 0)
    assert facts_of(asked(1), accesses) == (3, 1)
    outcome = simulate(requests, Disk(HDD), layer_of(asked(1), accesses, Destage()), "open")
    assert (outcome.layers[0].overwritten, outcome.layers[0].resident) == (1, 0)
