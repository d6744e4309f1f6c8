"""Pages identified by path and by index: through renames that put one file over another."""

from __future__ import annotations

import pytest

from tests.support.traces import make_trace
from tracer.analysis.flushlayer.trace.accesses import Identity, page_writebacks

DEV = "254:0"
EXT4 = {"dev": DEV, "block_bytes": 4096}
NAMED = {"dev": DEV, "ino": 13, "path": "/m/checkpoint.pt", "how": "handle"}


def bio(ts, page, pages=2, rwbs="W", dev=DEV):
    return {
        "ts": ts, "tid": 1, "event": "bio_queue", "dev": dev, "sector": page * 8,
        "nr_sector": pages * 8, "rwbs": rwbs,
    }  # fmt: skip


def extent(ts, ino, disk_block, blocks=2, dev=DEV):
    return {
        "ts": ts, "tid": 1, "event": "known", "dev": dev, "ino": ino, "file_block": 0,
        "disk_block": disk_block, "blocks": blocks,
    }  # fmt: skip


def event(ts, name, ino, tid=7, dev=DEV):
    return {"ts": ts, "tid": tid, "event": name, "dev": dev, "ino": ino}


def rename(ts, tid=7, ret=0, name="rename", dur_ns=10):
    return {"ts": ts, "tid": tid, "pid": 7, "name": name, "nr": 82, "dur_ns": dur_ns, "ret": ret}


FIRST, SECOND = (bio(10, 100), extent(9, 12, 100)), (bio(20, 200), extent(19, 13, 200))
"""Two files of two pages each: inodes 12 and 13."""
OVER = [event(31, "alloc_da_blocks", 13), event(35, "free_inode", 12)]
"""The second takes the place of the first, in the call from 30 to 40."""


@pytest.fixture
def by(tmp_path):
    def find(identity, *written, systems=(EXT4,), **tables):
        block = [bio for bio, _ in written]
        extents = [extent for _, extent in written]
        made = {"block": block, "extents": extents, **tables}
        with make_trace(tmp_path / identity, made, file_systems=list(systems)) as trace:
            return page_writebacks(trace, identity=Identity(identity))

    return find


def test_a_file_renamed_over_another_one_has_its_pages(by):
    tables = {"syscalls": [rename(30)], "file_writes": OVER, "files": [NAMED]}
    found = by("path", FIRST, SECOND, **tables)
    assert found.page.tolist() == [0, 1, 0, 1]
    assert found.by_mapping == {"file": 4, "path not known": 0, "no file": 0, "not mapped": 0}
    assert by("file", FIRST, SECOND, **tables).unique == 4
    assert by("block", FIRST, SECOND, **tables).unique == 4


def test_a_chain_of_renames_is_one_path_though_inode_numbers_come_again(by):
    third = bio(50, 300), extent(49, 12, 300)
    tables = {
        "syscalls": [rename(30), rename(60, name="renameat2")],
        "file_writes": [*OVER, event(61, "alloc_da_blocks", 12), event(62, "free_inode", 13)],
        "files": [{**NAMED, "ino": 12}],
    }
    found = by("path", FIRST, SECOND, third, **tables)
    assert found.page.tolist() == [0, 1] * 3
    assert found.by_mapping["path not known"] == 0
    assert by("file", FIRST, SECOND, third, **tables).unique == 6


NOT_SAID = {
    "no call": ([], OVER),
    "a call that failed": ([rename(30, ret=-2)], OVER),
    "a call that did not return": ([rename(30, dur_ns=None)], OVER),
    "another call": ([rename(30, name="unlink")], OVER),
    "a call of another thread": ([rename(30, tid=8)], OVER),
    "a call that was over": ([rename(20)], OVER),
    "a removal by another thread": ([rename(30)], [OVER[0], event(35, "free_inode", 12, tid=8)]),
    "a file that was held open": ([rename(30)], [OVER[0], event(45, "free_inode", 12)]),
    "a name that was free": ([rename(30)], OVER[:1]),
    "two that came": ([rename(30)], [event(31, "alloc_da_blocks", 14), *OVER]),
    "two that went": ([rename(30)], [*OVER, event(36, "free_inode", 14)]),
    "two disks": ([rename(30)], [event(31, "alloc_da_blocks", 13, dev="8:0"), OVER[1]]),
}


@pytest.mark.parametrize("what", NOT_SAID)
def test_a_rename_that_is_not_told_whole_is_not_guessed(by, what):
    calls, events = NOT_SAID[what]
    found = by("path", FIRST, SECOND, syscalls=calls, file_writes=events, files=[NAMED])
    assert found.unique == 4
    assert found.by_mapping == {"file": 2, "path not known": 2, "no file": 0, "not mapped": 0}


@pytest.mark.parametrize("later", [[], [{**NAMED, "ino": 12, "path": "/m/later"}]])
def test_a_removed_file_s_path_is_not_known(by, later):
    """A later file may have the removed one's inode number; it is not the removed one."""
    removed = [event(15, "free_inode", 12)]
    found = by("path", FIRST, SECOND, file_writes=removed, files=[NAMED, *later])
    assert found.by_mapping["path not known"] == 2


def test_a_trace_without_names_has_pages_by_file(by):
    found = by("path", FIRST, SECOND)
    assert found.unique == 4
    assert found.by_mapping == {"file": 0, "path not known": 4, "no file": 0, "not mapped": 0}


def test_pages_of_one_index_are_one_page_whatever_the_file(by):
    metadata = bio(25, 500, 1, rwbs="WM"), extent(1, 99, 900)
    unknown = bio(26, 600, 1), extent(1, 98, 910)
    found = by("index", FIRST, SECOND, metadata, unknown)
    assert found.page.tolist() == [0, 1, 0, 1, 2, 3]
    assert found.by_mapping == {"file": 4, "no file": 1, "not mapped": 1}
