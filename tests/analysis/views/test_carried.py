"""Writes below stacked devices have the reason, file and dirtier of the write above them."""

from itertools import combinations

import pytest

from tests.support.traces import make_trace
from tracer.analysis.flushlayer.trace.accesses import Identity, page_writebacks
from tracer.analysis.report.writeback import FLUSHED_PAGES
from tracer.analysis.views.writing.flushes import flushes

pytestmark = pytest.mark.slow

JOB, OTHER, CRYPT = 7, 8, 60
DISK, PART, MIRROR, MAPPED, TOP, LOOP = "8:0", "8:1", "8:16", "253:0", "253:1", "7:0"
AT = 1000
"""The sector at which the partition begins."""
DISKS = [
    {"dev": DISK, "bytes": 1 << 30},
    {"dev": PART, "bytes": 1 << 29, "partition_of": DISK, "start": AT},
    {"dev": MIRROR, "bytes": 1 << 30},
]
FILE, SECOND = 77, 78
PROCESSES = [
    {"pid": JOB, "tid": JOB, "role": "target", "target": "job"},
    {"pid": OTHER, "tid": OTHER, "role": "other"},
    {"pid": CRYPT, "tid": CRYPT, "ppid": 2, "role": "other"},
]


def bio(ts, dev, sector, sectors=8, tid=CRYPT):
    named = {"dev": dev, "sector": sector, "nr_sector": sectors, "rwbs": "WS"}
    return {"ts": ts, "tid": tid, "pid": tid, "event": "bio_queue", **named}


def remap(ts, dev, sector, from_dev, from_sector, sectors=8, tid=CRYPT):
    came = {"from_dev": from_dev, "from_sector": from_sector}
    return bio(ts, dev, sector, sectors, tid) | {"event": "remap"} | came


def stacked(dev, *on, **more):
    return {"dev": dev, "bytes": 1 << 30, "on": list(on), **more}


def trace_of(folder, top, block, *uppers, file_writes=(), extents=()):
    """A job's fsync of a file on the device `top`, and these events of the block layer."""
    fsync = {"ts": 5, "tid": JOB, "pid": JOB, "nr": 74, "name": "fsync", "dur_ns": 1000}
    named = {"tid": JOB, "pid": JOB, "dev": top, "ino": FILE}
    tables = {
        "processes": PROCESSES,
        "syscalls": [fsync],
        "dirty": [{"ts": 2, "event": "dirty_folio", **named}],
        "file_writes": [
            {"ts": 6, "event": "fsync_start", **named},
            {"ts": 7, "event": "writepages_start", **named},
            *file_writes,
        ],
        "extents": list(extents),
        "block": block,
    }
    mounts = [{"dev": top, "path": "/", "type": "ext4", "source": "x"}]
    systems = [{"dev": top, "block_bytes": 4096}]
    return make_trace(folder, tables, disks=[*DISKS, *uppers], mounts=mounts, file_systems=systems)


KNOWN = ("fsync", FILE, JOB)


def told(trace):
    """The device, reason, inode and dirtier of each write, and whether it is below another."""
    flushes(trace)
    rows = trace.rows("SELECT dev, reason, ino, dirtier, below FROM flushes ORDER BY row")
    return [(dev, (reason, ino, dirtier), below) for dev, reason, ino, dirtier, below in rows]


def test_another_thread_hands_on_what_a_job_wrote_to_a_device_on_a_partition(tmp_path):
    block = [
        bio(10, MAPPED, 80, tid=JOB),
        # First the sector of the partition, then that of the disk.
        remap(20, DISK, 80, MAPPED, 80),
        remap(21, DISK, AT + 80, PART, 80),
        bio(22, DISK, AT + 80),
    ]
    with trace_of(tmp_path / "t", MAPPED, block, stacked(MAPPED, PART)) as trace:
        assert told(trace) == [(MAPPED, KNOWN, False), (DISK, KNOWN, True)]
        assert FLUSHED_PAGES.of(trace)[["reason", "pages"]].values.tolist() == [["fsync", 1]]


