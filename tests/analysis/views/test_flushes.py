"""Flushes: the chain from bio to reason, inode and dirtier, and how sure each link is."""

import pytest

from tests.support.traces import make_trace
from tracer.analysis.views.writing.flushes import flushes

KWORKER, JOURNAL, JOB = 50, 60, 7
DEV = "254:0"


def bio(ts, tid, sector, nr_sector=8, rwbs="W"):
    return {
        "ts": ts,
        "tid": tid,
        "pid": tid,
        "event": "bio_queue",
        "dev": DEV,
        "sector": sector,
        "nr_sector": nr_sector,
        "rwbs": rwbs,
    }


def work(ts, event, reason="periodic", tid=KWORKER):
    return {"ts": ts, "tid": tid, "pid": tid, "event": event, "reason": reason, "bdi": DEV}


def inode(ts, event, ino, tid=KWORKER):
    return {"ts": ts, "tid": tid, "pid": tid, "event": event, "dev": DEV, "ino": ino}


PROCESSES = [
    {"pid": JOB, "tid": JOB, "role": "target", "target": "job", "comm": "python"},
    {"pid": KWORKER, "tid": KWORKER, "role": "flusher", "comm": "kworker/u8:1"},
    {"pid": JOURNAL, "tid": JOURNAL, "role": "journal", "comm": "jbd2/vda-8"},
]


def found(tmp_path, columns, name="t", **tables):
    tables.setdefault("processes", PROCESSES)
    with make_trace(tmp_path / name, tables, own_files={DEV: [99]}) as trace:
        flushes(trace)
        return trace.connection.execute(f"SELECT {columns} FROM flushes ORDER BY ts").fetchall()


def test_a_bio_in_a_bracket_has_its_reason_inode_and_dirtier(tmp_path):
    assert found(
        tmp_path,
        "page, pages, ino, reason, dirtier, target, certainty, own",
        block=[bio(130, KWORKER, 80, 24), bio(230, KWORKER, 800)],
        writeback=[work(100, "start"), work(150, "written"), work(200, "start", "sync")],
        inode_writeback=[inode(120, "start", 11), inode(140, "end", 11), inode(220, "start", 99)],
        dirty=[
            {"ts": 10, "tid": JOB, "pid": JOB, "event": "dirty_folio", "dev": DEV, "ino": 11},
            {
                "ts": 121,
                "tid": KWORKER,
                "pid": KWORKER,
                "event": "mark_inode_dirty",
                "dev": DEV,
                "ino": 11,
            },
        ],
    ) == [
        (10, 3, 11, "periodic", JOB, "job", "exact", False),
        (100, 1, 99, "sync", None, None, "exact", True),
    ]


def test_a_bracket_that_has_ended_gives_no_reason(tmp_path):
    assert found(
        tmp_path,
        "reason, ino, certainty",
        block=[bio(300, KWORKER, 80)],
        writeback=[work(100, "start"), work(150, "written")],
        inode_writeback=[inode(120, "start", 11), inode(140, "end", 11)],
    ) == [("other", None, "unknown")]


def test_brackets_of_other_threads_do_not_count(tmp_path):
    assert found(
        tmp_path,
        "reason, certainty",
        block=[bio(130, KWORKER + 1, 80)],
        writeback=[work(100, "start")],
    ) == [("other", "unknown")]


def test_the_journal_is_a_reason_of_its_own(tmp_path):
    assert found(tmp_path, "reason, certainty", block=[bio(1, JOURNAL, 8, rwbs="WFS")]) == [
        ("journal", "exact")
    ]


def test_a_bio_in_a_system_call_has_that_calls_reason(tmp_path):
    def call(ts, name, dur):
        return {"ts": ts, "tid": JOB, "pid": JOB, "nr": 1, "name": name, "dur_ns": dur}

    assert found(
        tmp_path,
        "reason, call, certainty",
        block=[bio(15, JOB, 8), bio(35, JOB, 8), bio(55, JOB, 8), bio(75, JOB, 8), bio(95, JOB, 8)],
        syscalls=[
            call(10, "fsync", 10),
            call(30, "pwrite64", 10),
            call(50, "close", 10),
            call(70, "sync", None),
        ],
    ) == [
        ("fsync", "fsync", "exact"),
        ("direct", "pwrite64", "inferred"),
        ("other", "close", "inferred"),
        ("sync", "sync", "exact"),
        ("sync", "sync", "exact"),
    ]


