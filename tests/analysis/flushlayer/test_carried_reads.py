"""Reads below stacked devices have the files of the reads above them.

A file moves to another place of the file system's device between two reads of it. So a read below
has the page of an earlier one only if both are found in the file.
"""

import pytest

from tests.analysis.views.test_carried import (
    AT,
    BCACHE,
    BEHIND,
    CRYPT,
    DISK,
    DISKS,
    JOB,
    LOOP,
    MAPPED,
    MIRROR,
    PART,
    PROCESSES,
    TOP,
    bio,
    extent,
    remap,
    stacked,
)
from tests.support.traces import make_trace
from tracer.analysis.flushlayer.trace.accesses import Identity, page_writebacks

SECOND, FAR = "8:2", 1_100_000
"""Another partition of the disk, and its first sector."""
OTHER, SSD = "253:2", "8:32"
MOVED = 100
"""The time (ns) at which files move."""


def read(ts, dev, sector, sectors=8, tid=JOB):
    return bio(ts, dev, sector, sectors, tid) | {"rwbs": "R"}


def passed(ts, dev, sector, from_dev, from_sector, sectors=8, tid=JOB):
    """The remap of a read."""
    return remap(ts, dev, sector, from_dev, from_sector, sectors, tid) | {"rwbs": "R"}


def on_partition(ts, sector, sectors=8, *, lost=()):
    """A read of a volume on the partition, and what comes of it: all but the events that are lost.

    All of its events have one time.
    """
    below = AT + sector
    events = {
        "read": read(ts, MAPPED, sector, sectors),
        "by the volume": passed(ts, DISK, sector, MAPPED, sector, sectors),
        "by the partition": passed(ts, DISK, below, PART, sector, sectors),
        "below": read(ts, DISK, below, sectors),
    }
    return [event for name, event in events.items() if name not in lost]


def moves(dev, first, then, pages=1):
    """The extents of a file that lies on pages of a device, and moves to others."""
    return extent(dev, first, pages), extent(dev, then, pages, ts=MOVED)


def recorded(folder, block, *uppers, tops=(MAPPED,), extents):
    """A trace with these stacked devices, and a file system on each of `tops`."""
    return make_trace(
        folder / "t",
        {"processes": PROCESSES, "block": block, "extents": sorted(extents, key=lambda e: e["ts"])},
        disks=[*DISKS, {"dev": SECOND, "bytes": 1 << 28, "partition_of": DISK, "start": FAR},
               *uppers],
        mounts=[{"dev": dev, "path": f"/{dev}", "type": "ext4", "source": "x"} for dev in tops],
        file_systems=[{"dev": dev, "block_bytes": 4096} for dev in tops],
    )  # fmt: skip


def by_file(trace, *devices):
    """The page that each bio to these devices accesses, and the number of those in a file."""
    found = page_writebacks(trace, list(devices), Identity.FILE, reads=True, all_writers=True)
    return found.page.tolist(), found.by_mapping["file"]


def test_a_read_below_has_the_pages_of_the_file_above(tmp_path):
    block = [*on_partition(10, 80, 16), *on_partition(110, 160, 16)]
    extents = moves(MAPPED, 10, 20, 2)
    with recorded(tmp_path, block, stacked(MAPPED, PART), extents=extents) as trace:
        for device in (MAPPED, PART, DISK):
            assert by_file(trace, device) == ([0, 1, 0, 1], 4)