def test_every_level_and_every_copy_is_known(tmp_path):
    block = [bio(10, TOP, 80, tid=JOB), remap(20, MAPPED, 880, TOP, 80), bio(21, MAPPED, 880)]
    # Both copies are made before either is sent.
    block += [remap(30, DISK, 16, MAPPED, 880), remap(31, MIRROR, 24, MAPPED, 880)]
    block += [bio(32, DISK, 16), bio(33, MIRROR, 24)]
    uppers = stacked(TOP, MAPPED), stacked(MAPPED, DISK, MIRROR)
    with trace_of(tmp_path / "t", TOP, block, *uppers) as trace:
        assert told(trace) == [
            (TOP, KNOWN, False),
            *((d, KNOWN, True) for d in (MAPPED, DISK, MIRROR)),
        ]


def test_the_parts_of_a_split_write_are_known(tmp_path):
    block = [bio(10, MAPPED, 80, 64, tid=JOB)]
    block += [remap(20, DISK, 8, MAPPED, 80, 32), bio(21, DISK, 8, 32)]
    block += [remap(22, MIRROR, 8, MAPPED, 112, 32), bio(23, MIRROR, 8, 32)]
    with trace_of(tmp_path / "t", MAPPED, block, stacked(MAPPED, DISK, MIRROR)) as trace:
        assert told(trace)[1:] == [(DISK, KNOWN, True), (MIRROR, KNOWN, True)]


@pytest.mark.parametrize("parts", [(8, 8), (8, 16)])
def test_a_part_that_begins_where_an_older_write_did_is_of_the_later_one(tmp_path, parts):
    block = [bio(10, MAPPED, 88, tid=JOB), remap(11, DISK, 8, MAPPED, 88), bio(12, DISK, 8)]
    block += [bio(20, MAPPED, 80, sum(parts), tid=JOB)]
    block += [remap(21, MIRROR, 8, MAPPED, 80, parts[0]), bio(22, MIRROR, 8, parts[0])]
    block += [remap(23, DISK, 8, MAPPED, 88, parts[1]), bio(24, DISK, 8, parts[1])]
    named = {"ts": 15, "tid": JOB, "pid": JOB, "event": "writepages_start", "dev": MAPPED}
    files = [named | {"ino": SECOND}]
    uppers = stacked(MAPPED, DISK, MIRROR)
    with trace_of(tmp_path / "t", MAPPED, block, uppers, file_writes=files) as trace:
        inodes = [ino for _, (_, ino, _), _ in told(trace)]
        assert inodes == [FILE, FILE, SECOND, SECOND, SECOND]


def test_a_part_is_of_the_write_at_its_sector_not_of_the_last_one_to_its_page(tmp_path):
    block = [bio(10, MAPPED, 160, 16, tid=JOB)]
    block += [remap(11, DISK, 160, MAPPED, 160), bio(12, DISK, 160)]
    block += [remap(13, MIRROR, 168, MAPPED, 168), bio(14, MIRROR, 168)]
    # Both are less than a page. The second one is sent before the first one is handed on.
    block += [bio(20, MAPPED, 80, 2, tid=JOB), bio(30, MAPPED, 82, 2, tid=JOB)]
    block += [remap(31, DISK, 80, MAPPED, 80, 2), bio(32, DISK, 80, 2)]
    named = {"ts": 25, "tid": JOB, "pid": JOB, "event": "writepages_start", "dev": MAPPED}
    files = [named | {"ino": SECOND}]
    uppers = stacked(MAPPED, DISK, MIRROR)
    with trace_of(tmp_path / "t", MAPPED, block, uppers, file_writes=files) as trace:
        inodes = [ino for _, (_, ino, _), _ in told(trace)]
        assert inodes == [FILE, FILE, FILE, FILE, SECOND, FILE]


def test_a_write_that_no_remap_precedes_is_not_another_ones(tmp_path):
    block = [bio(10, MAPPED, 80, tid=JOB), remap(20, DISK, 80, MAPPED, 80), bio(21, DISK, 80)]
    # The device's own write to the same place, later; and one of a file system on the partition.
    block += [bio(30, DISK, 80), remap(40, DISK, AT + 80, PART, 80), bio(41, DISK, AT + 80)]
    with trace_of(tmp_path / "t", MAPPED, block, stacked(MAPPED, DISK)) as trace:
        nothing = (DISK, ("other", None, None), True)
        assert told(trace)[1:] == [(DISK, KNOWN, True), nothing, nothing]


