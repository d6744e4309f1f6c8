"""Lengths of time in four bytes: none is changed, however long it is."""

import numpy as np
import pytest

from tests.support.traces import make_trace
from tracer.analysis.views.lengths import Lengths, length_at
from tracer.analysis.views.waiting.waits import waits
from tracer.probes.compiled import compiled

EDGES = (0, 1, (1 << 32) - 2, (1 << 32) - 1, 1 << 32, (1 << 63) - 1, -1, -(1 << 63))
TARGETS = [{"name": "job", "role": "target", "kind": "pid", "pid": 7}]


@compiled
def read(lengths, found):
    for place in range(len(found)):
        found[place] = length_at(lengths, place)


def test_lengths_are_read_as_they_were_taken():
    draw = np.random.default_rng(3)
    values = np.concatenate([EDGES, draw.integers(0, 1 << 34, 1009)])
    draw.shuffle(values)
    lengths = Lengths(values.copy())
    compiled_read = np.empty_like(values)
    read(lengths.arrays, compiled_read)
    assert (compiled_read == values).all()
    places = draw.permutation(len(values))
    assert (lengths.of(places) == values[places]).all()


@pytest.mark.parametrize("before", [3, (1 << 32) - 2, (1 << 32) - 1, 1 << 32, 1 << 40])
def test_a_wait_is_in_its_call_however_long_ago_that_began(tmp_path, before):
    slept = 100 + before
    tables = {
        "processes": [{"pid": 7, "tid": 7, "role": "target", "target": "job"}],
        "syscalls": [{"ts": 100, "dur_ns": before + 60, "pid": 7, "tid": 7, "name": "read"}],
        "block": [
            {"ts": 102, "event": "bio_queue", "pid": 7, "tid": 7, "dev": "vda", "sector": 8}
            | {"nr_sector": 8, "rwbs": "R"}
        ],
        "off_cpu": [{"ts": slept, "dur_ns": 50, "pid": 7, "tid": 7, "state": "D"}],
    }
    with make_trace(tmp_path / "t", tables, targets=TARGETS) as trace:
        waits(trace)
        found = trace.rows("SELECT ts, call, kind, detail, certainty FROM waits")
    assert found == [(slept, "read", "disk", "vda", "exact")]