def test_pages_are_counted_from_sectors(tmp_path):
    # 512-byte sectors, 4096-byte pages: a bio touches every page that it overlaps.
    assert found(
        tmp_path,
        "page, pages",
        block=[bio(1, JOB, 0, 2), bio(2, JOB, 7, 2), bio(3, JOB, 8, 8), bio(4, JOB, 4, 20)],
    ) == [(0, 1), (0, 2), (1, 1), (0, 3)]


def test_reads_flushes_and_discards_are_no_flushes(tmp_path):
    events = [bio(1, JOB, 0, 8, "R"), bio(2, JOB, 0, 0, "FF"), bio(3, JOB, 0, 8, "D")]
    assert found(tmp_path, "ts", block=events) == []


def test_the_stage_of_the_job_is_the_phase(tmp_path):
    assert found(
        tmp_path,
        "phase",
        block=[bio(5, JOB, 0), bio(15, JOB, 0), bio(25, JOB, 0)],
        phases=[
            {"start": 10, "end": 20, "pid": JOB, "tid": JOB, "name": "train"},
            {"start": 12, "end": 18, "pid": JOB, "tid": JOB, "name": "forward"},
        ],
    ) == [(None,), ("train",), (None,)]


def test_block_events_alone_suffice(tmp_path):
    with make_trace(tmp_path / "t", {"block": [bio(1, JOB, 8)]}) as trace:
        flushes(trace)
        query = "SELECT reason, certainty FROM flushes"
        assert trace.connection.execute(query).fetchall() == [("other", "unknown")]


def test_write_back_of_a_partition_is_that_of_its_disk(tmp_path):
    disks = [{"dev": DEV, "name": "vda"}, {"dev": "254:1", "name": "vda1", "partition_of": DEV}]
    tables = {
        "processes": PROCESSES,
        "block": [{**bio(130, KWORKER, 80), "dev": "254:1"}],
        "writeback": [work(100, "start")],
        "inode_writeback": [inode(120, "start", 99)],
        "dirty": [{"ts": 9, "tid": JOB, "pid": JOB, "event": "dirty_folio", "dev": DEV, "ino": 99}],
    }
    with make_trace(tmp_path / "t", tables, own_files={"254:1": [99]}, disks=disks) as trace:
        flushes(trace)
        query = "SELECT dev, ino, dirtier, own, certainty FROM flushes"
        assert trace.connection.execute(query).fetchall() == [("254:1", 99, JOB, True, "exact")]


def test_a_bracket_whose_end_may_be_lost_is_no_certainty(tmp_path):
    gap = {"stream": "ftrace-machine-cpu0", "cpu": 0, "from": 200, "to": 300, "cause": "overrun"}
    assert found(
        tmp_path,
        "ts, reason, certainty",
        block=[bio(130, KWORKER, 80), bio(5000, KWORKER, 80)],
        writeback=[work(100, "start")],
        loss=[{**gap, "count": 7}],
    ) == [(130, "periodic", "exact"), (5000, "periodic", "unknown")]


def test_the_phase_is_the_innermost_of_the_dirtiers_process(tmp_path):
    def stage(start, end, name, pid):
        return {"start": start, "end": end, "pid": pid, "tid": pid, "name": name}

    assert found(
        tmp_path,
        "phase",
        block=[bio(15, KWORKER, 8), bio(50, KWORKER, 8), bio(85, KWORKER, 8)],
        writeback=[work(1, "start")],
        inode_writeback=[inode(2, "start", 11), inode(80, "end", 11)],
        dirty=[{"ts": 1, "tid": JOB, "pid": JOB, "event": "dirty_folio", "dev": DEV, "ino": 11}],
        phases=[
            stage(0, 100, "train", JOB),
            stage(10, 20, "data_load", JOB),
            stage(10, 95, "inference", JOB + 1),
        ],
    ) == [("data_load",), ("train",), (None,)]  # the last has no dirtier to tell whose it is


def test_the_last_of_the_brackets_that_begin_together_holds(tmp_path):
    work_done = [work(100, "start", "background"), work(100, "written", "background")]
    assert found(
        tmp_path,
        "reason, ino, certainty",
        block=[bio(130, KWORKER, 80)],
        writeback=[*work_done, work(100, "start", "sync"), work(150, "written", "sync")],
        inode_writeback=[inode(120, "start", 11), inode(140, "end", 11)],
    ) == [("sync", 11, "exact")]