def test_a_write_to_the_partition_itself_is_not_that_of_the_device_on_it(tmp_path):
    block = [bio(10, MAPPED, 80, tid=JOB), remap(20, DISK, 80, MAPPED, 80)]
    block += [remap(21, DISK, AT + 80, PART, 80), bio(22, DISK, AT + 80)]
    # Later, and at the same place.
    block += [remap(40, DISK, AT + 80, PART, 80), bio(41, DISK, AT + 80)]
    with trace_of(tmp_path / "t", MAPPED, block, stacked(MAPPED, PART)) as trace:
        nothing = (DISK, ("other", None, None), True)
        assert told(trace)[1:] == [(DISK, KNOWN, True), nothing]


@pytest.mark.parametrize("first", list(combinations(range(6), 3)))
def test_volumes_on_the_same_two_partitions_keep_their_writes_apart(tmp_path, first):
    """Two threads hand on at the same time, each to the same sector of another partition."""
    theirs, far = "8:2", 1_100_000
    to_first = [remap(0, DISK, 80, MAPPED, 80, tid=JOB), remap(0, DISK, AT + 80, PART, 80, tid=JOB)]
    to_first += [bio(0, DISK, AT + 80, tid=JOB)]
    to_second = [remap(0, DISK, 80, TOP, 400, tid=OTHER)]
    to_second += [remap(0, DISK, far + 80, theirs, 80, tid=OTHER)]
    to_second += [bio(0, DISK, far + 80, tid=OTHER)]
    block = [bio(10, MAPPED, 80, tid=JOB), bio(11, TOP, 400, tid=OTHER)]
    for n in range(6):
        block.append((to_first if n in first else to_second).pop(0) | {"ts": 20 + n})
    named = {"ts": 9, "tid": OTHER, "pid": OTHER, "event": "writepages_start", "dev": TOP}
    part = {"dev": theirs, "bytes": 1 << 29, "partition_of": DISK, "start": far}
    uppers = part, stacked(MAPPED, PART, theirs), stacked(TOP, PART, theirs)
    with trace_of(
        tmp_path / "t", MAPPED, block, *uppers, file_writes=[named | {"ino": SECOND}]
    ) as trace:
        flushes(trace)
        below = trace.rows("SELECT sector, ino FROM flushes WHERE below ORDER BY sector")
        assert below == [(AT + 80, FILE), (far + 80, SECOND)]


def test_a_bio_that_is_longer_than_any_of_the_kernel_has_no_parts(tmp_path):
    block = [bio(10, MAPPED, 80, 1 << 40, tid=JOB)]
    block += [remap(11, DISK, 88, MAPPED, 88), bio(12, DISK, 88)]
    block += [bio(20, MAPPED, 80, 16, tid=JOB), remap(21, DISK, 88, MAPPED, 88), bio(22, DISK, 88)]
    with trace_of(tmp_path / "t", MAPPED, block, stacked(MAPPED, DISK)) as trace:
        lower = [what == KNOWN for dev, what, _ in told(trace) if dev == DISK]
        assert lower == [False, True]


@pytest.mark.parametrize(("offset", "known"), [(0, True), (16, False)])
def test_a_loop_device_on_a_partition_needs_no_remap(tmp_path, offset, known):
    loop = stacked(LOOP, PART, backing_file="/dev/sda1", backing_ino=None, backing_offset=offset)
    block = [bio(10, LOOP, 80, tid=JOB), bio(20, DISK, AT + 80)]
    with trace_of(tmp_path / "t", LOOP, block, loop) as trace:
        assert (told(trace)[1] == (DISK, KNOWN, True)) is known


def test_a_trace_without_the_origins_of_remaps_says_what_the_thread_below_did(tmp_path):
    block = [bio(10, MAPPED, 80, tid=JOB), remap(20, DISK, 80, None, None), bio(21, DISK, 80)]
    with trace_of(tmp_path / "t", MAPPED, block, stacked(MAPPED, DISK)) as trace:
        assert told(trace) == [(MAPPED, KNOWN, False), (DISK, ("other", None, None), True)]


