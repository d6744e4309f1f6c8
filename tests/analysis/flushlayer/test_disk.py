"""The disk: seeks by distance, rotation, transfer; SSDs; what too little is known of."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.bios import bios, flat
from tracer.analysis.flushlayer import devices
from tracer.analysis.flushlayer.timed import service, simulate
from tracer.analysis.flushlayer.timed.disk import Disk, seek_curve
from tracer.analysis.flushlayer.timed.service import positioning_ns, seek_ns, service_ns
from tracer.analysis.flushlayer.timed.state import READ, WRITE
from tracer.probes.errors import UsageError

MS = 1_000_000
HDD = devices.find_device("hdd-7200", "disk")
SHEET = {"capacity": 4e12, "rotation": 7200, "bandwidth": 150e6, "seek_read": 8 * MS}


def mechanical(**values):
    return flat("mine", **(SHEET | {"seek_write": 8 * MS} | values))


def models(device, **options):
    return Disk(device, **options).model()[None, :]


def at(curve, x):
    short = min(x, curve.cross)
    return curve.track + curve.root * math.sqrt(short) + curve.slope * (x - short)


def mean(curve):
    """The mean seek between random places, by the density 2 (1 - x) of their distance."""
    x = (np.arange(200_000) + 0.5) / 200_000
    return float(np.mean([2 * (1 - v) * at(curve, v) for v in x]))


def test_the_seek_curve_has_the_data_sheets_mean():
    curve = seek_curve(HDD, "write")
    assert at(curve, 0) == 0.32 * MS
    assert mean(curve) == pytest.approx(8.2 * MS, rel=1e-4)
    # A square root all the way: 0.32 + 7.88 * 15/8 ms.
    assert at(curve, 1) == pytest.approx((0.32 + 7.88 * 15 / 8) * MS)


@pytest.mark.parametrize("full", [16 * MS, 18 * MS, 21 * MS])
def test_a_known_full_stroke_makes_the_curve_linear_when_long(full):
    curve = seek_curve(mechanical(seek_track_write=MS, seek_full_write=full), "write")
    assert 0 < curve.cross < 1
    assert at(curve, 1) == pytest.approx(full)
    assert mean(curve) == pytest.approx(8 * MS, rel=1e-4)
    # Smooth where the two meet.
    assert curve.slope == pytest.approx(curve.root / (2 * math.sqrt(curve.cross)))


def test_seeks_that_no_disk_has_are_refused():
    with pytest.raises(UsageError, match="no seek curve has a mean"):
        seek_curve(mechanical(seek_full_write=9 * MS), "write")
    with pytest.raises(UsageError, match="no seek curve has a mean"):
        seek_curve(mechanical(seek_full_write=30 * MS), "write")
    with pytest.raises(UsageError, match=r"next track .* is longer than the mean"):
        seek_curve(mechanical(seek_track_write=9 * MS), "write")


@settings(deadline=None)
@given(st.integers(0, 3_000_000), st.integers(0, 3_000_000))
def test_a_longer_seek_takes_no_less(one, other):
    model = models(HDD)
    near, far = sorted((one, other))
    assert seek_ns(model, 0, WRITE, near) <= seek_ns(model, 0, WRITE, far)
    assert seek_ns(model, 0, WRITE, 0) == 0


@settings(deadline=None)
@given(st.integers(0, 7 * 10**9), st.integers(0, 7 * 10**9), st.integers(0, 10**15))
def test_rotation_waits_less_than_a_turn_and_ends_at_the_sector(sector, head, now):
    model = models(HDD)
    period, per_track = int(model[0, service.PERIOD_NS]), int(model[0, service.TRACK_SECTORS])
    took = positioning_ns(model, 0, WRITE, sector, head, -1, now)
    seek = round(seek_ns(model, 0, WRITE, abs(sector // per_track - head // per_track)))
    assert 0 <= took - seek < period
    assert (now + took) % period == sector % per_track * period // per_track


def test_rotation_in_the_mean_is_half_a_turn():
    model = models(HDD, rotation="mean")
    assert positioning_ns(model, 0, READ, 8, 0, 0, 0) == 8_333_333 // 2


def test_a_sequential_transfer_costs_no_seek():
    # 4096 bytes at 150 MB/s are 27,307 ns; a far random write is hundreds of times that.
    model = models(HDD)
    took, _ = service_ns(model, 0, WRITE, 800, 8, 800, 5000, 0, 5000)
    assert took == 27_307
    took, _ = service_ns(model, 0, READ, 800, 8, 800, 5000, 0, 9000)
    assert took == 27_307
    # A write that comes late has to wait until its sector comes by again.
    late, _ = service_ns(model, 0, WRITE, 800, 8, 800, 5000, 0, 9000)
    assert 27_307 < late <= 8_333_333 + 27_307


def test_random_writes_take_what_the_data_sheet_says():
    gen = np.random.default_rng(7)
    places = gen.integers(0, int(4e12) // 4096, 20_000).tolist()
    rows = [(i * 100 * MS, "write", place, 1) for i, place in enumerate(places)]
    outcome = simulate(bios(rows), Disk(HDD))
    # Seek 8.2, half a turn 4.17, transfer 0.03 ms; a mean of 20,000 is good to 0.5 %.
    assert outcome.response_ns.mean() == pytest.approx(12.394 * MS, rel=0.005)


def test_a_recorded_disk_may_be_longer_than_the_model():
    beyond = int(4e12) // 512 * 10
    assert Disk(HDD).model(beyond)[service.TRACKS] == pytest.approx(
        10 * Disk(HDD).model()[service.TRACKS], rel=1e-5
    )


def test_overhead_comes_with_every_request():
    device = flat("slow", read_latency=MS, write_latency=MS, overhead=1000)
    assert simulate(bios([(0, "write", 1, 1)]), Disk(device)).response_ns.tolist() == [MS + 1000]


@pytest.mark.parametrize("left_out", ["rotation", "capacity", "bandwidth"])
def test_a_disk_of_which_too_little_is_known_is_refused(left_out):
    values = {k: v for k, v in SHEET.items() if k != left_out}
    with pytest.raises(UsageError, match=f"mine has no {left_out}"):
        Disk(flat("mine", seek_write=8 * MS, **values)).model()
    with pytest.raises(UsageError, match="dt01aca100 has no write_latency"):
        Disk(devices.find_device("dt01aca100", "disk")).model()


@pytest.mark.parametrize("name", ["ssd-sata", "ssd-nvme", "optane-ssd-p4800x"])
@pytest.mark.parametrize("op", ["read", "write"])
def test_an_ssd_is_as_fast_as_rated_alone_and_together(name, op):
    device = devices.find_device(name, "disk")
    alone = simulate(bios([(0, op, 0, 1)]), Disk(device)).response_ns[0]
    assert alone == pytest.approx(devices.page_ns(device, op), abs=2)
    many = simulate(bios([(0, op, 7 * i, 1) for i in range(50_000)]), Disk(device, merge=False))
    rate = 50_000 / (many.end_ns / 1e9)
    rated = min(device.value(f"iops_{op}"), device.value(f"bandwidth_{op}") / 4096)
    assert rate == pytest.approx(rated, rel=0.02)


@pytest.mark.parametrize("name", ["hdd-paper", "hdd-7200", "ssd-nvme"])
def test_a_model_says_what_it_assumes(name):
    said = Disk(devices.find_device(name, "disk")).assumptions()
    assert said
    assert all(line.startswith(f"{name}: ") for line in said)


def test_requests_that_the_device_has_already_are_not_merged():
    # One is served; the device has a second one. The third, adjacent to it, comes later.
    rows = [(0, "write", 500, 1), (1, "write", 10, 1), (2, "write", 11, 1)]
    for depth, requests in ((1, 2), (2, 3), (32, 3)):
        disk = Disk(flat("x", read_latency=MS, write_latency=MS, queue_depth=depth))
        assert simulate(bios(rows), disk).disks[0].requests == requests
    together = [(0, "write", 500, 1), (1, "write", 10, 1), (1, "write", 11, 1)]
    assert simulate(bios(together), disk).disks[0].requests == 2
