"""Misses, access by access, against libCacheSim."""

from pathlib import Path

import libcachesim
import numpy as np
import pytest

from tests.support.streams import zipf
from tracer.analysis.flushlayer.policies import outcomes, simulate
from tracer.analysis.flushlayer.trace.accesses import page_writebacks
from tracer.store.trace import Trace

pytestmark = pytest.mark.slow

RECORDED = Path(__file__).parents[3] / "fixtures" / "lenet.trace"

SAME = {
    "fifo": libcachesim.FIFO,
    "lru": libcachesim.LRU,
    "clock": libcachesim.Clock,
    "lfu": libcachesim.LFU,
    "arc": libcachesim.ARC,
    "sieve": libcachesim.Sieve,
    "s3-fifo": libcachesim.S3FIFO,
    "2q": libcachesim.TwoQ,
}
"""slru is not among them: theirs has four segments and fills the upper ones with new pages."""

FEWEST = {"s3-fifo": 20, "2q": 4}
"""Smaller ones of theirs have a queue of less than two pages, or one, that takes none in."""


def their_hits(cache, page, next_use=None):
    request = libcachesim.Request()
    request.obj_size = 1
    hits = np.empty(len(page), bool)
    for i, p in enumerate(page.tolist()):
        request.obj_id = p + 1
        if next_use is not None:
            request.next_access_vtime = next_use[i]
        hits[i] = cache.get(request)
    return hits


def our_hits(policy, page, unique, capacity):
    return outcomes(policy, page, unique, capacity).found & 1 == 1


@pytest.fixture(scope="module")
def recorded():
    with Trace(RECORDED) as trace:
        made = page_writebacks(trace, all_writers=True)
    assert len(made) > 1000
    return made.page, made.unique


@pytest.mark.parametrize("policy", SAME)
@pytest.mark.parametrize("skew", [0.0, 0.6, 0.9, 1.2])
def test_zipf_streams_hit_where_they_hit_there(policy, skew):
    page, unique = zipf(8_000, 900, skew)
    for capacity in (1, 2, 3, 10, 20, 38, 60, 66, 100, 333, unique - 1, unique):
        if capacity >= FEWEST.get(policy, 1):
            theirs = their_hits(SAME[policy](cache_size=capacity, hashpower=12), page)
            assert (our_hits(policy, page, unique, capacity) == theirs).all()


@pytest.mark.parametrize("policy", SAME)
def test_a_recorded_trace_hits_where_it_hits_there(policy, recorded):
    page, unique = recorded
    for capacity in (1, 5, 20, 64, 200, 512, 1024, unique - 1, unique):
        if capacity >= FEWEST.get(policy, 1):
            theirs = their_hits(SAME[policy](cache_size=capacity, hashpower=12), page)
            assert (our_hits(policy, page, unique, capacity) == theirs).all()


def test_min_misses_as_often_as_there():
    page, unique = zipf(8_000, 900, 0.8)
    never = (1 << 63) - 1
    next_use, seen = [never] * len(page), {}
    for i in range(len(page) - 1, -1, -1):
        next_use[i] = seen.get(page[i], never)
        seen[page[i]] = i
    for capacity in (1, 10, 100, 500):
        cache = libcachesim.Belady(cache_size=capacity, hashpower=12)
        misses = int((~their_hits(cache, page, next_use)).sum())
        assert simulate("min", page, unique, capacity).misses == misses
