"""Volatile caches of disks, flushes and FUA in the timed model: known answers by hand."""

from tests.support.bios import bios, flat
from tracer.analysis.flushlayer import devices
from tracer.analysis.flushlayer.timed import Layer, simulate
from tracer.analysis.flushlayer.timed.destage import Destage
from tracer.analysis.flushlayer.timed.disk import Disk

MS = 1_000_000
BOTH = Destage("watermark", flushes=True)
HDD = Disk(devices.find_device("hdd-paper", "disk"), merge=False)
PCM = devices.find_device("pcm-paper", "nvm")
CACHED = Disk(flat("cached", read_latency=8 * MS, write_latency=8 * MS, write_cache=8192))


def responses(rows, layer=None, disk=HDD, **more):
    return simulate(bios(rows, **more), disk, layer).response_ns.tolist()


def test_a_flush_costs_nothing_where_nothing_is_volatile():
    rows = [(0, "write", 1, 1), (1, "flush", 0, 0)]
    assert responses(rows) == [8 * MS, 0]
    assert responses(rows, Layer(4, PCM)) == [350, 0]


def test_a_disks_cache_acknowledges_early_until_it_is_full():
    # Two pages fit. The third goes to the line of the disk and waits for the two before it.
    rows = [(0, "write", 10 * i, 1) for i in range(3)]
    assert responses(rows, disk=CACHED) == [0, 0, 24 * MS]


def test_a_flush_waits_for_what_the_cache_has_accepted():
    rows = [(0, "write", 10, 1), (0, "write", 20, 1), (1, "flush", 0, 0), (17 * MS, "flush", 0, 0)]
    assert responses(rows, disk=CACHED) == [0, 0, 16 * MS - 1, 0]


def test_a_flush_does_not_wait_for_what_comes_later():
    rows = [(0, "write", 10, 1), (1, "flush", 0, 0), (2, "write", 20, 1), (3, "flush", 0, 0)]
    assert responses(rows, disk=CACHED) == [0, 8 * MS - 1, 0, 16 * MS - 3]


def test_fua_goes_past_the_cache():
    rows = [(0, "write", 10, 1), (20 * MS, "write", 20, 1)]
    assert responses(rows, disk=CACHED, fua=[False, True]) == [0, 8 * MS]
    assert responses(rows, Layer(4, PCM), disk=CACHED, fua=[False, True]) == [350, 350]


def test_an_interface_takes_its_time():
    device = flat("sata", read_latency=8 * MS, write_latency=8 * MS, write_cache=1 << 20)
    slow = flat("slow", **{k: v.low for k, v in device.parameters.items()}, interface=4.096e6)
    assert responses([(0, "write", 1, 1)], disk=Disk(slow)) == [MS]


def test_a_flush_of_a_disk_takes_its_time_and_so_does_a_write_through_its_cache():
    slow = Disk(flat("slow", read_latency=8 * MS, write_latency=8 * MS, flush_latency=5 * MS))
    rows = [(0, "flush", 0, 0), (20 * MS, "write", 80, 1)]
    through = bios(rows, fua=[False, True])
    assert simulate(through, slow).response_ns.tolist() == [5 * MS, 13 * MS]
    kept = Layer(4, PCM)
    assert simulate(through, slow, kept).response_ns.tolist() == [0, 350]
    # Medium and disk at once.
    both = Layer(4, flat("slower", "nvm", write_latency=350, flush_latency=3 * MS), BOTH)
    assert simulate(through, slow, both).response_ns.tolist() == [5 * MS, 3 * MS + 350]
    passing = Layer(4, PCM, flushes_pass=True)
    assert simulate(through, slow, passing).response_ns.tolist() == [5 * MS, 350]
    far = Layer(4, flat("far", "nvm", write_latency=100, flush_latency=2 * MS))
    assert simulate(through, slow, far).response_ns.tolist() == [2 * MS, 2 * MS + 100]


def test_a_flush_waits_for_the_layer_and_for_what_went_past_it():
    past = bios([(0, "write", 1, 1), (1 * MS, "flush", 0, 0)], waited=[False, False])
    for flush_ns, took in ((2 * MS, 7 * MS), (20 * MS, 20 * MS)):
        medium = flat("far", "nvm", write_latency=100, flush_latency=flush_ns)
        layer = Layer(4, medium, buffer="sync-only")
        assert simulate(past, CACHED, layer).response_ns.tolist() == [0, took]
