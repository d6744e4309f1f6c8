"""Open and closed replay: what waits for what."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.bios import bios, flat
from tracer.analysis.flushlayer import devices
from tracer.analysis.flushlayer.timed import Layer, simulate
from tracer.analysis.flushlayer.timed.destage import DOCS, Destage
from tracer.analysis.flushlayer.timed.disk import Disk
from tracer.analysis.flushlayer.timed.outcome import replay_gap
from tracer.probes.errors import UsageError

MS = 1_000_000
HDD = Disk(devices.find_device("hdd-paper", "disk"), merge=False)
PCM = devices.find_device("pcm-paper", "nvm")
CACHED = Disk(flat("cached", read_latency=8 * MS, write_latency=8 * MS, write_cache=8192))


def writes(pages, apart=20 * MS):
    return [(i * apart, "write", page, 1) for i, page in enumerate(pages)]


def test_closed_replay_keeps_think_times():
    # One issuer: recorded on a disk of 20 ms, it thought for 5 ms after each completion.
    rows = [(0, "write", 1, 1), (25 * MS, "write", 2, 1), (50 * MS, "write", 3, 1)]
    done = [20 * MS, 45 * MS, 70 * MS]
    requests = bios(rows, chain=[7, 7, 7], done=done)
    opened = simulate(requests, HDD)
    closed = simulate(requests, HDD, replay="closed")
    assert opened.arrived_ns.tolist() == [0, 25 * MS, 50 * MS]
    assert closed.arrived_ns.tolist() == [0, 13 * MS, 26 * MS]
    assert closed.end_ns == 34 * MS


def test_closed_replay_slows_down_with_a_slower_disk():
    # Recorded on a disk of 1 ms without a think time: open replay piles up, closed does not.
    rows = [(i * MS, "write", i * 10, 1) for i in range(50)]
    requests = bios(rows, chain=[0] * 50, done=[(i + 1) * MS for i in range(50)])
    opened = simulate(requests, HDD)
    closed = simulate(requests, HDD, replay="closed")
    assert opened.response_ns.max() == 8 * 50 * MS - 49 * MS
    assert set(closed.response_ns.tolist()) == {8 * MS}
    gap = replay_gap(requests, opened, closed).set_index("measure")
    assert gap.loc["max", "ratio"] == pytest.approx(opened.response_ns.max() / (8 * MS))


def test_a_burst_stays_a_burst_in_closed_replay():
    # Three at once, 1 us apart; the next after all three were done.
    rows = [(0, "write", 1, 1), (1000, "write", 20, 1), (2000, "write", 40, 1)]
    rows += [(35 * MS, "write", 60, 1)]
    requests = bios(rows, chain=[0] * 4, done=[10 * MS, 20 * MS, 30 * MS, 40 * MS])
    closed = simulate(requests, HDD, replay="closed")
    assert closed.arrived_ns.tolist() == [0, 1000, 2000, 24 * MS + 5 * MS]


@settings(max_examples=200, deadline=None)
@given(
    st.lists(
        st.tuples(
            st.integers(1, 20 * MS),
            st.sampled_from(["write", "write", "read"]),
            st.integers(0, 12),
            st.integers(0, 3),
        ),
        min_size=1,
        max_size=60,
    ),
    st.sampled_from([None, *DOCS]),
)
def test_closed_replay_on_the_recorded_devices_gives_the_recording(rows, when):
    # Recorded on the very devices: every bio comes when it did, however much is under way.
    layer = None
    if when is not None:
        policy = Destage(when, outstanding=2, idle_ns=5 * MS, age_ns=30 * MS)
        layer = Layer(4, PCM, policy, buffer="read-write" if when == "eager" else "write-only")
    at = np.cumsum([gap for gap, *_ in rows]).tolist()
    table = [(t, op, page, 1) for t, (_, op, page, _) in zip(at, rows, strict=True)]
    recorded = simulate(bios(table), HDD, layer)
    done = recorded.arrived_ns + recorded.response_ns
    requests = bios(table, chain=[chain for *_, chain in rows], done=done)
    closed = simulate(requests, HDD, layer, replay="closed")
    assert closed.arrived_ns.tolist() == at
    assert closed.response_ns.tolist() == recorded.response_ns.tolist()


def test_chains_do_not_wait_for_one_another():
    rows = [(0, "write", 1, 1), (MS, "write", 20, 1), (50 * MS, "write", 40, 1)]
    requests = bios(rows, chain=[0, 1, 0], done=[40 * MS, -1, -1])
    closed = simulate(requests, HDD, replay="closed")
    assert closed.arrived_ns.tolist() == [0, MS, 18 * MS]


def test_replays_that_cannot_be_are_refused():
    requests = bios([(0, "write", 1, 1)])
    with pytest.raises(UsageError, match="closed replay needs"):
        simulate(requests, HDD, replay="closed")
    with pytest.raises(UsageError, match="no replay 'half'"):
        simulate(requests, HDD, replay="half")
    with pytest.raises(UsageError, match="1 disks for 2 devices"):
        simulate(bios([(0, "write", 1, 1)], device=[1]), [HDD])
