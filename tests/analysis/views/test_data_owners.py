"""A wait for a commit's data is one wait for each of those whose data it is."""

from pathlib import Path

import pytest

from tests.support.traces import make_trace
from tracer.analysis.explain.explanation import explain
from tracer.analysis.report.waits import waits_table
from tracer.analysis.views.waiting.critical_path import critical_path
from tracer.analysis.views.waiting.waits import waits
from tracer.store.trace import Trace

JOB, PEER, DB, FLUSHER, JOURNAL = 7, 8, 9, 50, 60
DISK, PARTITION = "8:0", "8:1"
TARGETS = [
    {"name": "job", "role": "target", "kind": "pid", "pid": JOB},
    {"name": "peer", "role": "target", "kind": "pid", "pid": PEER},
]
PROCESSES = [
    {"pid": JOB, "tid": JOB, "comm": "python", "role": "target", "target": "job"},
    {"pid": PEER, "tid": PEER, "comm": "peer", "role": "target", "target": "peer"},
    {"pid": DB, "tid": DB, "comm": "db", "role": "other", "container_id": "c0ffee"},
    {"pid": FLUSHER, "tid": FLUSHER, "ppid": 2, "comm": "kworker/u8:1", "role": "flusher"},
    {"pid": JOURNAL, "tid": JOURNAL, "ppid": 2, "comm": "jbd2/sda1-8", "role": "journal"},
]
DISKS = [
    {"dev": DISK, "name": "sda", "bytes": 1 << 40},
    {"dev": PARTITION, "name": "sda1", "bytes": 1 << 30, "partition_of": DISK, "start": 2048},
]
MOUNTS = [{"dev": PARTITION, "path": "/", "source": "x", "type": "ext4"}]
BEGUN, FLUSHING, LOGGING, RECORD, ENDED = 1000, 1100, 1200, 1210, 1300
"""The begin of the wait, and the steps of the commit: it waits for data until LOGGING."""


def by(tid: int, ts: int, event: str, **more) -> dict:
    return {"ts": ts, "event": event, "pid": tid, "tid": tid} | more


def tables(files: dict[int, tuple[int | None, int]]) -> dict[str, list[dict]]:
    """A step that waits for a commit while the disk writes files: inode to dirtier and sectors."""
    made: dict[str, list[dict]] = {
        "processes": PROCESSES, "block": [], "dirty": [], "inode_writeback": [],
    }  # fmt: skip
    for at, (ino, (dirtier, sectors)) in enumerate(files.items()):
        if dirtier:
            made["dirty"].append(by(dirtier, 10 + at, "dirty_folio", dev=DISK, ino=ino))
        of = {"dev": DISK, "ino": ino, "state": 0}
        made["inode_writeback"] += [
            by(FLUSHER, 910 + 4 * at, "start", **of),
            by(FLUSHER, 913 + 4 * at, "end", **of),
        ]
        place = {"dev": DISK, "sector": 2048 * (at + 2), "nr_sector": sectors, "rwbs": "W"}
        made["block"] += [
            by(FLUSHER, 911 + 4 * at, "bio_queue", **place),
            by(FLUSHER, 990, "issue", **place),
            by(0, 1150 + at, "complete", **place),
        ]
    record = {"dev": DISK, "sector": 99_000, "nr_sector": 8, "rwbs": "FWFSM"}
    made["block"].append(by(JOURNAL, RECORD, "bio_queue", **record))
    made["block"].sort(key=lambda row: row["ts"])
    steps = zip(
        ("commit_start", "commit_flushing", "commit_logging", "commit_end"),
        (BEGUN, FLUSHING, LOGGING, ENDED),
        strict=True,
    )
    made["journal"] = [by(JOURNAL, ts, event, dev=PARTITION) for event, ts in steps]
    made["syscalls"] = [{"ts": 990, "pid": JOB, "tid": JOB, "name": "fsync", "dur_ns": 320}]
    made["file_writes"] = [by(JOB, 991, "fsync_start", dev=PARTITION, ino=99)]
    made["off_cpu"] = [
        {"ts": BEGUN, "dur_ns": ENDED - BEGUN, "pid": JOB, "tid": JOB, "state": "D",
         "wake_ns": ENDED, "waker_tid": JOURNAL, "waker_pid": JOURNAL, "interrupt": False,
         "run_delay_ns": 0}
    ]  # fmt: skip
    step = {"name": "step", "start": 980, "end": 1400, "pid": JOB, "tid": JOB, "step": 0}
    train = {"name": "train", "start": 970, "end": 1500, "pid": JOB, "tid": JOB}
    made["phases"] = [train, step]
    return made


def recorded(folder: Path, files: dict[int, tuple[int | None, int]]) -> Trace:
    manifest = {"targets": TARGETS, "disks": DISKS, "mounts": MOUNTS}
    return make_trace(folder, tables(files), **manifest)


def data_waits(trace: Trace) -> list[tuple]:
    critical_path(trace)
    return trace.rows(
        "SELECT ts, dur_ns, for_comm, for_target, for_container, certainty FROM waits"
        " WHERE detail = 'data' ORDER BY ts"
    )