def test_a_read_is_followed_through_all_levels_also_if_it_is_split(tmp_path):
    block = []
    for ts, sector in ((10, 80), (110, 160)):
        block += [read(ts, TOP, sector, 16), passed(ts, MAPPED, sector + 800, TOP, sector, 16)]
        block += [read(ts, MAPPED, sector + 800, 16)]
        for dev, half in ((DISK, 0), (MIRROR, 8)):
            block += [passed(ts, dev, sector // 2, MAPPED, sector + 800 + half)]
            block += [read(ts, dev, sector // 2)]
    uppers, extents = (stacked(TOP, MAPPED), stacked(MAPPED, DISK, MIRROR)), moves(TOP, 10, 20, 2)
    with recorded(tmp_path, block, *uppers, tops=[TOP], extents=extents) as trace:
        for devices in ([TOP], [MAPPED], [DISK, MIRROR]):
            assert by_file(trace, *devices) == ([0, 1, 0, 1], 4)
        assert by_file(trace, MIRROR) == ([0, 0], 2)


@pytest.mark.parametrize("step", [0, 1])
def test_another_thread_may_hand_reads_on_later_and_in_another_order(tmp_path, step):
    block = [read(10, MAPPED, 80), read(10 + step, MAPPED, 88)]
    for number, sector in enumerate((88, 80), 2):
        ts = 10 + number * step
        block += [passed(ts, DISK, sector, MAPPED, sector, tid=CRYPT)]
        block += [read(ts, DISK, sector, tid=CRYPT)]
    for sector in (160, 168):
        block += [read(110, MAPPED, sector), passed(110, DISK, sector, MAPPED, sector)]
        block += [read(110, DISK, sector)]
    extents = moves(MAPPED, 10, 20, 2)
    with recorded(tmp_path, block, stacked(MAPPED, DISK), extents=extents) as trace:
        assert by_file(trace, MAPPED) == ([0, 1, 0, 1], 4)
        assert by_file(trace, DISK) == ([0, 1, 1, 0], 4)


def test_two_volumes_on_one_disk_keep_their_files_apart(tmp_path):
    """Their files have one inode number, and lie at one place of their volumes."""
    block = []
    for ts, sector in ((10, 80), (110, 160)):
        for upper, first in ((MAPPED, 0), (OTHER, 4096)):
            block += [read(ts, upper, sector), passed(ts, DISK, first + sector, upper, sector)]
            block += [read(ts, DISK, first + sector)]
    uppers = stacked(MAPPED, DISK), stacked(OTHER, DISK)
    extents = [*moves(MAPPED, 10, 20), *moves(OTHER, 10, 20)]
    with recorded(tmp_path, block, *uppers, tops=[MAPPED, OTHER], extents=extents) as trace:
        assert by_file(trace, DISK) == ([0, 1, 0, 1], 4)


def test_volumes_on_two_partitions_of_one_disk_keep_their_files_apart(tmp_path):
    """The remaps of both volumes name the disk, and the same sector, counted on the partitions."""
    block = []
    for ts, sector in ((10, 80), (110, 160)):
        each = ((MAPPED, PART, AT), (OTHER, SECOND, FAR))
        block += [read(ts, upper, sector) for upper, _, _ in each]
        block += [passed(ts, DISK, sector, upper, sector) for upper, _, _ in each]
        for _, part, first in reversed(each):
            block += [passed(ts, DISK, first + sector, part, sector)]
            block += [read(ts, DISK, first + sector)]
    uppers = stacked(MAPPED, PART), stacked(OTHER, SECOND)
    extents = [*moves(MAPPED, 10, 20), *moves(OTHER, 10, 20)]
    with recorded(tmp_path, block, *uppers, tops=[MAPPED, OTHER], extents=extents) as trace:
        assert by_file(trace, DISK) == ([0, 1, 0, 1], 4)
        assert by_file(trace, PART) == by_file(trace, SECOND) == ([0, 0], 2)


def test_a_file_system_on_another_partition_keeps_its_files(tmp_path):
    block = []
    for ts, sector in ((10, 80), (110, 160)):
        block += on_partition(ts, sector)
        # A partition remaps reads of its file system, too.
        block += [passed(ts, DISK, FAR + sector, SECOND, sector), read(ts, DISK, FAR + sector)]
    extents = [*moves(MAPPED, 10, 20), *moves(SECOND, 10, 20)]
    upper, tops = stacked(MAPPED, PART), [MAPPED, SECOND]
    with recorded(tmp_path, block, upper, tops=tops, extents=extents) as trace:
        assert by_file(trace, DISK) == ([0, 1, 0, 1], 4)


def test_reads_of_the_device_itself_have_no_file(tmp_path):
    block = [read(10, OTHER, 80), passed(10, MIRROR, 80, OTHER, 80), read(10, MIRROR, 80)]
    block += [read(20, MIRROR, 80), *on_partition(30, 80)]
    block += [passed(40, DISK, AT + 80, PART, 80), read(40, DISK, AT + 80), *on_partition(110, 160)]
    uppers = stacked(MAPPED, PART), stacked(OTHER, MIRROR)
    extents = [*moves(MAPPED, 10, 20), extent(OTHER, 10, 1)]
    with recorded(tmp_path, block, *uppers, tops=[MAPPED, OTHER], extents=extents) as trace:
        assert by_file(trace, MIRROR) == ([0, 1], 1)
        assert by_file(trace, DISK) == ([0, 1, 0], 2)


@pytest.mark.parametrize(
    "lost", [["by the volume"], ["by the partition"], ["by the volume", "by the partition"]]
)
def test_a_read_whose_remap_is_lost_has_no_file_and_the_next_one_has(tmp_path, lost):
    block = [*on_partition(10, 80), *on_partition(20, 80, lost=lost), *on_partition(110, 160)]
    with recorded(tmp_path, block, stacked(MAPPED, PART), extents=moves(MAPPED, 10, 20)) as trace:
        assert by_file(trace, DISK) == ([0, 1, 0], 2)


def test_a_read_that_is_lost_itself_takes_no_file_from_another_one(tmp_path):
    block = [*on_partition(10, 80), *on_partition(20, 88, lost=["read"]), *on_partition(110, 160)]
    extents = moves(MAPPED, 10, 20, 2)
    with recorded(tmp_path, block, stacked(MAPPED, PART), extents=extents) as trace:
        assert by_file(trace, DISK) == ([0, 1, 0], 2)


def test_a_read_does_not_follow_the_remap_of_a_write(tmp_path):
    block = [bio(10, MAPPED, 80, tid=JOB), remap(11, DISK, 80, MAPPED, 80), read(12, DISK, 80)]
    block += [bio(13, DISK, 80), read(110, MAPPED, 160), passed(111, DISK, 160, MAPPED, 160)]
    block += [read(112, DISK, 160)]
    extents = moves(MAPPED, 10, 20)
    with recorded(tmp_path, block, stacked(MAPPED, DISK), extents=extents) as trace:
        assert by_file(trace, DISK) == ([0, 1, 1], 2)


@pytest.mark.parametrize("written", [True, False])
def test_a_read_of_a_mirror_has_the_page_of_the_disk_that_serves_it(tmp_path, written):
    """Each disk has a copy of the page, which is a page of its own."""
    block = []
    if written:
        block += [bio(10, MAPPED, 80, tid=JOB)]
        block += [remap(10, dev, 80, MAPPED, 80) for dev in (DISK, MIRROR)]
        block += [bio(10, dev, 80) for dev in (DISK, MIRROR)]
    for ts, sector, dev in (
        (20, 80, DISK), (30, 80, MIRROR), (110, 160, MIRROR), (120, 160, DISK)
    ):  # fmt: skip
        block += [read(ts, MAPPED, sector), passed(ts, dev, sector, MAPPED, sector)]
        block += [read(ts, dev, sector)]
    upper, extents = stacked(MAPPED, DISK, MIRROR), moves(MAPPED, 10, 20)
    with recorded(tmp_path, block, upper, extents=extents) as trace:
        pages = [0, 1] * written + [0, 1, 1, 0]
        assert by_file(trace, DISK, MIRROR) == (pages, len(pages))
        assert by_file(trace, MIRROR) == ([0] * (2 + written), 2 + written)


def test_reads_below_a_loop_device_and_bcache_have_no_file(tmp_path):
    """Those of a volume on them have one: there, remaps tell it."""
    loop = stacked(LOOP, PART, backing_file="/dev/sda1", backing_ino=None, backing_offset=0)
    block = []
    for ts, sector in ((10, 80), (110, 160)):
        for upper, middle in ((MAPPED, LOOP), (OTHER, BCACHE)):
            block += [read(ts, upper, sector), passed(ts, middle, sector, upper, sector)]
            block += [read(ts, middle, sector)]
        block += [read(ts, DISK, AT + sector), read(ts, MIRROR, sector + 16)]
    bcache = stacked(BCACHE, MIRROR, SSD, **BEHIND | {"backing_dev": MIRROR})
    uppers = loop, bcache, stacked(MAPPED, LOOP), stacked(OTHER, BCACHE)
    extents = [*moves(MAPPED, 10, 20), *moves(OTHER, 10, 20)]
    with recorded(tmp_path, block, *uppers, tops=[MAPPED, OTHER], extents=extents) as trace:
        assert by_file(trace, LOOP) == by_file(trace, BCACHE) == ([0, 0], 2)
        assert by_file(trace, DISK) == by_file(trace, MIRROR) == ([0, 1], 0)


def test_the_what_if_of_the_disk_below_serves_the_reads_that_the_volumes_does(tracer, tmp_path):
    """A job reads 8 pages of a file three times, each time at another place."""
    block, extents = [], []
    for turn in range(3):
        first = 100 * (turn + 1)
        extents.append(extent(MAPPED, first, 8, ts=MOVED * (turn + 1)))
        for page in range(8):
            block += on_partition(MOVED * (turn + 1) + 1 + page, 8 * (first + page))
    recorded(tmp_path, block, stacked(MAPPED, PART), extents=extents).close()
    options = ("--buffer", "read-write", "--capacity-pages", 12, "--identity", "file", "--json")
    for dev in (MAPPED, PART, DISK):
        told = tracer("simulate", "t", *options, "--all-writers", "--dev", dev).json
        assert (told["reads"], told["read_hits"]) == (24, 16)
