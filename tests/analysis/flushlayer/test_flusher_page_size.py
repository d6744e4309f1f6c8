"""A kernel with pages of 64 KiB: its events count those, the model of its flusher 4096 bytes."""

import pytest

from tests.support.flushed import DEV, EXT4, JOB, S, Story, bio, pieces

pytestmark = pytest.mark.slow

KIB = 1 << 10
FIRST = "254:1"
SIZES = (4 * KIB, 64 * KIB)


def host(page_size):
    return {"machine": "aarch64", "cpus": 2, "memory_bytes": 1 << 30, "page_size": page_size}


@pytest.mark.parametrize("told", [False, True])
@pytest.mark.parametrize("size", SIZES)
def test_each_folio_has_its_own_time(tmp_path, size, told):
    unit = size // 4096
    story = Story().dirtied(1, 0).dirtied(2, 1).dirtied(3, 2).dirtied(4, 3)
    story.flushed(40, (1000, 4 * unit))
    if told:
        story.lies(0, 1000, 4 * unit)
    found, _ = story.prepared(tmp_path, file_systems=[EXT4], host=host(size))
    assert pieces(found) == [(n + 1.0, n * unit, unit, "seen") for n in range(4)]
    assert any(f"pages have {size:,} bytes" in note for note in found.notes) == (unit > 1)


def test_a_part_of_a_page_of_the_kernel_is_written(tmp_path):
    story = Story().dirtied(1, 1).lies(0, 1000, 64).flushed(40, (1021, 1))
    found, _ = story.prepared(tmp_path, file_systems=[EXT4], host=host(SIZES[1]))
    assert pieces(found, "ts", "index", "pages", "how") == [(1.0, 21, 1, "seen")]


def test_an_unwritten_folio_has_a_whole_page_of_the_kernel(tmp_path):
    story = Story().dirtied(70, 2).dirtied(2, 0, ino=12).flushed(41, (500, 16), ino=12)
    found, _ = story.prepared(tmp_path, host=host(SIZES[1]))
    assert pieces(found) == [(2.0, 0, 16, "seen"), (70.0, 32, 16, "unwritten")]


def test_a_folio_of_several_large_pages_is_followed_to_its_end(tmp_path):
    """Two folios of 32 and 1 pages of the kernel: 512 and 16 pages, the second at page 512."""
    story = Story().dirtied(1, 0).dirtied(2, 32).flushed(40, (1000, 528))
    found, _ = story.prepared(tmp_path, host=host(SIZES[1]))
    assert pieces(found) == [(1.0, 0, 512, "seen"), (2.0, 512, 16, "seen")]


def test_a_sync_of_a_range_writes_whole_pages_of_the_kernel(tmp_path):
    story = Story().dirtied(1, 0).flushed(40, (1000, 16))
    by = {"tid": JOB, "pid": JOB, "dev": DEV, "ino": 11, "event": "writepages_start"}
    story.file_writes.append(
        {"ts": 20 * S, **by, "offset": 5 * 4096, "last": 7 * 4096 - 1, "sync_mode": 1}
    )
    ranges = []
    for size in SIZES:
        (tmp_path / str(size)).mkdir()
        _, recorded = story.prepared(tmp_path / str(size), host=host(size))
        ranges.append(recorded.synced[["first", "last"]].to_numpy().tolist())
    assert ranges == [[[5, 6]], [[0, 15]]]


def test_metadata_of_a_partition_that_begins_amid_a_page_of_its_disk(tmp_path):
    """Page 3 of the kernel lies 48 pages after the partition's begin, at page 34 of the disk."""
    disks = [
        {"dev": DEV, "bytes": 1 << 40},
        {"dev": FIRST, "bytes": 1 << 30, "partition_of": DEV, "start": 34 * 8},
    ]
    mounts = [{"dev": FIRST, "path": "/", "type": "ext4", "source": "x"}]
    story = Story().dirtied(1, 3, ino=(254 << 20) + 1)
    story.block += [bio((50 + n) * S, page, 1, 60, "WM") for n, page in enumerate((90, 98, 81))]
    found, _ = story.prepared(tmp_path, disks=disks, mounts=mounts, host=host(SIZES[1]))
    assert pieces(found, "ts", "index", "page", "until") == [(1.0, 56, 90, 50)]
    assert found.passed["page"].to_list() == [98, 81]


@pytest.mark.parametrize("size", [1, 512, 5000, 1 << 30])
def test_a_size_that_no_kernel_has_breaks_nothing(tmp_path, size):
    story = Story().dirtied(1, 0, 7).dirtied(3, 1 << 51, ino=12).flushed(40, (1000, 2))
    found, _ = story.prepared(tmp_path, host=host(size))
    assert found.written["pages"].sum() == 2
