"""Blocks smaller than a page: pages of files begin inside pages of the device."""

import dataclasses

import pytest

from tests.support.traces import make_trace
from tracer.analysis.flushlayer import devices
from tracer.analysis.flushlayer.timed import Layer, simulate
from tracer.analysis.flushlayer.timed.destage import policy_called
from tracer.analysis.flushlayer.timed.disk import Disk
from tracer.analysis.flushlayer.trace.accesses import Identity, page_writebacks
from tracer.analysis.flushlayer.trace.recorded import recorded_requests
from tracer.probes.errors import BadTrace

pytestmark = pytest.mark.slow

DEV, JOB, MS = "254:0", 7, 1_000_000
HDD = devices.find_device("hdd-paper", "disk")
PCM = devices.find_device("pcm-paper", "nvm")
SMALL = {"dev": DEV, "block_bytes": 1024}
BEGIN = 82
"""The first sector of a file of eight pages, which begins in the middle of a page of the device."""
NOBODYS = 800
"""A sector from which on no file lies."""


def event(ts, sector, sectors, name="bio_queue", rwbs="WS"):
    return {"ts": ts, "tid": JOB, "pid": JOB, "event": name, "dev": DEV, "sector": sector,
            "nr_sector": sectors, "rwbs": rwbs}  # fmt: skip


@pytest.fixture
def asked(tmp_path):
    """Returns the requests of block events, with the pages of the file."""

    def make(*block):
        extent = {"ts": 0, "tid": JOB, "event": "known", "dev": DEV, "ino": 11, "file_block": 0,
                  "disk_block": BEGIN // 2, "blocks": 32}  # fmt: skip
        tables = {"block": list(block), "extents": [extent]}
        with make_trace(tmp_path / "t", tables, file_systems=[SMALL]) as trace:
            accesses = page_writebacks(trace, None, Identity.FILE, reads=True, flushes_too=True)
            return recorded_requests(trace, accesses)

    return make


def in_order(*sectors):
    """Returns bios, 20 ms apart, of these first sectors and lengths."""
    return [event(1 + 20 * MS * n, *one) for n, one in enumerate(sectors)]


def test_a_layer_takes_two_pages_of_a_file_from_one_page_of_the_device(asked):
    # The second half of page 0 with the first half of page 1; then page 1. Four pages drive them
    # out: 4 sectors of page 0, all 8 of page 1.
    others = [(NOBODYS + 8 * n, 8) for n in range(4)]
    requests = asked(*in_order((BEGIN + 4, 8), (BEGIN + 8, 8), *others))
    assert requests.pages.tolist() == [2, 1, 1, 1, 1, 1]
    outcome = simulate(requests, Disk(HDD), Layer(4, PCM), "open")
    [layer] = outcome.layers
    assert (layer.written, layer.overwritten, layer.destaged, layer.resident) == (7, 1, 2, 4)
    assert outcome.medium.bytes_written == 512 * (8 + 8 + 4 * 8)
    assert outcome.disks[0].bytes_written == 512 * (4 + 8)


def test_the_dirty_part_of_a_page_reaches_over_two_pages_of_the_device(asked):
    requests = asked(*in_order((BEGIN + 6, 2), (BEGIN, 2), (NOBODYS, 8)))
    outcome = simulate(requests, Disk(HDD), Layer(1, PCM), "open")
    [layer] = outcome.layers
    assert (layer.written, layer.overwritten, layer.destaged, layer.resident) == (3, 1, 1, 1)
    assert outcome.disks[0].bytes_written == 512 * 8


def test_bios_of_one_request_are_one_if_they_meet_between_two_pages_of_the_file(asked):
    def merged(ts, first, *lengths):
        """Returns bios that follow each other on the disk, and their one request."""
        whole, rows = (first, sum(lengths)), []
        for n, length in enumerate(lengths):
            rows.append(event(ts + 2 * n, first, length))
            if n:
                rows.append(event(ts + 2 * n + 1, first, length, "backmerge"))
            first += length
        return [*rows, event(ts + 10, *whole, "issue"), event(ts + 8 * MS, *whole, "complete")]

    # Sector BEGIN + 22 begins a page of the device, in the middle of the file's page 2.
    requests = asked(*merged(1, BEGIN, 8, 8), *merged(20 * MS, BEGIN + 16, 6, 10))
    assert requests.pages.tolist() == [2, 1, 2]
    assert requests.ahead.tolist() == [0, 8, 0, 0, 2]
    assert requests.within.tolist() == [0, 0, 0, 6, 0]


@pytest.mark.parametrize("replay", ["open", "closed"])
@pytest.mark.parametrize("name", ["lazy", "eager", "dm-writecache-pmem", "dm-writecache-ssd"])
def test_no_page_gets_lost_by_any_way_to_destage(asked, name, replay):
    runs = [(first, length) for first in range(0, 28, 2) for length in (2, 4, 8, 12, 20)]
    requests = asked(*in_order(*((BEGIN + first, length) for first, length in runs)))
    outcome = simulate(requests, Disk(HDD), Layer(4, PCM, policy_called(name)), replay)
    [layer] = outcome.layers
    pages = [len({(first + n) // 8 for n in range(length)}) for first, length in runs]
    assert layer.written == layer.overwritten + layer.destaged + layer.resident
    assert outcome.hits.sum() == layer.overwritten
    assert layer.written == sum(pages) or name == "dm-writecache-ssd"  # it writes around a full one


@pytest.mark.parametrize(
    "begins",
    [
        {"ahead": [1, 4, 0]}, {"ahead": [0, 0, 0]}, {"ahead": [0, 4, 8]}, {"ahead": [0, 8, 0]},
        {"within": [0, 0, 8]}, {"within": None}, {"sectors": None},
    ],
)  # fmt: skip
def test_begins_of_pages_that_cannot_be_are_refused(asked, begins):
    requests = asked(*in_order((BEGIN + 4, 8), (BEGIN + 8, 8)))
    assert requests.ahead.tolist() == [0, 4, 0]
    with pytest.raises(BadTrace):
        dataclasses.replace(requests, **begins)
