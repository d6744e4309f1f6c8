"""Pages identified by file: through extents as they were told, and the map at the end."""

from __future__ import annotations

import pytest

from tests.support.traces import make_trace
from tracer.analysis.flushlayer.trace.accesses import Identity, page_writebacks
from tracer.probes.errors import BadTrace

EXT4 = {"dev": "254:0", "block_bytes": 4096}


def bio(ts, page, pages=1, rwbs="W", dev="254:0"):
    return {
        "ts": ts, "tid": 1, "event": "bio_queue", "dev": dev, "sector": page * 8,
        "nr_sector": pages * 8, "rwbs": rwbs,
    }  # fmt: skip


def extent(ts, ino, file_block, disk_block, blocks, dev="254:0"):
    return {
        "ts": ts, "tid": 1, "event": "known", "dev": dev, "ino": ino, "file_block": file_block,
        "disk_block": disk_block, "blocks": blocks,
    }  # fmt: skip


def at_end(ino, file_byte, disk_byte, length, dev="254:0"):
    return {
        "dev": dev,
        "ino": ino,
        "file_byte": file_byte,
        "disk_byte": disk_byte,
        "bytes": length,
    }


def freed(ts, ino):
    return {"ts": ts, "tid": 1, "event": "free_inode", "dev": "254:0", "ino": ino}


@pytest.fixture
def by_file(tmp_path):
    def find(block, systems=(EXT4,), disks=(), **tables):
        manifest = {"file_systems": list(systems), "disks": list(disks)}
        made = {"block": block, **tables}
        with make_trace(tmp_path / "t", made, **manifest) as trace:
            return page_writebacks(trace, identity=Identity.FILE)

    return find


def test_a_file_that_is_truncated_and_rewritten_is_the_same_pages(by_file):
    found = by_file(
        [bio(10, 100, 3), bio(20, 200, 3)],
        extents=[extent(9, 11, 0, 100, 3), extent(19, 11, 0, 200, 3)],
    )
    assert found.page.tolist() == [0, 1, 2, 0, 1, 2]
    assert found.by_mapping == {"file": 6, "no file": 0, "not mapped": 0}
    assert found.identity == "file"


def test_blocks_that_go_to_another_file_are_other_pages(by_file):
    found = by_file(
        [bio(10, 100, 2), bio(20, 100, 2)],
        extents=[extent(9, 11, 0, 100, 2), extent(19, 12, 0, 100, 2)],
    )
    assert found.page.tolist() == [0, 1, 2, 3]


def test_an_inode_number_that_is_used_again_is_another_file(by_file):
    found = by_file(
        [bio(10, 100), bio(20, 200)],
        extents=[extent(9, 11, 0, 100, 1), extent(19, 11, 0, 200, 1)],
        file_writes=[freed(15, 11)],
    )
    assert found.unique == 2


def test_blocks_that_no_event_tells_of_are_where_the_end_finds_them(by_file):
    found = by_file(
        [bio(10, 101), bio(20, 100, 2)], extent_map=[at_end(11, 40960, 409600, 8192)], extents=[]
    )
    assert found.page.tolist() == [0, 1, 0]
    assert found.by_mapping["file"] == 3


def test_before_its_first_event_a_block_may_have_been_anothers(by_file):
    found = by_file(
        [bio(10, 100), bio(20, 100)],
        extents=[extent(15, 11, 0, 100, 1)],
        extent_map=[at_end(11, 0, 409600, 4096)],
    )
    assert found.page.tolist() == [0, 1]
    assert found.by_mapping == {"file": 1, "no file": 0, "not mapped": 1}


def test_metadata_and_what_nothing_tells_of_are_told_apart_by_block(by_file):
    found = by_file(
        [bio(10, 100, rwbs="WM"), bio(20, 100, rwbs="WM"), bio(30, 5, dev="8:0"), bio(40, 77)],
        extents=[extent(1, 11, 0, 100, 1)],
    )
    assert found.page.tolist() == [0, 0, 1, 2]
    assert found.by_mapping == {"file": 0, "no file": 2, "not mapped": 2}


def test_a_page_on_two_pages_of_the_device_is_one(by_file):
    # Blocks of 1 KiB: pages 0 and 1 of the file lie at byte 1024 of the device's page 10.
    small = {"dev": "254:0", "block_bytes": 1024}
    write = {**bio(10, 10, 2), "sector": 82, "nr_sector": 16}
    found = by_file([write], [small], extents=[extent(9, 11, 0, 41, 8)])
    assert len(found) == 2
    assert found.page.tolist() == [0, 1]


