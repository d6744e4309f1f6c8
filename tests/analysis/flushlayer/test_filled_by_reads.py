"""A layer that keeps what is read: its medium writes these pages, which wears it."""

import math

import pytest

from tests.support.bios import bios, flat
from tracer.analysis.flushlayer import devices
from tracer.analysis.flushlayer.timed import Layer, simulate
from tracer.analysis.flushlayer.timed.disk import Disk
from tracer.analysis.flushlayer.timed.nvm import wear

MS = 1_000_000
HDD = Disk(devices.find_device("hdd-paper", "disk"), merge=False)


def test_the_medium_writes_the_pages_that_reads_bring_in():
    medium = flat("medium", kind="nvm", read_latency=50, write_latency=350)
    rows = [(0, "read", 0, 3), (8 * MS, "write", 9, 1), (20 * MS, "read", 2, 2)]
    outcome = simulate(bios(rows), HDD, Layer(8, medium, buffer="read-write"))
    # The write comes as the first read ends, and waits for the medium. The last read does not wait
    # for its page 3, the only one that enters.
    assert outcome.response_ns.tolist() == [8 * MS, 3 * 350 + 350, 8 * MS]
    assert (outcome.layers[0].read_hits, outcome.layers[0].filled) == (1, 4)
    assert outcome.medium.bytes_written == (3 + 1 + 1) * 4096
    assert outcome.medium.busy_ns == (3 + 1 + 1) * 350 + 50


@pytest.mark.parametrize("buffer, pages", [("read-write", 500), ("write-only", 0)])
def test_reads_wear_the_layer_that_keeps_them(buffer, pages):
    medium = devices.find_device("pcm-generic", "nvm")
    rows = [(n * 20 * MS, "read", n % 500, 1) for n in range(1000)]
    outcome = simulate(bios(rows), HDD, Layer(500, medium, buffer=buffer))
    assert outcome.layers[0].read_hits == outcome.layers[0].filled == pages
    assert outcome.medium.bytes_written == pages * 4096
    low, high = wear(medium, 500 * 4096, outcome.medium.bytes_written, 20.0).lifetime_years
    assert (low < high < math.inf) if pages else (low == high == math.inf)