def test_a_write_to_no_known_device_is_nobodys(tmp_path):
    block = [bio(10, MAPPED, 80, tid=JOB), bio(11, None, 80, tid=OTHER)]
    with trace_of(tmp_path / "t", MAPPED, block, stacked(MAPPED, DISK)) as trace:
        assert told(trace)[1] == (None, ("other", None, None), False)
        assert page_writebacks(trace, all_writers=True).by_device == {MAPPED: 1}


BCACHE, CACHE = "252:0", MIRROR
BEHIND = {"backing_dev": DISK, "backing_offset": 16}
"""bcache on a disk: its superblock takes the first sectors."""


def cached(folder, *block, on=(DISK, CACHE), behind=BEHIND, **told):
    bcache = stacked(BCACHE, *on, **behind)
    return trace_of(folder / "t", BCACHE, list(block), bcache, **told)


def of_metadata(bio):
    return bio | {"rwbs": "WSM"}


def test_a_write_through_bcache_counts_once_and_both_copies_are_known(tmp_path):
    block = [bio(10, BCACHE, 80, tid=JOB), bio(11, DISK, 96, tid=JOB), bio(12, CACHE, 640, tid=JOB)]
    with cached(tmp_path, *block) as trace:
        assert told(trace) == [(BCACHE, KNOWN, False), (DISK, KNOWN, True), (CACHE, KNOWN, True)]
        assert FLUSHED_PAGES.of(trace)[["reason", "pages"]].values.tolist() == [["fsync", 1]]
        accesses = page_writebacks(trace, all_writers=True)
        assert (accesses.by_device, accesses.below) == ({BCACHE: 1}, {DISK: 1, CACHE: 1})


def test_late_writes_of_bcache_to_the_disk_are_below_and_are_no_known_writes(tmp_path):
    block = [bio(10, BCACHE, 80, 16, tid=JOB)]
    # The cache had no room for both pages in one place.
    block += [bio(11, CACHE, 640, tid=JOB), bio(12, CACHE, 1280, tid=JOB), bio(50, DISK, 96, 16)]
    with cached(tmp_path, *block) as trace:
        later = (DISK, ("other", None, None), True)
        assert told(trace)[1:] == [(CACHE, KNOWN, True), (CACHE, KNOWN, True), later]
        assert page_writebacks(trace, all_writers=True).by_device == {BCACHE: 2}


def test_several_writes_may_come_before_the_copies_of_the_first(tmp_path):
    block = [bio(10, BCACHE, 80, tid=JOB), bio(20, BCACHE, 160, 16, tid=JOB)]
    block += [bio(21, DISK, 96, tid=JOB), bio(22, CACHE, 640, tid=JOB)]
    block += [bio(23, DISK, 176, 16, tid=JOB), bio(24, CACHE, 648, tid=JOB)]
    # bcache's own metadata, then the rest of the second write.
    block += [of_metadata(bio(25, CACHE, 64, tid=JOB)), bio(26, CACHE, 1280, tid=JOB)]
    named = {"ts": 15, "tid": JOB, "pid": JOB, "event": "writepages_start", "dev": BCACHE}
    with cached(tmp_path, *block, file_writes=[named | {"ino": SECOND}]) as trace:
        inodes = [ino for _, (_, ino, _), _ in told(trace)]
        assert inodes == [FILE, SECOND, FILE, FILE, SECOND, SECOND, None, SECOND]


def test_a_mapped_device_may_lie_on_bcache(tmp_path):
    block = [bio(10, TOP, 80, tid=JOB), remap(11, BCACHE, 880, TOP, 80, tid=JOB)]
    block += [bio(12, BCACHE, 880, tid=JOB), bio(13, DISK, 896, tid=JOB)]
    block += [bio(14, CACHE, 640, tid=JOB)]
    uppers = stacked(TOP, BCACHE), stacked(BCACHE, DISK, CACHE, **BEHIND)
    with trace_of(tmp_path / "t", TOP, block, *uppers) as trace:
        assert told(trace)[1:] == [(dev, KNOWN, True) for dev in (BCACHE, DISK, CACHE)]


