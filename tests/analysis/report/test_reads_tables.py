"""The tables of reads: by epoch, by file, and who evicted whose pages; numbers known by hand."""

import pandas as pd
import pytest

from tests.support.page_events import (
    DEV,
    JOB,
    KSWAPD,
    OTHER,
    PEER,
    PROCESSES,
    TWO,
    PageEvents,
)
from tests.support.traces import make_trace
from tracer.analysis.report.reads import (
    EVICTIONS,
    READS_BY_EPOCH,
    READS_BY_FILE,
    about_partial,
)

TABLES = (READS_BY_EPOCH, READS_BY_FILE, EVICTIONS)
FILE, DATA = 12, 13
COUNTS = ("accessed_mib", "read_mib", "unused_mib", "evicted_mib", "refaulted_mib")
EVERYBODY = [
    *PROCESSES,
    {"pid": 40, "tid": 40, "role": "other", "comm": "db", "container_id": "c0ffee" * 8, "ppid": 1},
    {"pid": 51, "tid": 51, "role": "other", "comm": "kworker/3:1", "ppid": 2},
]


def story():
    """Two epochs of a job, a second target, and six who evict."""
    made = PageEvents()
    made.bring_in(0, 512)  # 512 read; of these 256 are missed, and 128 never used
    made.read(0, 256)
    made.end_epoch(0)
    made.read(256, 128)
    made.evict(range(384, 512))  # unused, by kswapd
    made.evict(range(128), by=JOB)
    made.evict(range(128, 192), by=PEER)
    made.evict(range(192, 208), by=OTHER)
    made.evict(range(208, 224), by=40)
    made.evict(range(224, 232), by=51)
    made.read(0, 256)  # 232 again
    made.end_epoch(1)
    made.read(0, 256, DATA, PEER)
    made.read(0, 16, DATA, OTHER)
    return made


def tables_of(made, **more):
    return {
        **made.tables,
        "processes": EVERYBODY,
        "files": [{"dev": DEV, "ino": FILE, "path": "/data/train.bin", "size": 2 << 20}],
        **more,
    }


@pytest.fixture
def trace(tmp_path):
    made = story()
    tables = tables_of(made)
    with make_trace(tmp_path / "t", tables, targets=TWO, clock=made.clock) as trace:
        yield trace


def declared(table):
    """Returns the columns of a table in which no process begins its epochs anew."""
    return [column.name for column in table.columns if not column.rare]


def plain(frame):
    """Returns rows with None for null."""
    return frame.astype(object).where(frame.notna(), None)


def test_reads_by_epoch(trace):
    found = plain(READS_BY_EPOCH.of(trace))
    told = {
        (row.target, row.epoch): tuple(256 * getattr(row, name) for name in COUNTS)
        for row in found.itertuples()
    }
    # In pages: accessed, read, unused, evicted, read again.
    assert told == {
        (None, None): (16, 0, 0, 0, 0),
        ("job", 0): (256, 512, 0, 0, 0),
        ("job", 1): (128 + 256, 232, 128, 128 + 232, 232),
        ("peer", None): (256, 256, 0, 0, 0),
    }
    assert found["target"].tolist() == [None, "job", "job", "peer"]
    assert found["hit_percent"].tolist() == [100, 0, pytest.approx(100 * (384 - 232) / 384), 0]
    assert found["amplification"].tolist() == [0, 2, pytest.approx(232 / 384), 1]


def test_an_epoch_that_was_recorded_in_part_says_so(tracer, tmp_path):
    made = story()
    begin, end = made.phases[0]["end"] - 1, made.phases[1]["end"] - 1
    recorded = made.clock
    clocks = {
        (False, False): recorded,
        (True, False): recorded | {"start_ns": 1},
        (False, True): recorded | {"end_ns": end},
        (True, True): recorded | {"start_ns": begin, "end_ns": end},
    }
    for number, (partial, clock) in enumerate(clocks.items()):
        name = f"{number}.trace"
        with make_trace(tmp_path / name, tables_of(made), targets=TWO, clock=clock) as trace:
            found = plain(READS_BY_EPOCH.of(trace))
            told = {(row.target, row.epoch): row.partial for row in found.itertuples()}
            epochs = dict(trace.rows("SELECT epoch, bool_or(partial) FROM reads GROUP BY epoch"))
            notes = about_partial(trace)
        assert told == {
            (None, None): None,
            **{("job", epoch): partial[epoch] for epoch in range(2)},
            ("peer", None): None,
        }
        assert epochs == {None: None, 0: partial[0], 1: partial[1]}
        which = ", ".join(str(epoch) for epoch in range(2) if partial[epoch])
        said = f"job: only a part of the reads of epoch {which} was recorded"
        assert [note.split(", because")[0] for note in notes] == [said] * any(partial)
        if partial[0] == partial[1]:
            told = tracer("report", name, "--json").json["notes"]
            assert [note for note in told if "epoch" in note] == notes
            assert ("only a part of the reads" in tracer("report", name).out) == any(partial)


