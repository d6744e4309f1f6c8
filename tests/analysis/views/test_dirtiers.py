"""The dirtiers of written pages: one process or several, and its name at that time."""

import pytest

from tests.support.traces import make_trace
from tracer.analysis.views.writing.flushes import flushes

KWORKER, JOB, CHILD, OTHER = 50, 7, 8, 9
DEV, INO = "254:0", 11
PAGES_BIT = 32

PROCESSES = [
    {"pid": JOB, "tid": JOB, "role": "target", "target": "job", "container_id": "c1"},
    {"pid": CHILD, "tid": CHILD, "role": "child", "target": "job", "container_id": "c2"},
    {"pid": OTHER, "tid": OTHER, "role": "other"},
    {"pid": KWORKER, "tid": KWORKER, "ppid": 2, "role": "flusher"},
]


def bio(ts, dev=DEV):
    return {
        "ts": ts,
        "tid": KWORKER,
        "pid": KWORKER,
        "event": "bio_queue",
        "dev": dev,
        "sector": 8,
        "nr_sector": 8,
        "rwbs": "W",
    }


def dirt(ts, pid, event="dirty_folio", ino=INO):
    row = {"ts": ts, "tid": pid, "pid": pid, "event": event, "dev": DEV, "ino": ino}
    return {**row, "flags": PAGES_BIT} if event == "mark_inode_dirty" else row


def page(ts, pid):
    """Returns events as the kernel logs them: the folio, then at once its inode."""
    return [dirt(ts, pid), dirt(ts + 1, pid, "mark_inode_dirty")]


def write_out(ts, state=0, age=0):
    """A bracket of the flusher with a bio in it, and the inode's state at its end."""
    inode = {"tid": KWORKER, "pid": KWORKER, "dev": DEV, "ino": INO}
    return (
        [
            {"ts": ts, "event": "start", "age": age, **inode},
            {"ts": ts + 9, "event": "end", "state": state, **inode},
        ],
        bio(ts + 5),
    )


def found(tmp_path, columns, dirty, *brackets, more=None, **manifest):
    tables = {
        "processes": PROCESSES,
        "writeback": [{"ts": 1, "tid": KWORKER, "event": "start", "reason": "periodic"}],
        "inode_writeback": [row for rows, _ in brackets for row in rows],
        "block": [row for _, row in brackets],
        "dirty": dirty,
        **(more or {}),
    }
    tmp_path.mkdir(exist_ok=True)
    with make_trace(tmp_path / "t", tables, **manifest) as trace:
        flushes(trace)
        return trace.connection.execute(f"SELECT {columns} FROM flushes ORDER BY ts").fetchall()


def test_one_process_is_no_guess(tmp_path):
    assert found(
        tmp_path,
        "dirtier, dirtiers, target, certainty",
        [*page(10, JOB), *page(20, JOB)],
        write_out(100),
    ) == [(JOB, 1, "job", "exact")]


def test_several_are_ambiguous_and_their_target_is_theirs_together(tmp_path):
    assert found(
        tmp_path,
        "dirtier, dirtiers, target, container, certainty",
        [*page(10, JOB), *page(20, CHILD)],
        write_out(100),
    ) == [(CHILD, 2, "job", None, "ambiguous")]


def test_the_target_is_null_if_the_dirtiers_have_several(tmp_path):
    assert found(
        tmp_path,
        "dirtier, dirtiers, target, certainty",
        [*page(10, OTHER), *page(20, JOB)],
        write_out(100),
    ) == [(JOB, 2, None, "ambiguous")]


def test_a_mark_of_the_inode_counts_while_it_has_dirty_pages(tmp_path):
    # A page that is dirty already raises nothing else when somebody writes to it again.
    marks = [dirt(5, OTHER, "mark_inode_dirty"), *page(10, JOB)]
    assert found(tmp_path, "dirtier, dirtiers, certainty", marks, write_out(100)) == [
        (JOB, 1, "exact")
    ]
    marks.append(dirt(20, OTHER, "mark_inode_dirty"))
    assert found(tmp_path / "too", "dirtier, dirtiers, certainty", marks, write_out(100)) == [
        (JOB, 2, "ambiguous")
    ]


