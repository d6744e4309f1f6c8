"""Lanes of the page cache: sums over the lane are those of the view."""

import pytest

from tests.support.traces import make_trace
from tracer.analysis.timeline.axis import Axis
from tracer.analysis.timeline.binned import REST
from tracer.analysis.timeline.lane import Kind
from tracer.analysis.timeline.reads import page_cache_lanes

MS, S = 10**6, 10**9
TENTHS = Axis(0, S - 1, S // 10)
"""A second in ten bins."""
PAGE = 4096
MIB = 1 << 20
JOB, PEER, OTHER = 7, 8, 9
PROCESSES = [
    {"pid": JOB, "tid": JOB, "role": "target", "target": "job", "comm": "python"},
    {"pid": OTHER, "tid": OTHER, "role": "other", "comm": "cat"},
]
TARGETS = [{"name": "job", "role": "target", "kind": "pid", "pid": JOB}]


def event(ms, name, index, pages=1, pid=JOB, ino=12):
    return {"ts": int(ms * MS), "pid": pid, "tid": pid, "event": name, "dev": "254:0", "ino": ino,
            "index": index, "pages": pages}  # fmt: skip


def read(ms, index, pages, ahead=0, **of):
    """A read that lacks all of its pages, and brings in more behind them."""
    adds = [event(ms + n / 1000, "add", index + n, **of) for n in range(pages + ahead)]
    return [
        event(ms, "sync_read_ahead", index, pages, **of),
        *adds,
        event(ms + 1, "access", index, pages, **of),
    ]


@pytest.fixture
def lanes(tmp_path):
    rows = [
        *read(10, 0, 3, ahead=2),
        event(120, "access", 3, 2),
        *read(230, 0, 4, ino=13),
        *read(340, 0, 50, pid=OTHER, ino=14),
        event(450, "delete", 0, 2),
    ]
    tables = {"page_cache": rows, "processes": PROCESSES}
    with make_trace(tmp_path / "t", tables, targets=TARGETS) as trace:
        return page_cache_lanes(trace, TENTHS)


def test_used_pages_are_told_apart_by_whether_they_were_missed(lanes):
    used = lanes[0].frame
    pages = used.drop(columns=["from_s", "to_s"]) * 0.1 * MIB / PAGE
    assert pages["missed"].tolist() == pytest.approx([3, 0, 4, 0, 0, 0, 0, 0, 0, 0])
    assert pages["in the cache"].tolist() == pytest.approx([0, 2, 0, 0, 0, 0, 0, 0, 0, 0])


def test_a_page_that_a_fault_misses_is_not_in_the_cache(tmp_path):
    """The fault uses it before it is there."""
    rows = [
        event(20, "fault", 0), event(21, "sync_read_ahead", 0), event(22, "add", 0),
        event(150, "access", 0),
    ]  # fmt: skip
    tables = {"page_cache": rows, "processes": PROCESSES}
    with make_trace(tmp_path / "t", tables, targets=TARGETS) as trace:
        used = page_cache_lanes(trace, TENTHS)[0].frame
    pages = used[["missed", "in the cache"]] * 0.1 * MIB / PAGE
    assert pages[:3].to_numpy().ravel().tolist() == pytest.approx([1, 0, 0, 1, 0, 0])


def test_the_cache_grows_by_what_is_read_and_shrinks_by_what_leaves(lanes):
    grown = lanes[1].frame
    assert set(grown["series"]) == {"job"}
    pages = grown["value"] * MIB / PAGE
    assert pages.tolist() == pytest.approx([5, 5, 9, 9, 7, 7, 7, 7, 7, 7])


def growth(folder, rows, processes, targets):
    """The growth of each target in MiB, and that of the query that the page shows."""
    tables = {"page_cache": rows, "processes": processes}
    with make_trace(folder / "t", tables, targets=targets) as trace:
        lane = page_cache_lanes(trace, TENTHS)[1]
        asked = trace.sql(lane.query)
    found = {name: part["value"].tolist() for name, part in lane.frame.groupby("series")}
    last = asked.groupby("target", dropna=False)["grown"].sum().tolist()
    assert last == pytest.approx([values[-1] for values in found.values()])
    return found


PEERS = {"pid": PEER, "tid": PEER, "role": "target", "target": "peer", "comm": "python"}
BOTH = [*TARGETS, {"name": "peer", "role": "target", "kind": "pid", "pid": PEER}]


def test_a_page_that_leaves_counts_for_the_target_that_brought_it_in(tmp_path):
    """The targets share file 12, which another program reads in part, too."""
    rows = [
        *read(10, 0, 256),
        event(120, "access", 0, 256, pid=PEER),
        *read(130, 256, 64, pid=OTHER),
        event(140, "access", 256, 64, pid=PEER),
        *read(230, 0, 512, pid=PEER, ino=13),
        *(event(450 + n / 1000, "delete", n) for n in range(256)),
        event(470, "delete", 256, 64),  # brought in by no target
        event(650, "delete", 0, 256, ino=13),
    ]  # 1 MiB of the peer's own file is left
    found = growth(tmp_path, rows, [*PROCESSES, PEERS], BOTH)
    assert found["job"] == pytest.approx([1] * 4 + [0] * 6)
    assert found["peer"] == pytest.approx([0, 0, 2, 2, 2, 2, 1, 1, 1, 1])


def test_pages_of_several_targets_that_leave_at_once_count_for_each(tmp_path):
    """The last 64 pages of the file were there before the recording. The job used it last."""
    rows = [
        *read(10, 0, 128), *read(120, 128, 64, pid=PEER),
        event(230, "access", 192, 64), event(350, "delete", 0, 256),
        # The pages come once more.
        *read(450, 0, 64, pid=PEER), event(550, "delete", 0, 64, pid=OTHER),
    ]  # fmt: skip
    found = growth(tmp_path, rows, [*PROCESSES, PEERS], BOTH)
    quarter = 64 * PAGE / MIB
    grown = [2, 2, 2, -1, -1, -1, -1, -1, -1, -1]
    assert found["job"] == pytest.approx([quarter * n for n in grown])
    grown = [0, 1, 1, 0, 1, 0, 0, 0, 0, 0]
    assert found["peer"] == pytest.approx([quarter * n for n in grown])


def test_pages_are_those_of_the_thread_that_had_the_number_when_they_came(tmp_path):
    """A program ends after its read, and a thread of the job has its number then."""
    processes = [
        PROCESSES[0],
        {**PROCESSES[1], "end_ns": 100 * MS},
        {**PROCESSES[0], "tid": OTHER, "start_ns": 200 * MS},
    ]
    mine = [{**one, "pid": JOB} for one in read(250, 0, 256, pid=OTHER, ino=13)]
    rows = [
        *read(10, 0, 256, pid=OTHER), *mine,
        event(350, "delete", 0, 256), event(450, "delete", 0, 128, ino=13),
    ]  # fmt: skip
    found = growth(tmp_path, rows, processes, TARGETS)
    assert found == {"job": pytest.approx([0, 0, 1, 1, 0.5, 0.5, 0.5, 0.5, 0.5, 0.5])}


def test_the_targets_that_change_the_cache_least_are_one_line(tmp_path):
    """The first target's pages leave again; it has changed the cache more than the others."""
    pids = range(20, 30)
    one = PROCESSES[0]
    processes = [{**one, "pid": pid, "tid": pid, "target": f"t{pid}"} for pid in pids]
    targets = [{**TARGETS[0], "name": f"t{pid}", "pid": pid} for pid in pids]
    pages = {20: 50} | {pid: pid - 20 for pid in pids if pid > 20}
    rows = [one for pid in pids for one in read(10 + pid, 0, pages[pid], pid=pid, ino=pid)]
    rows += [event(200 + n / 1000, "delete", n, ino=20) for n in range(50)]
    tables = {"page_cache": rows, "processes": processes}
    with make_trace(tmp_path / "t", tables, targets=targets) as trace:
        lane = page_cache_lanes(trace, TENTHS)[1]
    last = lane.frame.groupby("series", sort=False)["value"].last() * MIB / PAGE
    assert last.to_dict() == pytest.approx(
        {"t20": 0, "t25": 5, "t26": 6, "t27": 7, "t28": 8, "t29": 9, REST: 1 + 2 + 3 + 4}
    )
    assert "The targets that changed least are drawn as one line: 4." in lane.note


def test_files_that_targets_read_are_rows(lanes):
    files = lanes[2]
    assert files.kind is Kind.FILES
    found = files.frame[["file", "from_s", "pages"]].to_numpy().tolist()
    assert found == [
        ["inode 12 of 254:0", 0.0, 5],
        ["inode 13 of 254:0", pytest.approx(0.2), 4],
    ]


def test_files_read_on_a_kernel_with_large_pages_have_pages_of_4096_bytes(tmp_path):
    tables = {"page_cache": read(10, 0, 3, ahead=2), "processes": PROCESSES}
    host = {"machine": "aarch64", "cpus": 2, "memory_bytes": 1 << 30, "page_size": 65536}
    with make_trace(tmp_path / "t", tables, targets=TARGETS, host=host) as trace:
        files = page_cache_lanes(trace, TENTHS)[2]
        assert trace.sql(files.query)["pages"].sum() == 5 * 16
    assert files.frame["pages"].tolist() == [5 * 16]
    assert "Pages of 4096 bytes" in files.note


def test_without_events_there_is_nothing_to_draw(tmp_path):
    tables = {"page_cache": [], "processes": PROCESSES}
    with make_trace(tmp_path / "t", tables, targets=TARGETS) as trace:
        used, grown, *rest = page_cache_lanes(trace, TENTHS)
    assert list(used.frame.columns) == ["from_s", "to_s"]
    assert grown.frame.empty and rest == []