@pytest.mark.parametrize("exit_ns", [None, 10**9])
def test_an_epoch_without_an_end_is_whole_if_its_process_ended(tmp_path, exit_ns):
    made = story()
    made.phases[1]["end"] = None
    tables = tables_of(made)
    tables["processes"] = [{**one, "end_ns": exit_ns} for one in EVERYBODY]
    clock = made.clock | {"end_ns": 2 * 10**9}
    with make_trace(tmp_path / "t", tables, targets=TWO, clock=clock) as trace:
        found = READS_BY_EPOCH.of(trace).set_index(["target", "epoch"])["partial"]
    assert [found["job", epoch] for epoch in range(2)] == [False, exit_ns is None]


def test_reads_by_file(trace):
    found = plain(READS_BY_FILE.of(trace))
    assert found[["target", "file", "accessed_mib", "read_mib"]].to_numpy().tolist() == [
        ["job", "/data/train.bin", 640 / 256, 744 / 256],
        ["peer", f"inode {DATA} of {DEV}", 1, 1],
        [None, f"inode {DATA} of {DEV}", 16 / 256, 0],
    ]


def test_evictions(trace):
    found = plain(EVICTIONS.of(trace))
    told = [(row.target, row.evicter, 256 * row.evicted_mib) for row in found.itertuples()]
    assert told == [
        ("job", "itself", 128),
        ("job", "kswapd0", 128),
        ("job", "peer", 64),
        ("job", "container c0ffeec0ffee", 16),
        ("job", "cp", 16),
        ("job", "kworker", 8),
    ]
    assert found["share"].tolist() == pytest.approx([one[2] / 360 for one in told])


def test_the_parts_of_two_traces_are_added_up(tmp_path):
    parts, made = [], story()
    for name in "ab":
        tables = tables_of(made, block=[], off_cpu=[])
        with make_trace(tmp_path / name, tables, targets=TWO, clock=made.clock) as trace:
            parts.append([table.parts(trace) for table in TABLES])
    for table, one, other in zip(TABLES, *parts, strict=True):
        alone, both = table.finish(one), table.finish(table.together([one, other]))
        assert list(both.columns) == declared(table)
        for column in both.columns:
            sums = column.endswith(("_mib", "_s"))
            wanted = 2 * alone[column] if sums else alone[column]
            pd.testing.assert_series_equal(both[column], wanted, check_dtype=False)


def bio(ts, sectors, tid=JOB, rwbs="R"):
    return {
        "ts": ts, "pid": tid, "tid": tid, "event": "bio_queue", "dev": DEV, "sector": 0,
        "nr_sector": sectors, "rwbs": rwbs,
    }  # fmt: skip


def test_bytes_of_the_device_and_waits_need_their_tables(tmp_path):
    made = PageEvents()
    made.bring_in(0, 4)
    now = made.now
    made.now += 100
    made.read(0, 4)
    made.end_epoch(0)
    block = [bio(now + 10, 32), bio(now + 11, 8, rwbs="RM"), bio(now + 12, 8, rwbs="W")]
    wait = {
        "ts": now + 20, "dur_ns": 70, "pid": JOB, "tid": JOB, "state": "D", "wake_ns": now + 90,
        "waker_tid": 0, "interrupt": True, "run_delay_ns": 0,
    }  # fmt: skip
    calls = [{"ts": 1, "tid": JOB, "name": "read", "dur_ns": made.now, "ret": 4 * 4096}]
    both = {"block": block, "off_cpu": [wait], "syscalls": calls}
    wanted = {(): (None, None), ("block",): (16, None), tuple(both): (16, 70)}
    for names, (kib, ns) in wanted.items():
        tables = tables_of(made, **{name: both[name] for name in names})
        with make_trace(tmp_path / str(len(names)), tables, clock=made.clock) as trace:
            for table in (READS_BY_EPOCH, READS_BY_FILE):
                row = plain(table.of(trace)).iloc[0]
                assert row["disk_mib"] == (None if kib is None else kib / 1024)
                assert row["wait_s"] == (None if ns is None else pytest.approx(ns / 1e9))