@pytest.mark.parametrize(
    ("state", "second"), [(0, (JOB, 1, "exact")), (PAGES_BIT | 2, (JOB, 2, "ambiguous"))]
)
def test_a_write_out_that_leaves_no_page_dirty_begins_anew(tmp_path, state, second):
    # The bit is the kernel's own affair: it is what marks set that come with a folio.
    assert found(
        tmp_path,
        "dirtier, dirtiers, certainty",
        [*page(10, OTHER), *page(200, JOB)],
        write_out(100, state),
        write_out(300),
    ) == [(OTHER, 1, "exact"), second]


def test_a_page_dirtied_during_a_write_out_may_belong_to_the_next(tmp_path):
    assert found(
        tmp_path,
        "dirtier, dirtiers, certainty",
        [*page(10, JOB), *page(107, OTHER), *page(200, JOB)],
        write_out(100),
        write_out(300),
    ) == [(JOB, 1, "exact"), (JOB, 2, "ambiguous")]


def test_a_whole_file_written_by_ext4_is_clean(tmp_path):
    most = (1 << 63) - 1
    wrote = {"tid": OTHER, "pid": OTHER, "dev": DEV, "ino": INO}
    whole = {"offset": 0, "last": most, "nr_to_write": most, "sync_mode": 1}

    def dirtiers(name, **asked):
        start = {"ts": 100, "event": "writepages_start", **wrote, **whole, **asked}
        end = {"ts": 110, "event": "writepages_end", **wrote}
        return found(
            tmp_path / name,
            "dirtiers",
            [*page(10, OTHER), *page(200, JOB)],
            write_out(300),
            more={"file_writes": [start, end]},
        )

    assert dirtiers("whole") == [(1,)]
    assert dirtiers("part", last=4095) == [(2,)]
    assert dirtiers("some", nr_to_write=1024) == [(2,)]
    assert dirtiers("not waiting", sync_mode=0) == [(2,)]


def test_write_outs_that_overlap_each_clean_what_was_dirtied_before_them(tmp_path):
    """Two processes sync a file by turns: the end of each call lies in one of the other's."""
    most = (1 << 63) - 1
    whole = {"offset": 0, "last": most, "nr_to_write": most, "sync_mode": 1}
    told = []
    for n in range(5):
        named = {"tid": 70 + n % 2, "pid": 70 + n % 2, "dev": DEV, "ino": INO}
        told.append({"ts": 100 + 20 * n, "event": "writepages_start", **named, **whole})
        told.append({"ts": 130 + 20 * n, "event": "writepages_end", **named})
    told.sort(key=lambda row: row["ts"])
    assert found(
        tmp_path,
        "dirtier, dirtiers, certainty",
        [*page(90, OTHER), *page(125, CHILD), *page(200, JOB)],
        *(write_out(ts, PAGES_BIT) for ts in (134, 172, 220)),
        more={"file_writes": told},
    ) == [(CHILD, 1, "exact"), (None, None, "exact"), (JOB, 1, "exact")]


def test_a_file_removed_as_its_write_out_ends_begins_anew_once(tmp_path):
    """At one time, of a clock of microseconds: everybody who dirties it next counts."""
    most, files = (1 << 63) - 1, 20
    whole = {"offset": 0, "last": most, "nr_to_write": most, "sync_mode": 1}
    dirty, told, brackets = [], [], []
    for ino in range(1, files + 1):
        at, named = 1000 * ino, {"tid": OTHER, "pid": OTHER, "dev": DEV, "ino": ino}
        told += [
            {"ts": at + 3, "event": "writepages_start", **named, **whole},
            {"ts": at + 6, "event": "writepages_end", **named},
            {"ts": at + 6, "event": "free_inode", **named, "tid": JOB, "pid": JOB},
        ]
        pages = [*page(at + 10, OTHER), *page(at + 20, JOB)]
        dirty += [{**row, "ino": ino} for row in pages]
        rows, written = write_out(at + 100)
        brackets.append(([{**row, "ino": ino} for row in rows], written))
    columns = "dirtier, dirtiers, target, certainty"
    answers = found(tmp_path, columns, dirty, *brackets, more={"file_writes": told})
    assert answers == [(JOB, 2, None, "ambiguous")] * files


def test_the_process_that_writes_out_is_not_a_dirtier(tmp_path):
    wrote = {"tid": OTHER, "pid": OTHER, "dev": DEV, "ino": INO}
    assert found(
        tmp_path,
        "dirtiers",
        [*page(10, JOB), dirt(105, OTHER, "mark_inode_dirty")],
        write_out(300),
        more={"file_writes": [{"ts": 100, "event": "writepages_start", **wrote}]},
    ) == [(1,)]


