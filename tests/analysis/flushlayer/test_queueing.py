"""The queue against theory: waiting times, utilisation, Little's law, order and merging."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from tests.support.bios import bios, flat
from tracer.analysis.flushlayer import devices
from tracer.analysis.flushlayer.timed import simulate
from tracer.analysis.flushlayer.timed.disk import Disk
from tracer.analysis.flushlayer.timed.requests import Requests

pytestmark = pytest.mark.slow

HDD = Disk(devices.find_device("hdd-paper", "disk"), merge=False)
MS = 1_000_000


def poisson(number, per_s, seed):
    gaps = np.random.default_rng(seed).exponential(1e9 / per_s, number)
    return np.cumsum(gaps).astype(np.int64)


def interval_of_mean(times, batches=50):
    """The 95 % interval of a mean, by means of batches: these are nearly independent."""
    kept = times[len(times) // 20 :]
    kept = kept[: len(kept) // batches * batches]
    means = kept.reshape(batches, -1).mean(axis=1)
    half = stats.t.ppf(0.975, batches - 1) * means.std(ddof=1) / math.sqrt(batches)
    return means.mean() - half, means.mean() + half


def queue(times, pages):
    """Writes of some pages each at these times; which pages does not matter."""
    return Requests(
        ts=times,
        op=np.zeros(len(times), np.uint8),
        device=np.zeros(len(times), np.int16),
        sector=np.zeros(len(times), np.int64),
        pages=pages.astype(np.int32),
        first=np.cumsum(pages) - pages,
        page=np.zeros(pages.sum(), np.int32),
        unique=1,
    )


def check_response(runs, wanted_ms, narrow_ms):
    """The intervals of 20 runs hold the theory's mean 95 % of the time, and so does theirs."""
    intervals = [interval_of_mean(times / MS) for times in runs]
    held = sum(low < wanted_ms < high for low, high in intervals)
    # Fewer than 17 of 20 intervals of 95 % hold the true mean in 1.6 % of all cases.
    assert held >= 17
    assert max(high - low for low, high in intervals) < narrow_ms
    means = [times.mean() / MS for times in runs]
    half = stats.t.ppf(0.975, 19) * np.std(means, ddof=1) / math.sqrt(20)
    assert abs(np.mean(means) - wanted_ms) < half


def test_deterministic_service_waits_as_m_d_1_says():
    # 8 ms at 100 a second: rho = 0.8, response = s + rho s / (2 (1 - rho)) = 24 ms.
    one = np.ones(200_000, np.int64)
    runs = [simulate(queue(poisson(200_000, 100, s), one), HDD).response_ns for s in range(20)]
    check_response(runs, 24.0, 3.0)


def test_exponential_service_waits_as_m_m_1_says():
    # Service by the size: no latency, 40.96 us a page, and sizes of exponential length, 8 ms in
    # the mean. At 100 a second: response = s / (1 - rho) = 40 ms.
    disk = Disk(
        flat("wire", kind="ssd", read_latency=0, write_latency=0, bandwidth=1e8), merge=False
    )
    runs = []
    for seed in range(20):
        sizes = np.random.default_rng(100 + seed).exponential(8e6 / 40_960, 200_000)
        pages = np.maximum(1, np.round(sizes)).astype(np.int64)
        runs.append(simulate(queue(poisson(200_000, 100, seed), pages), disk).response_ns)
    check_response(runs, 40.0, 10.0)


def test_utilisation_is_rate_times_service():
    requests = bios([(int(at), "write", i, 1) for i, at in enumerate(poisson(10_000, 100, 4))])
    [disk] = simulate(requests, HDD).disks
    assert disk.busy_ns == 10_000 * 8 * MS
    assert disk.requests == disk.parts == 10_000
    passed = disk.busy_ns / disk.utilisation
    assert disk.utilisation == pytest.approx(10_000 / (passed / 1e9) * 0.008)


def test_littles_law_holds_exactly_on_the_path():
    # The integral of the number in the system is the sum of the times in it.
    requests = bios([(int(at), "write", i, 1) for i, at in enumerate(poisson(20_000, 110, 5))])
    outcome = simulate(requests, HDD)
    [disk] = outcome.disks
    assert disk.in_system_ns == outcome.response_ns.sum()
    passed = outcome.end_ns - outcome.begin_ns
    rate = len(requests) / passed
    assert disk.mean_in_system == pytest.approx(rate * outcome.response_ns.mean(), rel=1e-12)


