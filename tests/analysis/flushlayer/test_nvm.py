"""The medium: latency, bandwidth, grain; wear, lifetime, energy."""

import math

import pytest

from tests.support.bios import bios, flat
from tracer.analysis.flushlayer import devices
from tracer.analysis.flushlayer.timed import Layer, simulate
from tracer.analysis.flushlayer.timed.disk import Disk
from tracer.analysis.flushlayer.timed.electronic import assumptions
from tracer.analysis.flushlayer.timed.nvm import DAY_S, YEAR_S, energy_j, wear
from tracer.probes.errors import UsageError

HDD = Disk(devices.find_device("hdd-paper", "disk"))
GIB = 1 << 30


def write(medium, pages=1):
    outcome = simulate(bios([(0, "write", 0, pages)]), HDD, Layer(1024, medium))
    return int(outcome.response_ns[0])


def test_latency_comes_before_the_transfer():
    assert write(flat("m", kind="nvm", write_latency=100, bandwidth=1e9), pages=2) == 100 + 8192


def test_a_medium_writes_whole_grains():
    assert write(flat("m", kind="nvm", bandwidth=1e9, grain=3000)) == 6000
    assert write(flat("m", kind="nvm", bandwidth=1e9, grain=256)) == 4096


def test_persistent_memory_writes_at_its_bandwidth():
    # 4096 B at 2.3 GB/s; the latency of a store is not known.
    assert write(devices.find_device("optane-pmem", "nvm")) == 1781


def test_a_medium_of_unknown_bandwidth_takes_a_latency_a_page():
    assert write(devices.find_device("pcm-paper", "nvm"), pages=10) == 3500
    said = assumptions(devices.find_device("pcm-paper", "nvm"))
    assert any("bandwidth is not known" in line for line in said)


def test_an_ssd_can_be_the_medium():
    assert write(devices.find_device("ssd-nvme", "nvm")) == 20_000


def test_a_medium_of_which_nothing_is_known_is_refused():
    with pytest.raises(UsageError, match="m has no write_latency or bandwidth_write"):
        write(flat("m", kind="nvm", grain=256))


def test_lifetime_is_endurance_times_capacity_by_rate():
    # 1 GiB written a second on 1 GiB: a cycle a second.
    pcm = devices.find_device("pcm-generic", "nvm")
    worn = wear(pcm, GIB, 10 * GIB, 10)
    assert worn.cycles_per_year == YEAR_S
    low, high = worn.lifetime_years
    assert low == pytest.approx(1e8 / YEAR_S)
    assert high == pytest.approx(1e12 / YEAR_S)
    # Twice the capacity lives twice as long, twice the rate half as long.
    assert wear(pcm, 2 * GIB, 10 * GIB, 10).lifetime_years[0] == pytest.approx(2 * low)
    assert wear(pcm, GIB, 20 * GIB, 10).lifetime_years[0] == pytest.approx(low / 2)


def test_lifetime_of_unknown_endurance_is_unknown():
    assert wear(devices.find_device("pcm-paper", "nvm"), GIB, GIB, 1).lifetime_years is None


def test_lifetime_beyond_a_lower_bound_is_open():
    low, high = wear(devices.find_device("stt-mram", "nvm"), GIB, GIB, 1).lifetime_years
    assert low == pytest.approx(1e16 / YEAR_S)
    assert high == math.inf


def test_cells_that_are_not_written_do_not_wear():
    assert wear(devices.find_device("pcm-generic", "nvm"), GIB, 0, 1).lifetime_years == (
        math.inf,
        math.inf,
    )


def test_a_rated_drive_is_compared_with_its_rating():
    # 30 drive writes a day are rated; 15 are half of that.
    optane = devices.find_device("optane-ssd-p4800x", "nvm")
    worn = wear(optane, GIB, 15 * GIB, DAY_S)
    assert worn.rated_share == (pytest.approx(0.5), pytest.approx(0.5))
    assert worn.lifetime_years is None


@pytest.mark.parametrize(
    "given", [(0, 1, 1), (GIB, -1, 1), (GIB, 1, 0), (math.nan, 1, 1), (GIB, math.inf, 1)]
)
def test_rates_that_cannot_be_are_refused(given):
    with pytest.raises(UsageError, match="cannot be"):
        wear(devices.find_device("pcm-generic", "nvm"), *given)


def test_energy_is_power_while_it_works():
    # 13 W; 1000 pages one after another at 10 us are 10 ms of one channel.
    optane = devices.find_device("optane-ssd-p4800x", "nvm")
    rows = [(i * 1_000_000, "write", i, 1) for i in range(1000)]
    use = simulate(bios(rows), HDD, Layer(2000, optane)).medium
    assert energy_j(optane, use) == pytest.approx(13 * 0.01 / use.channels)
    assert energy_j(devices.find_device("pcm-paper", "nvm"), use) is None


def test_an_unused_medium_takes_no_energy():
    use = simulate(bios([]), HDD, Layer(10, devices.find_device("pcm-paper", "nvm"))).medium
    assert energy_j(devices.find_device("pcm-paper", "nvm"), use) == 0
