"""Notes of late reads of ring buffers: a manifest with those of all streams can be read."""

import pytest

from tracer.probes.backends.ftrace.page_source import most_stalls
from tracer.store.checked import MOST_PARTS

STREAMS_OF_A_CPU = 4
PARTS_OF_A_STALL = 3


@pytest.mark.parametrize("cpus", [1, 2, 64, 512, 8192])
def test_stalls_of_all_streams_fit_a_manifest(cpus):
    most = most_stalls(cpus)
    assert 1 <= most <= 10_000
    assert STREAMS_OF_A_CPU * cpus * most * PARTS_OF_A_STALL < MOST_PARTS * 3 // 4