def test_a_bracket_that_ends_as_it_begins_gives_no_reason(tmp_path):
    # A clock of microseconds; the same thread then does another work of the kernel's.
    empty = [work(100, "start"), work(100, "written")]
    others = [work(200, "start"), work(300, "written"), work(300, "start", "sync")]
    for number, rows in enumerate([empty + others, empty[::-1] + others]):
        assert found(
            tmp_path,
            "reason, certainty",
            f"{number}.trace",
            block=[bio(130, KWORKER, 80), bio(250, KWORKER, 80), bio(350, KWORKER, 80)],
            writeback=rows,
        ) == [("other", "unknown"), ("periodic", "exact"), ("sync", "exact")]


def test_an_end_and_a_begin_at_one_time_are_told_apart_in_any_order(tmp_path):
    # A clock of microseconds: the flusher leaves inode 11 and is at inode 12 at once.
    brackets = [inode(120, "start", 11), inode(140, "end", 11), inode(140, "start", 12)]
    brackets += [inode(160, "end", 12)]
    dirtied = [
        {"ts": ts, "tid": pid, "pid": pid, "event": "dirty_folio", "dev": DEV, "ino": ino}
        for ts, pid, ino in ((10, JOB, 11), (20, JOB, 12), (20, 8, 12))
    ]
    answers = [
        found(
            tmp_path,
            "ino, reason, dirtier, dirtiers, certainty",
            f"{number}.trace",
            block=[bio(130, KWORKER, 80), bio(150, KWORKER, 800)],
            writeback=[work(100, "start"), work(170, "written")],
            inode_writeback=rows,
            dirty=dirtied,
        )
        for number, rows in enumerate([brackets, brackets[:1] + brackets[2:0:-1] + brackets[3:]])
    ]
    assert answers[0] == answers[1]
    assert [row[:4] for row in answers[0]] == [(11, "periodic", JOB, 1), (12, "periodic", 8, 2)]


LATE = 10**6
STRANGER = 999


def written_in_all_ways():
    """Returns tables: a flusher writes what the job dirtied; the job syncs and writes directly."""

    def file(ts, event, ino):
        return {"ts": ts, "tid": JOB, "pid": JOB, "event": event, "dev": DEV, "ino": ino}

    return {
        "block": [bio(130, KWORKER, 80), bio(260, JOB, 160), bio(370, JOB, 240), bio(450, 9, 320)],
        "writeback": [work(100, "start"), work(150, "written")],
        "inode_writeback": [inode(120, "start", 11), inode(140, "end", 11)],
        "dirty": [file(10, "dirty_folio", 11), file(20, "dirty_folio", 12)],
        "file_writes": [
            *(file(240, "fsync_start", 12), file(250, "writepages_start", 12)),
            *(file(280, "fsync_end", 12), file(360, "direct_start", 13)),
        ],
        "syscalls": [
            {"ts": ts, "tid": JOB, "pid": JOB, "nr": 1, "name": name, "dur_ns": 60}
            for ts, name in ((230, "fsync"), (350, "pwrite64"))
        ],
        "phases": [{"start": 5, "end": 255, "pid": JOB, "tid": JOB, "name": "train"}],
    }


OTHERS = {
    "writeback": work(LATE, "start", "sync", STRANGER),
    "inode_writeback": inode(LATE, "start", 11, STRANGER),
    "dirty": {"ts": LATE, "tid": STRANGER, "event": "dirty_folio", "dev": DEV, "ino": 11},
    "file_writes": {"ts": LATE, "tid": STRANGER, "event": "work_start", "dev": DEV, "work": 1},
    "syscalls": {"ts": LATE, "tid": STRANGER, "nr": 1, "name": "fsync", "dur_ns": 1},
    "phases": {"start": LATE, "end": LATE + 1, "pid": STRANGER, "tid": STRANGER, "name": "train"},
    "loss": {"stream": "machine/0", "cpu": 0, "from": LATE, "to": LATE, "cause": "overrun"},
}


@pytest.mark.parametrize("without", [[], *([table] for table in OTHERS), list(OTHERS)])
def test_a_late_row_of_another_thread_changes_no_flush(tmp_path, without):
    kept = {name: rows for name, rows in written_in_all_ways().items() if name not in without}
    empty = found(tmp_path, "*", "empty", **kept, **{name: [] for name in without})
    others = {name: [*kept.get(name, []), row] for name, row in OTHERS.items()}
    assert found(tmp_path, "*", "others", **{**kept, **others}) == empty
    assert len(empty) == 4
