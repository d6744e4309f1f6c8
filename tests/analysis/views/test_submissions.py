"""The origin of write bios by file-system events: reason, inode and certainty."""

import pytest

from tests.support.submissions import ANOTHER, DEV, JOB, KWORKER, OTHER, bio, call, found, said


def test_an_fsync_of_ext4_needs_no_system_call(tmp_path):
    assert found(
        tmp_path,
        "reason, call, ino, certainty",
        {
            "block": [bio(30, OTHER), bio(60, OTHER)],
            "file_writes": [
                said(10, "fsync_start", 11, OTHER),
                said(20, "writepages_start", 11, OTHER),
                said(40, "writepages_end", 11, OTHER),
                said(50, "fsync_end", 11, OTHER),
            ],
        },
    ) == [("fsync", None, 11, "exact"), ("other", None, None, "unknown")]


@pytest.mark.parametrize("naming", ["map_blocks", "writepages_start", "ordered_extent"])
def test_a_call_owns_the_bios_of_the_file_that_it_names(tmp_path, naming):
    assert found(
        tmp_path,
        "reason, call, ino, certainty",
        {
            "block": [bio(20), bio(1020)],
            "file_writes": [said(15, naming, 11)],
            "syscalls": [call(10, "close"), call(1000, "close")],
        },
    ) == [("other", "close", 11, "exact"), ("other", "close", None, "inferred")]


def test_a_name_holds_for_its_own_device_alone(tmp_path):
    assert found(
        tmp_path,
        "ino, certainty",
        {
            "block": [bio(20, dev=ANOTHER)],
            "file_writes": [said(15, "map_blocks", 11)],
            "syscalls": [call(10, "close")],
        },
    ) == [(None, "inferred")]


def test_a_name_given_in_a_bracket_ends_with_it(tmp_path):
    bracket = {"tid": KWORKER, "pid": KWORKER, "dev": DEV, "ino": 11}
    assert found(
        tmp_path,
        "reason, ino, certainty",
        {
            "block": [bio(40, KWORKER), bio(140, KWORKER)],
            "writeback": [
                {"ts": 10, "tid": KWORKER, "event": "start", "reason": "periodic", "bdi": DEV},
                {"ts": 100, "tid": KWORKER, "event": "written", "reason": "periodic", "bdi": DEV},
            ],
            "inode_writeback": [
                {"ts": 20, "event": "start", **bracket},
                {"ts": 90, "event": "end", **bracket},
            ],
            "file_writes": [said(30, "map_blocks", 11, KWORKER)],
        },
    ) == [("periodic", 11, "exact"), ("other", None, "unknown")]


def test_a_synchronous_write_is_an_fsync_told_apart_from_a_direct_one(tmp_path):
    assert found(
        tmp_path,
        "reason, call, ino, certainty, dirtier",
        {
            "block": [bio(30), bio(1030), bio(2030), bio(3030)],
            "file_writes": [
                said(20, "fsync", 11),
                said(25, "map_blocks", 11),
                said(1020, "direct_start", 12),
                said(1060, "direct_end", 12),
                said(3020, "map_blocks", 13),
            ],
            "syscalls": [call(10 + 1000 * n, "pwrite64") for n in range(4)],
        },
    ) == [
        ("fsync", "pwrite64", 11, "exact", None),
        ("direct", "pwrite64", 12, "exact", JOB),
        ("direct", "pwrite64", None, "inferred", None),
        ("direct", "pwrite64", 13, "inferred", None),
    ]


def test_the_end_of_another_direct_write_hides_no_name(tmp_path):
    assert found(
        tmp_path,
        "reason, ino, certainty",
        {
            "block": [bio(30)],
            "file_writes": [said(20, "writepages_start", 11), said(25, "direct_end", 99)],
            "syscalls": [call(10, "fsync")],
        },
    ) == [("fsync", 11, "exact")]


def test_pages_in_the_way_of_a_direct_write_are_whoever_dirtied_thems(tmp_path):
    assert found(
        tmp_path,
        "reason, dirtier, dirtiers, certainty",
        {
            "block": [bio(30), bio(50)],
            "file_writes": [
                said(20, "direct_start", 11),
                said(25, "writepages_start", 11),
                said(40, "writepages_end", 11),
            ],
            "dirty": [said(5, "dirty_folio", 11, OTHER)],
            "syscalls": [call(10, "pwrite64")],
        },
    ) == [("direct", OTHER, 1, "exact"), ("direct", JOB, 1, "exact")]