def test_kernel_threads_dirty_for_others(tmp_path):
    assert found(
        tmp_path, "dirtier, dirtiers", [*page(10, JOB), *page(20, KWORKER)], write_out(100)
    ) == [(JOB, 1)]


def test_dirty_since_before_the_recording(tmp_path):
    assert found(
        tmp_path,
        "dirtier, certainty",
        page(1010, JOB),
        write_out(1100, age=200),
        write_out(1300, age=0),
        clock={"name": "mono", "start_ns": 1000, "end_ns": 2000},
    ) == [(JOB, "ambiguous"), (None, "exact")]


def test_events_lost_since_it_was_clean(tmp_path):
    gap = {"stream": "ftrace-machine-cpu0", "cpu": 0, "from": 40, "to": 50, "cause": "overrun"}
    lost = {"loss": [{**gap, "count": 7}]}
    # The bracket of the work began before the gap: begin another.
    starts = {"tid": KWORKER, "event": "start", "reason": "periodic"}
    lost["writeback"] = [{"ts": 90, **starts}]
    assert found(
        tmp_path,
        "dirtier, certainty",
        [*page(10, JOB), *page(200, JOB)],
        write_out(100),
        write_out(300),
        more=lost,
    ) == [(JOB, "ambiguous"), (JOB, "exact")]


def test_two_file_systems_of_one_disk_have_the_same_numbers(tmp_path):
    disks = [
        {"dev": DEV, "name": "vda"},
        {"dev": "254:1", "name": "vda1", "partition_of": DEV},
        {"dev": "254:2", "name": "vda2", "partition_of": DEV},
    ]

    def certainty(name, *mounted):
        mounts = [{"dev": dev, "path": "/", "type": "ext4", "source": dev} for dev in mounted]
        brackets = write_out(100)
        brackets[1]["dev"] = "254:1"
        return found(
            tmp_path / name, "certainty", page(10, JOB), brackets, disks=disks, mounts=mounts
        )

    assert certainty("one", "254:1") == [("exact",)]
    assert certainty("two", "254:1", "254:2") == [("ambiguous",)]


def test_the_name_is_that_of_the_inode_since_it_was_made(tmp_path):
    named = {"dev": DEV, "ino": INO, "path": "/data/a\nb", "how": "handle"}

    def paths(name, **more):
        return found(
            tmp_path / name, "path", page(10, JOB), write_out(100), write_out(300), more=more
        )

    here, none = ("/data/a\nb",), (None,)
    assert paths("always", files=[named]) == [here, here]
    assert paths("born", files=[{**named, "born_ns": 200}]) == [none, here]
    assert paths("elsewhere", files=[{**named, "dev": "254:1"}]) == [none, none]
    freed = {"ts": 200, "tid": 1, "event": "free_inode", "dev": DEV, "ino": INO}
    assert paths("used again", files=[named], file_writes=[freed]) == [none, here]


def test_subvolumes_of_btrfs_have_the_same_numbers(tmp_path):
    fsid, bdi = "35cbcaf9-a890-4565-b69e-e6ec26acd374", "btrfs-1"
    btrfs = [{"fsid": fsid, "bdi": bdi, "dev": "0:50", "devices": [DEV]}]

    def rows(name, second_root):
        extents = [
            {
                "ts": ts,
                "tid": KWORKER,
                "event": "ordered_extent",
                "fsid": fsid,
                "ino": INO,
                "root": r,
            }
            for ts, r in ((102, 5), (302, second_root))
        ]
        files = [
            {"dev": bdi, "root": root, "ino": INO, "path": f"/{root}"} for root in (5, second_root)
        ]
        brackets = [write_out(100), write_out(300)]
        for inode, _ in brackets:
            for row in inode:
                row["dev"] = bdi
        dirty = [{**row, "dev": bdi} for row in (*page(10, JOB), *page(200, JOB))]
        return found(
            tmp_path / name,
            "root, path, certainty",
            dirty,
            *brackets,
            more={"file_writes": extents, "files": files[: 1 + (second_root != 5)]},
            btrfs=btrfs,
        )

    assert rows("one", 5) == [(5, "/5", "exact"), (5, "/5", "exact")]
    assert rows("two", 256) == [(5, "/5", "ambiguous"), (256, "/256", "ambiguous")]
