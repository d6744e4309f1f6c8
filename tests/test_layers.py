"""`make test-layers` without a kernel: the times of requests, and the device made of them."""

import numpy as np
import pytest

from scripts.layers.asked import LONG, SCATTERED, times
from scripts.layers.compare import medium
from tests.support.bios import bios
from tracer.analysis.flushlayer.devices import find_device
from tracer.analysis.flushlayer.timed import Layer, simulate
from tracer.analysis.flushlayer.timed.disk import Disk

TRACE = """\
# tracer: nop
          python3-70      [001] .....     9.000000: tracing_mark_write: first
          python3-70      [001] .....     9.000100: block_bio_queue: 253,0 FWS 0 + 0 [python3]
          <idle>-0        [000] d.h1.     9.900000: block_bio_complete: 253,0 FWS 0 + 0 [0]
          python3-70      [001] .....    10.000000: tracing_mark_write: write
          python3-70      [001] .....    10.000100: block_bio_queue: 253,0 WS 8 + 8 [python3]
          <idle>-0        [000] d.h1.    10.002100: block_bio_complete: 253,0 WS 8 + 8 [0]
          python3-70      [001] .....    10.003000: block_bio_queue: 253,0 FWS 0 + 0 [python3]
     dm_flush-71          [001] .....    10.008000: block_bio_complete: 253,0 FWS 0 + 0 [0]
          python3-70      [001] .....    10.009000: tracing_mark_write: fua
          python3-70      [001] .....    10.010000: block_bio_queue: 253,0 WFS 24 + 8 [python3]
          <idle>-0        [000] d.h1.    10.013000: block_bio_complete: 253,0 WFS 24 + 8 [0]
          python3-70      [001] .....    10.013500: block_bio_queue: 253,0 FWS 0 + 0 [python3]
     dm_flush-71          [001] .....    10.020000: block_bio_complete: 253,0 FWS 0 + 0 [0]
          python3-70      [001] .....    10.021000: tracing_mark_write: scattered
          python3-70      [001] .....    10.030000: block_bio_queue: 253,0 W 40 + 8 [python3]
          python3-70      [001] .....    10.030100: block_bio_queue: 253,0 W 56 + 8 [python3]
          python3-70      [001] .....    10.030200: block_bio_queue: 253,16 W 72 + 8 [python3]
          <idle>-0        [000] d.h1.    10.031000: block_bio_complete: 253,0 W 40 + 8 [0]
          <idle>-0        [000] d.h1.    10.031500: block_bio_complete: 253,0 W 56 + 8 [0]
          python3-70      [001] .....    10.032000: tracing_mark_write: end
"""


def test_the_times_are_those_of_bios():
    # The flush of the kernel after a FUA write is not the flush after a write.
    assert times(TRACE, 253, 0) == {
        "write": [2_000_000],
        "long": [],
        "scattered": [1_500_000],
        "flush": [5_000_000],
        "fua": [3_000_000],
    }


@pytest.mark.parametrize("longer", ["long", "scattered"])
def test_a_medium_takes_the_times_that_were_measured(tmp_path, longer):
    page = {"long": 10_000, "scattered": 10_000} | {longer: 30_000}
    asked = {
        "write": [100_000],
        "long": [100_000 + (LONG - 1) * page["long"]],
        "scattered": [100_000 + (SCATTERED - 1) * page["scattered"]],
        "flush": [500_000],
        "fua": [140_000],
    }
    file = tmp_path / "devices.toml"
    file.write_text(medium("m", asked))
    layer = Layer(1000, find_device("m", "nvm", file))
    disk = Disk(find_device("hdd-paper", "disk"))
    far = 1_000_000_000
    rows = [(0, "write", 0, 1), (far, "write", 100, LONG), (4 * far, "write", 300, 1)]
    rows += [(2 * far, "write", 200 + 2 * i, 1) for i in range(SCATTERED)]
    rows += [(3 * far, "flush", 0, 0)]
    rows = sorted(rows)
    fua = [row[0] == 4 * far for row in rows]
    took = simulate(bios(rows, fua=fua), disk, layer).response_ns
    assert took[0] == asked["write"][0]
    assert took[-2:].tolist() == [asked["flush"][0], asked["fua"][0]]
    bios_of = {"long": far, "scattered": 2 * far}
    assert took[np.array([row[0] == bios_of[longer] for row in rows])].max() == asked[longer][0]
