"""Lanes of block requests: latencies, their quantiles, throughput, and which devices have any."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.timeline import TENTHS, by_bin, made, requests
from tracer.analysis.timeline.axis import Axis
from tracer.analysis.timeline.block import block_lanes, latencies

pytestmark = pytest.mark.slow


def test_requests_have_latency_and_throughput_by_when_they_completed(tmp_path):
    with made(tmp_path, block=requests((0, 1, 250, 0, 256), (10, 20, 260, 4096, 256))) as trace:
        lanes = block_lanes(trace, TENTHS)
    assert [lane.title for lane in lanes] == ["Block latency of 254:0", "Throughput of 254:0"]
    found = lanes[0].frame.set_index("series")
    assert list(found["requests"]) == [2, 2] and list(found["from_s"]) == [0.2, 0.2]
    assert found.loc["issued to completed", "p50_ms"] == pytest.approx(244.5)
    assert found.loc["issued to completed", "max_ms"] == pytest.approx(249)
    assert found.loc["queued to issued", "p50_ms"] == pytest.approx(5.5)
    assert by_bin(lanes[1].frame, "write") == pytest.approx({2: 20})  # MiB/s


@settings(max_examples=25, deadline=None)
@given(took=st.lists(st.integers(1, 10**12), min_size=1, max_size=60))
def test_quantiles_of_a_histogram_are_near_the_exact_ones(tmp_path_factory, took):
    rows = []
    for number, ns in enumerate(took):
        place = {"dev": "254:0", "sector": 8 * number, "nr_sector": 8, "rwbs": "R"}
        rows += [{"ts": 0, "event": "issue", **place}, {"ts": ns, "event": "complete", **place}]
    rows.sort(key=lambda row: row["ts"])
    one = Axis(0, 10**13, 10**13)
    with made(tmp_path_factory.mktemp("quantiles"), block=rows) as trace:
        (found,) = latencies(trace, one, "254:0").to_dict("records")
    for column, share in (("p50_ms", 0.5), ("p99_ms", 0.99)):
        exact = np.quantile(took, share) / 1e6
        assert found[column] == pytest.approx(exact, rel=1 / 128)
    assert found["max_ms"] == max(took) / 1e6


def test_devices_beyond_the_busiest_are_named_as_left_out(tmp_path):
    rows = [{**row, "dev": f"7:{n}"} for n in range(9) for row in requests((0, 1, 2, 0, 1))]
    rows += [{**row, "dev": "<b>"} for row in requests((0, 1, 2, 0, 1))]
    with made(tmp_path, block=sorted(rows, key=lambda row: row["ts"])) as trace:
        lanes = block_lanes(trace, TENTHS)
    assert len(lanes) == 8 and "6 more devices" in lanes[0].note
