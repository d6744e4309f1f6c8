"""Where a write bio comes from, told by file systems: reason, inode and how sure that is."""

import pytest

from analysis.views.flushes import flushes
from tests.support.traces import make_trace

KWORKER, HELPER, JOB, OTHER = 50, 51, 7, 8
DEV, ANOTHER, BDI, FSID = "254:0", "254:16", "btrfs-1", "35cbcaf9-a890-4565-b69e-e6ec26acd374"
BTRFS = [{"fsid": FSID, "bdi": BDI, "dev": "0:50", "devices": [DEV]}]

PROCESSES = [
    {"pid": JOB, "tid": JOB, "role": "target", "target": "job"},
    {"pid": OTHER, "tid": OTHER, "role": "other"},
    {"pid": KWORKER, "tid": KWORKER, "ppid": 2, "role": "flusher"},
    {"pid": HELPER, "tid": HELPER, "ppid": 2, "role": "other"},
]


def bio(ts, tid=JOB, rwbs="W", dev=DEV):
    return {
        "ts": ts,
        "tid": tid,
        "pid": tid,
        "event": "bio_queue",
        "dev": dev,
        "sector": 8 * ts,
        "nr_sector": 8,
        "rwbs": rwbs,
    }


def said(ts, event, ino=None, tid=JOB, dev=DEV, **more):
    return {"ts": ts, "tid": tid, "pid": tid, "event": event, "dev": dev, "ino": ino, **more}


def of_btrfs(ts, event, ino=None, tid=JOB, root=5, **more):
    return said(ts, event, ino, tid, None, fsid=FSID, root=root, **more)


def work(ts, event, tid, item):
    return {"ts": ts, "tid": tid, "pid": tid, "event": event, "fsid": FSID, "work": item}


def call(ts, name, dur=100, tid=JOB):
    return {"ts": ts, "tid": tid, "pid": tid, "nr": 1, "name": name, "dur_ns": dur}


def found(tmp_path, columns, tables, **manifest):
    with make_trace(tmp_path / "t", {"processes": PROCESSES, **tables}, **manifest) as trace:
        flushes(trace)
        return trace.connection.execute(f"SELECT {columns} FROM flushes ORDER BY ts").fetchall()


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
def test_what_a_call_writes_out_is_its_own_where_the_file_is_named(tmp_path, naming):
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


def test_where_they_cannot_be_told_from_its_own_it_is_ambiguous(tmp_path):
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


def test_what_was_said_in_a_call_that_has_returned_is_over(tmp_path):
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


def test_what_its_owner_does_by_then_is_another_matter(tmp_path):
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


def gap(stream, start, end):
    return {"stream": stream, "cpu": 0, "from": start, "to": end, "count": 1, "cause": "overrun"}


@pytest.mark.parametrize(
    ("stream", "start", "certainty"),
    [
        ("ftrace-machine-cpu0", 26, "unknown"),
        ("ebpf-machine", 26, "unknown"),
        ("ftrace-machine-cpu0", 35, "exact"),
        ("ftrace-target-cpu0", 26, "inferred"),
        ("ftrace-target-cpu0", 5, "exact"),
    ],
)
def test_what_may_have_been_lost_since_is_doubted(tmp_path, stream, start, certainty):
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