def test_two_neighbours_share_a_wait_as_they_share_the_sectors(tmp_path):
    with recorded(tmp_path / "t", {11: (PEER, 8), 12: (DB, 64)}) as trace:
        found = data_waits(trace)
        kinds = trace.rows("SELECT detail, sum(dur_ns) FROM waits GROUP BY detail ORDER BY detail")
    largest = (LOGGING - FLUSHING) * 64 // 72
    assert found == [
        (FLUSHING, largest, "db", None, "c0ffee", "inferred"),
        (FLUSHING + largest, LOGGING - FLUSHING - largest, "peer", "peer", None, "inferred"),
    ]
    assert kinds == [("data", LOGGING - FLUSHING), ("flush", ENDED - RECORD),
                     ("journal", FLUSHING - BEGUN + RECORD - LOGGING)]  # fmt: skip


def test_a_wait_for_the_data_of_one_is_one_wait(tmp_path):
    with recorded(tmp_path / "t", {11: (PEER, 8), 12: (PEER, 64)}) as trace:
        assert data_waits(trace) == [
            (FLUSHING, LOGGING - FLUSHING, "peer", "peer", None, "exact")
        ]  # fmt: skip


def test_data_whose_dirtier_is_not_known_has_a_part(tmp_path):
    with recorded(tmp_path / "t", {11: (PEER, 8), 12: (None, 8)}) as trace:
        half = (LOGGING - FLUSHING) // 2
        assert data_waits(trace) == [
            (FLUSHING, half, "peer", "peer", None, "inferred"),
            (FLUSHING + half, half, None, None, None, "inferred"),
        ]


@pytest.mark.parametrize("sectors", [(8, 16, 104), (8, 8, 8), (8, 8, 1 << 30), (1, 1 << 20, 3)])
def test_the_parts_of_a_wait_adjoin_and_add_up(tmp_path, sectors):
    of = zip((PEER, DB, JOB), sectors, strict=True)
    with recorded(tmp_path / "t", dict(enumerate(of, 11))) as trace:
        parts = [(ts, ts + dur) for ts, dur, *_ in data_waits(trace)]
    assert (parts[0][0], parts[-1][1]) == (FLUSHING, LOGGING)
    assert [end for _, end in parts[:-1]] == [begin for begin, _ in parts[1:]]
    assert all(end > begin for begin, end in parts)


def test_blame_is_shared_and_adds_up(tmp_path):
    with recorded(tmp_path / "t", {11: (PEER, 8), 12: (DB, 24), 13: (JOB, 32)}) as trace:
        table = waits_table(trace)
    sync = table[table["kind"] == "sync"].set_index("whose")["path_s"]
    data = (LOGGING - FLUSHING) / 1e9
    assert sync["target"] == pytest.approx(data / 8, abs=1e-9)
    assert sync["container"] == pytest.approx(data * 3 / 8, abs=1e-9)
    assert sync["itself"] == pytest.approx(data / 2, abs=1e-9)
    assert sync.sum() == pytest.approx((ENDED - BEGUN) / 1e9)


def test_a_step_explained_has_the_wait_for_data_as_a_whole(tmp_path):
    """Events do not tell when each one's data was written."""
    with recorded(tmp_path / "t", {11: (PEER, 8), 12: (DB, 24)}) as trace:
        (step,) = explain(trace).slowest
    [wait] = [one for one in step.segments if one["detail"] == "data"]
    assert (wait["ts"], wait["dur_ns"]) == (FLUSHING, LOGGING - FLUSHING)
    assert {one["for_whom"]: one["bytes"] for one in wait["meanwhile"]} == {
        "target peer": 8 * 512, "container c0ffee": 24 * 512,
    }  # fmt: skip
    assert sum(one["dur_ns"] for one in step.segments) == step.total_ns


def test_impossible_numbers_are_no_error(tmp_path):
    """Somebody may have made the trace to harm a reader."""
    longest, late = (1 << 63) - 1, (1 << 63) - (1 << 20)
    made = tables({11: (PEER, longest), 12: (DB, longest), 13: (JOB, longest)})
    last = {"sector": (1 << 64) - 1}
    made["block"] = [row | last for row in made["block"]]
    made["block"] += [
        by(FLUSHER, 800, "bio_queue", dev=DISK, nr_sector=16, rwbs="W", **last),
        by(FLUSHER, 990, "issue", dev=DISK, sector=8, nr_sector=8, rwbs="W"),  # of no bio
        by(0, 1150, "complete", dev=DISK, sector=8, nr_sector=8, rwbs="W"),
    ]
    for row in (*made["journal"][2:], made["block"][-1]):
        row["ts"] += late
    made["block"].sort(key=lambda row: row["ts"])
    made["off_cpu"][0] |= {"dur_ns": longest, "wake_ns": None, "run_delay_ns": None}
    made["syscalls"][0]["dur_ns"] = None
    with make_trace(tmp_path / "t", made, targets=TARGETS, disks=DISKS, mounts=MOUNTS) as trace:
        of_job = f"FROM {waits(trace)} WHERE tid = {JOB}"
        assert trace.rows(f"SELECT sum(dur_ns) {of_job}") == [(longest,)]
        owners = trace.rows(f"SELECT DISTINCT for_comm {of_job} AND detail = 'data' ORDER BY ALL")
    assert owners == [("db",), ("peer",), ("python",)]
