"""The origin of write bios of btrfs, whose workers submit the bios of other threads."""

from tests.support.submissions import (
    BDI,
    BTRFS,
    HELPER,
    JOB,
    KWORKER,
    bio,
    call,
    found,
    of_btrfs,
    said,
    work,
)


def test_btrfs_is_known_by_all_of_its_names(tmp_path):
    bracket = {"tid": KWORKER, "pid": KWORKER, "dev": BDI, "ino": 257}
    assert found(
        tmp_path,
        "reason, ino, root, dirtier, certainty",
        {
            "block": [
                bio(40, KWORKER),
                *(bio(130), bio(150, rwbs="WSM")),
                bio(230),
            ],
            "writeback": [
                {"ts": 10, "tid": KWORKER, "event": "start", "reason": "sync", "bdi": BDI}
            ],
            "inode_writeback": [{"ts": 20, "event": "start", **bracket}],
            "dirty": [said(5, "dirty_folio", 257, dev=BDI)],
            "file_writes": [
                of_btrfs(30, "ordered_extent", 257, KWORKER),
                of_btrfs(120, "fsync", 258),
                said(220, "direct_start", 259, dev="0:50"),
            ],
            "syscalls": [call(110, "fsync"), call(210, "pwrite64")],
        },
        btrfs=BTRFS,
    ) == [
        ("sync", 257, 5, JOB, "exact"),
        ("fsync", 258, 5, None, "exact"),
        ("journal", 1, None, None, "exact"),
        ("direct", 259, None, JOB, "exact"),
    ]


def test_a_worker_of_btrfs_works_for_who_queued_its_task(tmp_path):
    assert found(
        tmp_path,
        "reason, call, pid, ino, certainty",
        {
            "block": [bio(510, HELPER), bio(530, HELPER), bio(610, HELPER)],
            "file_writes": [
                of_btrfs(20, "fsync", 258),
                work(30, "work_queued", JOB, 1),
                work(500, "work_start", HELPER, 1),
                work(520, "work_end", HELPER, 1),
                # A compressed extent: made by the worker itself.
                work(40, "work_queued", JOB, 2),
                work(600, "work_start", HELPER, 2),
                of_btrfs(605, "ordered_extent", 258, HELPER),
            ],
            "syscalls": [call(10, "fsync", 1000)],
        },
        btrfs=BTRFS,
    ) == [
        ("fsync", "fsync", HELPER, 258, "exact"),
        ("other", None, HELPER, None, "unknown"),
        ("fsync", "fsync", HELPER, 258, "exact"),
    ]


def test_work_belongs_to_the_call_that_queued_it_not_to_its_owners_next_call(tmp_path):
    assert found(
        tmp_path,
        "call, ino",
        {
            "block": [bio(510, HELPER)],
            "file_writes": [
                of_btrfs(20, "ordered_extent", 258),
                work(30, "work_queued", JOB, 1),
                of_btrfs(450, "ordered_extent", 259),
                work(500, "work_start", HELPER, 1),
            ],
            "syscalls": [call(10, "sync_file_range"), call(400, "close", 500)],
        },
        btrfs=BTRFS,
    ) == [("sync_file_range", 258)]


def test_a_task_queued_by_a_task_is_traced_back_to_its_beginning(tmp_path):
    assert found(
        tmp_path,
        "reason, call, ino, certainty",
        {
            "block": [bio(710, KWORKER)],
            "file_writes": [
                work(30, "work_queued", JOB, 1),
                work(500, "work_start", HELPER, 1),
                of_btrfs(505, "ordered_extent", 258, HELPER),
                work(510, "work_queued", HELPER, 2),
                work(700, "work_start", KWORKER, 2),
            ],
            "syscalls": [call(10, "fsync", 1000)],
        },
        btrfs=BTRFS,
    ) == [("fsync", "fsync", 258, "exact")]


def test_rows_tell_the_order_of_tasks_at_one_time(tmp_path):
    """A clock of microseconds: one task ends as the next one, of another file, begins."""
    assert found(
        tmp_path,
        "reason, ino, certainty",
        {
            "block": [bio(510, HELPER), bio(530, HELPER)],
            "file_writes": [
                of_btrfs(20, "ordered_extent", 258),
                work(30, "work_queued", JOB, 1),
                of_btrfs(30, "ordered_extent", 259),
                work(30, "work_queued", JOB, 2),
                of_btrfs(30, "ordered_extent", 260),
                work(500, "work_start", HELPER, 1),
                work(520, "work_end", HELPER, 1),
                work(520, "work_start", HELPER, 2),
                work(540, "work_end", HELPER, 2),
            ],
            "syscalls": [call(10, "close")],
        },
        btrfs=BTRFS,
    ) == [("other", 258, "exact"), ("other", 259, "exact")]


def test_a_task_that_nobody_was_seen_to_queue_is_nobodys(tmp_path):
    assert found(
        tmp_path,
        "reason, ino, certainty",
        {
            "block": [bio(510, HELPER)],
            "file_writes": [work(500, "work_start", HELPER, 1)],
            "syscalls": [call(400, "fsync", 1000, HELPER)],
        },
        btrfs=BTRFS,
    ) == [("other", None, "unknown")]


def test_a_direct_write_that_a_worker_submits_is_its_callers(tmp_path):
    assert found(
        tmp_path,
        "reason, pid, ino, dirtier, target, certainty",
        {
            "block": [bio(510, HELPER)],
            "file_writes": [
                said(20, "direct_start", 258, dev="0:50"),
                work(30, "work_queued", JOB, 1),
                work(500, "work_start", HELPER, 1),
            ],
            "syscalls": [call(10, "pwrite64")],
        },
        btrfs=BTRFS,
    ) == [("direct", HELPER, 258, JOB, "job", "exact")]