@settings(max_examples=50, deadline=None)
@given(st.lists(st.integers(0, 30 * MS), min_size=1, max_size=60))
def test_a_line_with_one_server_is_lindleys_recursion(gaps):
    times = np.cumsum(gaps)
    requests = bios([(int(at), "write", i, 1) for i, at in enumerate(times)])
    outcome = simulate(requests, HDD)
    free, wanted = 0, []
    for at in times:
        free = max(free, int(at)) + 8 * MS
        wanted.append(free - int(at))
    assert outcome.response_ns.tolist() == wanted
    assert outcome.disks[0].in_system_ns == sum(wanted)


def test_channels_work_side_by_side():
    device = flat("two", kind="ssd", read_latency=100, write_latency=100, channels=2)
    outcome = simulate(bios([(0, "read", i, 1) for i in range(5)]), Disk(device, merge=False))
    assert sorted(outcome.response_ns.tolist()) == [100, 100, 200, 200, 300]


def test_a_shared_bus_bounds_the_rate():
    # 4096 ns a page on the bus, after 5904 ns in a channel: 10 us alone, 4096 ns apart together.
    device = flat(
        "bus", kind="ssd", read_latency=10_000, write_latency=10_000, channels=8, bandwidth=1e9
    )
    outcome = simulate(bios([(0, "read", 10 * i, 1) for i in range(4)]), Disk(device, merge=False))
    assert outcome.response_ns.tolist() == [10_000, 14_096, 18_192, 22_288]


def test_waiting_neighbours_become_one_request():
    # The first is served alone; the run that came meanwhile takes one access more.
    run = [(0, "write", 50, 1)] + [(1, "write", i, 1) for i in range(10)]
    outcome = simulate(bios(run), flat_disk(merge=True))
    assert outcome.disks[0].requests == 2
    assert outcome.disks[0].merged == 9
    assert outcome.response_ns.tolist() == [8 * MS] + [16 * MS - 1] * 10


def test_a_run_in_reverse_is_merged_too():
    run = [(0, "write", i, 1) for i in reversed(range(10))]
    outcome = simulate(bios(run), flat_disk(merge=True))
    assert outcome.disks[0].requests == 1
    assert set(outcome.response_ns.tolist()) == {8 * MS}


def test_a_merged_run_costs_what_one_transfer_does():
    disk = Disk(devices.find_device("hdd-7200", "disk"))
    apart = simulate(bios([(0, "write", i, 1) for i in range(100)]), disk)
    whole = simulate(bios([(0, "write", 0, 100)]), disk)
    assert apart.disks[0].busy_ns == whole.disks[0].busy_ns
    assert set(apart.response_ns.tolist()) == set(whole.response_ns.tolist())


def test_reads_are_not_merged_with_writes():
    outcome = simulate(bios([(0, "write", 0, 1), (0, "read", 1, 1)]), flat_disk(merge=True))
    assert outcome.disks[0].merged == 0


def test_no_request_grows_beyond_the_limit():
    outcome = simulate(bios([(0, "write", i, 1) for i in range(400)]), flat_disk(merge=True))
    assert outcome.disks[0].requests == 2  # 320 pages are 1280 KiB


def test_the_soonest_reached_goes_first():
    # While the head writes at 0, three wait: it goes on upwards and leaves the far one for last.
    far = 700_000_000
    rows = [(0, "write", 0, 1), (1, "write", far, 1), (1, "write", 1000, 1), (1, "write", 2000, 1)]
    device = devices.find_device("hdd-7200", "disk")
    soonest = simulate(bios(rows), Disk(device, rotation="mean"))
    finish = soonest.arrived_ns + soonest.response_ns
    assert np.argsort(finish).tolist() == [0, 2, 3, 1]
    in_order = simulate(bios(rows), Disk(device, rotation="mean", order="arrival"))
    finish = in_order.arrived_ns + in_order.response_ns
    assert np.argsort(finish).tolist() == [0, 1, 2, 3]


def test_nobody_is_passed_over_for_ever():
    # One request far away, and near ones without end: it is passed over 32 times at most.
    near = [(1 + i, "write", 1000 + 64 * (i % 512), 1) for i in range(4000)]
    rows = [(0, "write", 0, 1), (0, "write", 900_000_000, 1), *near]
    outcome = simulate(bios(rows), Disk(devices.find_device("hdd-7200", "disk"), merge=False))
    finish = outcome.arrived_ns + outcome.response_ns
    assert (finish < finish[1]).sum() <= 34


def flat_disk(merge):
    return Disk(devices.find_device("hdd-paper", "disk"), merge=merge)
