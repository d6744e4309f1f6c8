"""The origin of write bios if events were lost."""

import pytest

from tests.support.submissions import (
    BTRFS,
    HELPER,
    JOB,
    OTHER,
    bio,
    call,
    found,
    gap,
    of_btrfs,
    said,
    work,
)


@pytest.mark.parametrize(
    ("stream", "start", "certainty"),
    [
        ("ftrace-machine-cpu0", 26, "unknown"),
        ("ebpf-machine", 26, "unknown"),
        ("ftrace-machine-cpu0", 35, "exact"),
        ("ftrace-target-cpu0", 26, "inferred"),
        ("ftrace-target-cpu0", 5, "exact"),
        ("files", 5, "exact"),
        ("files", 26, "exact"),
    ],
)
def test_an_answer_is_less_certain_if_events_since_may_be_lost(tmp_path, stream, start, certainty):
    assert found(
        tmp_path,
        "certainty",
        {
            "block": [bio(30)],
            "file_writes": [said(25, "map_blocks", 11)],
            "syscalls": [call(10, "close")],
            "loss": [gap(stream, start, start + 2)],
        },
    ) == [(certainty,)]


@pytest.mark.parametrize(("stream", "certainty"), [("machine", "unknown"), ("target", "exact")])
def test_a_log_of_xfs_is_doubted_once_its_file_system_may_have_said_more(
    tmp_path, stream, certainty
):
    assert found(
        tmp_path,
        "reason, certainty",
        {
            "block": [bio(30, OTHER, "FWFSM")],
            "file_writes": [said(20, "log", tid=OTHER)],
            "loss": [gap(f"ftrace-{stream}-cpu0", 22, 25)],
        },
    ) == [("journal", certainty)]


def test_an_fsync_that_ext4_tells_of_needs_no_system_call_that_may_have_been_lost(tmp_path):
    assert found(
        tmp_path,
        "reason, certainty",
        {
            "block": [bio(30)],
            "file_writes": [said(20, "fsync_start", 11), said(25, "writepages_start", 11)],
            "syscalls": [call(10, "fsync")],
            "loss": [gap("ftrace-target-cpu0", 22, 24)],
        },
    ) == [("fsync", "exact")]


def test_system_calls_lost_after_a_task_was_queued_are_not_of_it(tmp_path):
    assert found(
        tmp_path,
        "reason, certainty",
        {
            "block": [bio(510, HELPER)],
            "file_writes": [
                of_btrfs(20, "fsync", 258),
                work(30, "work_queued", JOB, 1),
                work(500, "work_start", HELPER, 1),
            ],
            "syscalls": [call(10, "fsync")],
            "loss": [gap("ftrace-target-cpu0", 200, 300)],
        },
        btrfs=BTRFS,
    ) == [("fsync", "exact")]


@pytest.mark.parametrize(("start", "certainty"), [(22, "unknown"), (40, "inferred")])
def test_an_fsync_of_xfs_of_which_no_call_is_known_is_doubted_if_events_were_lost(
    tmp_path, start, certainty
):
    assert found(
        tmp_path,
        "reason, ino, certainty",
        {
            "block": [bio(30, OTHER)],
            "file_writes": [said(20, "fsync", 11, OTHER), said(28, "map_blocks", 11, OTHER)],
            "loss": [gap("ftrace-machine-cpu0", start, start + 2)],
        },
    ) == [("fsync", 11, certainty)]


@pytest.mark.parametrize(("name", "certainty"), [("fsync", "exact"), ("pwrite64", "unknown")])
def test_a_system_call_that_is_known_tells_of_an_fsync_whatever_was_lost_in_it(
    tmp_path, name, certainty
):
    assert found(
        tmp_path,
        "reason, ino, certainty",
        {
            "block": [bio(30)],
            "file_writes": [said(15, "fsync_start", 11), said(28, "writepages_start", 11)],
            "syscalls": [call(10, name)],
            "loss": [gap("ftrace-machine-cpu0", 20, 25)],
        },
    ) == [("fsync", 11, certainty)]