@pytest.mark.parametrize("block_bytes", [512, 1024, 2048, 4096])
@pytest.mark.parametrize("after", [0, 1, 2])
def test_a_bio_is_an_access_to_each_page_of_the_file_that_it_touches(by_file, block_bytes, after):
    """Every run of a file's blocks is written once. It begins so many blocks after a page."""
    sectors, each, count = block_bytes // 512, 4096 // block_bytes, 3 * 4096 // block_bytes
    begin = 80 // sectors + after
    runs = [(first, end) for first in range(count) for end in range(first + 1, count + 1)]
    block = [
        bio(10 + n, 0) | {"sector": (begin + first) * sectors, "nr_sector": (end - first) * sectors}
        for n, (first, end) in enumerate(runs)
    ]
    found = by_file(
        block,
        [{"dev": "254:0", "block_bytes": block_bytes}],
        extents=[extent(9, 11, 0, begin, count)],
    )
    touched = [sorted({b // each for b in range(first, end)}) for first, end in runs]
    # Pages are numbered as they come: the first runs reach page 0, then page 1, then page 2.
    assert found.page.tolist() == [index for pages in touched for index in pages]
    assert found.bios.pages.tolist() == [len(pages) for pages in touched]
    assert found.by_mapping == {"file": len(found), "no file": 0, "not mapped": 0}


@pytest.mark.parametrize("start", [63, 2048])
def test_sectors_count_from_the_begin_of_a_partition_amid_a_page_of_its_disk(by_file, start):
    """A file's pages 0 and 1 begin 100 pages after the partition; pieces of them are written."""
    disks = [{"name": "vda1", "dev": "254:1", "partition_of": "254:0", "start": start}]
    begin = start + 800
    runs = [(0, 16), (4, 8), (7, 2), (7, 1), (8, 1), (15, 1)]
    found = by_file(
        [
            bio(10 + n, 0) | {"sector": begin + first, "nr_sector": length}
            for n, (first, length) in enumerate(runs)
        ],
        [{"dev": "254:1", "block_bytes": 4096}],
        disks,
        extents=[extent(9, 11, 0, 100, 2, "254:1")],
    )
    assert found.page.tolist() == [0, 1, 0, 1, 0, 1, 0, 1, 1]
    assert found.bios.pages.tolist() == [2, 2, 2, 1, 1, 1]


def test_pages_of_two_files_and_of_nobody_share_a_page_of_the_device(by_file):
    # Blocks of 1 KiB: of the four in the device's page 10, two are of files and two of nobody.
    small = {"dev": "254:0", "block_bytes": 1024}
    found = by_file(
        [bio(10, 10), bio(20, 10)],
        [small],
        extents=[extent(8, 11, 0, 40, 1), extent(9, 12, 3, 41, 1)],
    )
    assert found.page.tolist() == [0, 1, 2, 0, 1, 2]
    assert found.by_mapping == {"file": 4, "no file": 0, "not mapped": 2}


def test_a_sector_beyond_every_device_is_of_no_file(by_file):
    # Its byte has 65 bits, of which the lower ones are those of the file's page.
    found = by_file([bio(10, 100), bio(20, (1 << 52) + 100)], extents=[extent(9, 11, 0, 100, 1)])
    assert found.by_mapping == {"file": 1, "no file": 0, "not mapped": 1}
    assert found.page.tolist() == [0, 1]


def test_xfs_counts_its_allocation_groups_apart(by_file):
    # Groups of 1000 blocks are numbered from 1024 on: block 5 of group 2 is the device's 2005.
    xfs = {"dev": "254:0", "block_bytes": 4096, "group_blocks": 1000}
    found = by_file(
        [bio(10, 2005), bio(20, 7)],
        [xfs],
        extents=[extent(9, 11, 3, 2 * 1024 + 5, 1), extent(19, 11, 3, 7, 1)],
        file_writes=[freed(15, 11)],  # xfs says so of files that live on
    )
    assert found.page.tolist() == [0, 0]


def test_a_partition_begins_within_its_disk(by_file):
    systems = [{"dev": "254:1", "block_bytes": 4096}]
    disks = [
        {"name": "vda1", "dev": "254:1", "partition_of": "254:0", "start": 2048, "bytes": 819200}
    ]
    found = by_file(
        [bio(10, 256 + 100), bio(20, 256 + 50), bio(30, 100), bio(40, 256 + 200)],
        systems,
        disks,
        extents=[extent(9, 11, 0, 100, 999, "254:1"), extent(19, 11, 0, 50, 1, "254:1")],
    )
    assert found.page.tolist() == [0, 0, 1, 2]
    assert found.by_mapping == {"file": 2, "no file": 0, "not mapped": 2}  # outside of it


def test_extents_of_no_place_and_beyond_all_are_nobodys(by_file):
    most = (1 << 64) - 1
    found = by_file(
        [bio(10, 1, 3)],
        extents=[
            extent(1, 11, 0, 0, (1 << 32) - 1),  # a hole
            extent(2, 12, most, most, most),
            extent(3, 13, 0, 1 << 52, 1),  # xfs: not yet allocated
        ],
    )
    assert found.by_mapping == {"file": 0, "no file": 0, "not mapped": 3}


def test_extents_without_end_are_refused(by_file, monkeypatch):
    monkeypatch.setattr("tracer.analysis.views.reading.file_pages._MOST_LOOKS", 10)
    with pytest.raises(BadTrace, match="overlap too often"):
        by_file([bio(10, 1, 6)], extents=[extent(n, 11, 0, 1, 6) for n in range(2)])


def test_by_block_nothing_is_asked_of_files(tmp_path):
    tables = {"block": [bio(10, 100), bio(20, 200)], "extents": [extent(9, 11, 0, 100, 1)]}
    with make_trace(tmp_path / "t", tables, file_systems=[EXT4]) as trace:
        found = page_writebacks(trace)
    assert (found.identity, found.unique, found.by_mapping) == ("block", 2, {})


def test_reads_are_accesses_too_where_they_are_asked_for(tmp_path):
    tables = {"block": [bio(10, 100, 2), bio(20, 101, 2, "R"), bio(30, 5, rwbs="FWFSM")]}
    with make_trace(tmp_path / "t", tables) as trace:
        found = page_writebacks(trace, reads=True)
    assert found.page.tolist() == [0, 1, 1, 2, 3]
    bios = found.bios
    assert bios.write.tolist() == [True, False, True]
    assert bios.first.tolist() == [0, 2, 4]
    assert bios.pages.tolist() == [2, 2, 1]
    assert bios.waited.tolist() == [False, False, True]
    assert (bios.flush.tolist(), bios.fua.tolist()) == ([False] * 2 + [True],) * 2
    assert [bios.names["device"][code] for code in bios.device] == ["254:0"] * 3
    assert sum(found.by_reason.values()) == 3