@pytest.mark.parametrize("sectors", [8, 24])
def test_copies_in_a_cache_that_do_not_add_up_to_the_write_are_not_known(tmp_path, sectors):
    block = [bio(10, BCACHE, 80, 16, tid=JOB), bio(11, CACHE, 640, sectors, tid=JOB)]
    block += [bio(20, BCACHE, 80, tid=JOB), bio(21, CACHE, 2048, tid=JOB)]
    with cached(tmp_path, *block) as trace:
        assert [what == KNOWN for _, what, _ in told(trace)] == [True, False, True, True]


def test_another_thread_and_another_place_are_not_the_write_to_bcache(tmp_path):
    block = [bio(10, BCACHE, 80, tid=JOB)]
    block += [bio(11, DISK, 80, tid=JOB), bio(12, DISK, 96), bio(13, CACHE, 640)]
    with cached(tmp_path, *block) as trace:
        assert [what == KNOWN for _, what, _ in told(trace)] == [True, False, False, False]


def test_bcache_may_lie_on_a_partition(tmp_path):
    block = [bio(10, BCACHE, 80, tid=JOB), bio(11, DISK, AT + 96, tid=JOB)]
    behind = BEHIND | {"backing_dev": PART}
    with cached(tmp_path, *block, on=(PART, CACHE), behind=behind) as trace:
        assert told(trace)[1] == (DISK, KNOWN, True)


def test_two_devices_may_share_a_cache(tmp_path):
    other = "252:128"
    block = [bio(10, BCACHE, 80, tid=JOB), bio(11, CACHE, 640, tid=JOB)]
    block += [bio(20, other, 80, tid=JOB), bio(21, CACHE, 648, tid=JOB)]
    block += [bio(30, BCACHE, 80, tid=JOB), bio(31, CACHE, 656, tid=JOB)]
    second = stacked(other, MAPPED, CACHE, backing_dev=MAPPED, backing_offset=16)
    uppers = stacked(BCACHE, DISK, CACHE, **BEHIND), second
    with trace_of(tmp_path / "t", BCACHE, block, *uppers) as trace:
        known = [(dev, what == KNOWN) for dev, what, _ in told(trace)]
        assert [found for dev, found in known if dev == CACHE] == [True, False, True]


def test_a_trace_that_does_not_tell_the_device_behind_a_cache_counts_once_all_the_same(tmp_path):
    block = [bio(10, BCACHE, 80, tid=JOB), bio(11, DISK, 96, tid=OTHER)]
    with trace_of(tmp_path / "t", BCACHE, block, stacked(BCACHE, DISK, CACHE)) as trace:
        assert told(trace)[1] == (DISK, ("other", None, None), True)
        assert page_writebacks(trace, all_writers=True).by_device == {BCACHE: 1}


def extent(dev, first, pages, ts=3):
    """The event that pages of the device have the file's pages, from the first on."""
    place = {"file_block": 0, "disk_block": first, "blocks": pages}
    return {"ts": ts, "tid": JOB, "event": "known", "dev": dev, "ino": FILE, **place}


def by_file(trace, *devices):
    """The pages of the file that each write to these devices has, and the number of them."""
    found = page_writebacks(trace, list(devices), Identity.FILE, all_writers=True)
    return found.page.tolist(), found.by_mapping["file"]


def test_a_page_below_is_that_of_the_file_above_also_where_it_was_rewritten_elsewhere(tmp_path):
    block = [
        row
        for ts, sector in ((10, 80), (20, 160))
        for row in (
            bio(ts, MAPPED, sector, 16, tid=JOB),
            remap(ts + 1, DISK, sector, MAPPED, sector, 16),
            remap(ts + 2, DISK, AT + sector, PART, sector, 16),
            bio(ts + 3, DISK, AT + sector, 16),
        )
    ]
    # The device's own write to the place of the first page.
    block += [bio(30, DISK, AT + 80)]
    extents = extent(MAPPED, 10, 2), extent(MAPPED, 20, 2, ts=15)
    with trace_of(tmp_path / "t", MAPPED, block, stacked(MAPPED, PART), extents=extents) as trace:
        assert by_file(trace, MAPPED) == ([0, 1, 0, 1], 4)
        assert by_file(trace, PART) == by_file(trace, DISK) == ([0, 1, 0, 1, 2], 4)