def test_the_end_of_another_direct_write_ends_no_other(tmp_path):
    """It may come in an interrupt, while a thread writes another file."""
    assert found(
        tmp_path,
        "reason, ino, dirtier, certainty",
        {
            "block": [bio(30), bio(50)],
            "file_writes": [
                said(20, "direct_start", 11),
                said(25, "direct_end", 99),
                said(40, "direct_end", 11),
            ],
            "syscalls": [call(10, "pwrite64")],
        },
    ) == [("direct", 11, JOB, "exact"), ("direct", 11, None, "inferred")]


def test_a_direct_write_with_others_dirty_pages_in_its_way_is_ambiguous(tmp_path):
    assert found(
        tmp_path,
        "reason, dirtier, dirtiers, certainty",
        {
            "block": [bio(30)],
            "file_writes": [said(20, "direct_start", 11), said(25, "map_blocks", 11)],
            "dirty": [said(5, "dirty_folio", 11, OTHER)],
            "syscalls": [call(10, "pwrite64")],
        },
    ) == [("direct", JOB, 2, "ambiguous")]


def test_a_direct_writer_counts_once(tmp_path):
    """Though others had dirtied pages that may have been in the way."""
    assert (
        found(
            tmp_path,
            "dirtier, dirtiers, target, whose, certainty",
            {
                "block": [bio(30), bio(130)],
                "file_writes": [
                    said(ts, event, ino)
                    for at, ino in ((20, 11), (120, 12))
                    for ts, event in ((at, "direct_start"), (at + 5, "map_blocks"))
                ],
                "dirty": [
                    *(said(4, "dirty_folio", 11, JOB), said(5, "dirty_folio", 11, OTHER)),
                    said(6, "dirty_folio", 12, OTHER),
                ],
                "syscalls": [call(10, "pwrite64", 50), call(110, "pwrite64")],
            },
        )
        == [(JOB, 2, None, "shared", "ambiguous")] * 2
    )


def test_a_direct_write_of_an_earlier_call_is_over(tmp_path):
    assert found(
        tmp_path,
        "reason, ino, certainty",
        {
            "block": [bio(1030)],
            "file_writes": [said(20, "direct_start", 11), said(1020, "map_blocks", 12)],
            "syscalls": [call(10, "pwrite64"), call(1010, "close")],
        },
    ) == [("other", 12, "exact")]


def test_events_of_a_returned_call_do_not_count_later(tmp_path):
    """A page fault makes room: what it writes to a swap file is not the file last synced."""
    assert found(
        tmp_path,
        "reason, ino, dirtier, certainty",
        {
            "block": [bio(50), bio(250)],
            "dirty": [said(5, "dirty_folio", 11)],
            "file_writes": [said(20, "fsync", 11), said(25, "map_blocks", 11)],
            "syscalls": [call(10, "fsync")],
        },
    ) == [("fsync", 11, JOB, "exact"), ("other", None, None, "unknown")]


def test_data_after_the_log_is_not_the_logs(tmp_path):
    assert found(
        tmp_path,
        "reason, ino",
        {
            "block": [bio(30)],
            "file_writes": [said(20, "fsync", 11), said(25, "log")],
            "syscalls": [call(10, "fsync")],
        },
    ) == [("fsync", None)]


def test_the_log_of_xfs_is_the_journals_whoever_writes_it(tmp_path):
    assert found(
        tmp_path,
        "reason, call, ino, certainty",
        {
            "block": [bio(30, rwbs="FWFSM"), bio(130, OTHER, "FWFSM")],
            "file_writes": [
                said(20, "fsync", 11),
                said(25, "log"),
                said(120, "log", tid=OTHER),
            ],
            "syscalls": [call(10, "fsync")],
        },
    ) == [("journal", "fsync", None, "exact"), ("journal", None, None, "exact")]


def test_a_fast_commit_of_ext4_is_the_journals_and_the_data_in_it_the_fsyncs(tmp_path):
    assert found(
        tmp_path,
        "reason, ino, certainty",
        {
            "block": [bio(30), bio(40, rwbs="WSM"), bio(60, rwbs="WSM")],
            "file_writes": [
                said(15, "fsync_start", 11),
                said(20, "fast_commit_start"),
                said(25, "writepages_start", 12),
                said(35, "writepages_end", 12),
                said(50, "fast_commit_end"),
            ],
            "syscalls": [call(10, "fsync")],
        },
    ) == [("fsync", 12, "exact"), ("journal", None, "exact"), ("fsync", None, "exact")]


@pytest.mark.parametrize(("name", "whose"), [("pwrite64", "target"), ("close", None)])
def test_journal_writes_during_a_targets_synchronous_write_are_the_targets(tmp_path, name, whose):
    tables = {
        "block": [bio(30, KWORKER, "WSM")],
        "file_writes": [said(20, "fsync_start", 11)] if name == "pwrite64" else [],
        "syscalls": [call(10, name)],
    }
    assert found(tmp_path, "whose", tables) == [(whose,)]