@pytest.mark.parametrize("table", TABLES, ids=lambda table: table.name)
def test_no_events_make_an_empty_table(tmp_path, table):
    with make_trace(tmp_path / "t", {"processes": PROCESSES, "page_cache": []}) as trace:
        found = table.of(trace)
    assert list(found.columns) == declared(table)
    assert len(found) == 0


def test_unknown_events_do_nothing(tmp_path):
    made = PageEvents()
    made.read(0, 8)
    for event in ("nonsense", "bio", "wait", "begin", "return"):
        made.add_event(JOB, event, 0, 8)
    with make_trace(tmp_path / "t", tables_of(made), targets=TWO) as trace:
        assert READS_BY_EPOCH.of(trace)["accessed_mib"].tolist() == [8 / 256]
        view = trace.sql("SELECT * FROM page_uses")
    assert view["accessed"].sum() == view["read"].sum() == 8
    assert view["disk_bytes"].isna().all() and view["wait_ns"].isna().all()  # no block, no off_cpu


def test_the_evicter_of_whom_nothing_is_known_is_unknown(tmp_path):
    made = PageEvents()
    made.read(0, 8, tid=OTHER)
    made.evict(range(8), by=77)
    with make_trace(tmp_path / "t", tables_of(made), targets=TWO) as trace:
        found = plain(EVICTIONS.of(trace))
    assert found.to_numpy().tolist() == [[None, "unknown", 8 / 256, 1]]


def test_processes_of_no_target_that_evict_their_own_pages_are_named(tmp_path):
    made = PageEvents()
    made.read(0, 8, tid=OTHER)
    made.read(0, 8, DATA, tid=40)
    made.evict(range(8), by=OTHER)
    made.evict(range(4), DATA, by=40)
    with make_trace(tmp_path / "t", tables_of(made), targets=TWO, clock=made.clock) as trace:
        found = plain(EVICTIONS.of(trace))
    assert found[["target", "evicter"]].to_numpy().tolist() == [
        [None, "cp"],
        [None, "container c0ffeec0ffee"],
    ]


def test_pages_that_leave_are_of_their_user_although_another_process_has_its_number(tmp_path):
    made = PageEvents()
    made.read(0, 8)
    made.now += 100
    gone = {"start_ns": 0, "end_ns": made.now}
    other = {"pid": JOB, "tid": JOB, "role": "other", "comm": "tar", "start_ns": made.now + 1}
    made.evict(range(3))
    made.evict([3, 4], by=JOB)  # tar
    tables = tables_of(made, processes=[PROCESSES[0] | gone, *PROCESSES[1:], other])
    with make_trace(tmp_path / "t", tables, targets=TWO, clock=made.clock) as trace:
        found = plain(EVICTIONS.of(trace))
    assert found[["target", "evicter", "evicted_mib"]].to_numpy().tolist() == [
        ["job", "kswapd0", 3 / 256],
        ["job", "tar", 2 / 256],
    ]


@pytest.mark.slow
def test_the_report_has_the_tables_in_80_columns(tracer, tmp_path):
    made = story()
    made.evict(range(100), DATA, KSWAPD)
    evil = [{"dev": DEV, "ino": FILE, "path": "/<b>\x1b[2J\n" + "x" * 400, "size": 0}]
    tables = tables_of(made, files=evil)
    make_trace(tmp_path / "t", tables, targets=TWO, clock=made.clock).close()
    said = tracer("report", "t").out
    assert max(map(len, said.splitlines())) <= 80
    assert all(one.isprintable() for one in said.split("\n"))
    for table in TABLES:
        assert table.title in said
    told = tracer("report", "t", "--json").json["tables"]
    assert [len(told[table.name]) for table in TABLES] == [4, 3, 7]