def test_the_parts_of_a_write_have_their_own_pages_of_the_file_on_each_level(tmp_path):
    block = [bio(10, TOP, 80, 64, tid=JOB), remap(11, MAPPED, 880, TOP, 80, 64)]
    block += [bio(12, MAPPED, 880, 64)]
    block += [remap(13, DISK, 8, MAPPED, 880, 32), bio(14, DISK, 8, 32)]
    block += [remap(15, MIRROR, 8, MAPPED, 912, 32), bio(16, MIRROR, 8, 32)]
    # The second half of the file moves to the first disk.
    block += [bio(20, TOP, 320, 32, tid=JOB), remap(21, MAPPED, 1120, TOP, 320, 32)]
    block += [bio(22, MAPPED, 1120, 32), remap(23, DISK, 200, MAPPED, 1120, 32)]
    block += [bio(24, DISK, 200, 32)]
    moved = extent(TOP, 40, 4, ts=18) | {"file_block": 4}
    uppers = stacked(TOP, MAPPED), stacked(MAPPED, DISK, MIRROR)
    extents = extent(TOP, 10, 8), moved
    with trace_of(tmp_path / "t", TOP, block, *uppers, extents=extents) as trace:
        again = [*range(8), *range(4, 8)]
        assert by_file(trace, TOP) == by_file(trace, MAPPED) == (again, 12)
        assert by_file(trace, DISK, MIRROR) == (again, 12)
        assert by_file(trace, MIRROR) == ([0, 1, 2, 3], 4)


def test_copies_on_several_devices_are_pages_of_their_own(tmp_path):
    block = []
    for ts in (10, 20):
        block += [bio(ts, MAPPED, 80, tid=JOB), remap(ts + 1, DISK, 80, MAPPED, 80)]
        block += [remap(ts + 2, MIRROR, 80, MAPPED, 80)]
        block += [bio(ts + 3, DISK, 80), bio(ts + 4, MIRROR, 80)]
    uppers, extents = stacked(MAPPED, DISK, MIRROR), [extent(MAPPED, 10, 1)]
    with trace_of(tmp_path / "t", MAPPED, block, uppers, extents=extents) as trace:
        assert by_file(trace, MIRROR) == ([0, 0], 2)
        assert by_file(trace, DISK, MIRROR) == ([0, 1, 0, 1], 4)
        assert by_file(trace, MAPPED, MIRROR, DISK) == ([0, 1, 2, 0, 1, 2], 6)


def test_a_cache_at_any_place_has_the_files_pages(tmp_path):
    block = [bio(10, BCACHE, 80, 16, tid=JOB), bio(11, DISK, 96, 16, tid=JOB)]
    block += [bio(12, CACHE, 640, tid=JOB), bio(13, CACHE, 1280, tid=JOB)]
    block += [bio(20, BCACHE, 80, 16, tid=JOB), bio(21, CACHE, 2048, 16, tid=JOB)]
    with cached(tmp_path, *block, extents=[extent(BCACHE, 10, 2)]) as trace:
        assert by_file(trace, CACHE) == ([0, 1, 0, 1], 4)
        assert by_file(trace, DISK) == ([0, 1], 2)


def test_a_loop_device_on_a_partition_has_the_files_pages_below(tmp_path):
    loop = stacked(LOOP, PART, backing_file="/dev/sda1", backing_ino=None, backing_offset=0)
    block = [bio(10, LOOP, 80, tid=JOB), bio(11, DISK, AT + 80)]
    block += [bio(20, LOOP, 160, tid=JOB), bio(21, DISK, AT + 160)]
    extents = extent(LOOP, 10, 1), extent(LOOP, 20, 1, ts=15)
    with trace_of(tmp_path / "t", LOOP, block, loop, extents=extents) as trace:
        assert by_file(trace, DISK) == ([0, 0], 2)


def test_places_at_the_end_of_the_number_range_have_no_file(tmp_path):
    far = (1 << 64) - 16
    block = [bio(10, MAPPED, far, 64, tid=JOB), remap(11, DISK, 8, MAPPED, far + 8, 8)]
    block += [bio(12, DISK, 8)]
    extents = [extent(MAPPED, 1, 8)]
    with trace_of(tmp_path / "t", MAPPED, block, stacked(MAPPED, DISK), extents=extents) as trace:
        assert by_file(trace, DISK) == ([0], 0)
        assert told(trace)[1] == (DISK, KNOWN, True)
