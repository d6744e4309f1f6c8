"""Lanes of the page cache: sums over the lane are those of the view."""

import pytest

from tests.support.traces import make_trace
from tracer.analysis.timeline.axis import Axis
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


def test_the_growth_of_targets_that_share_a_file_adds_up_and_the_note_says_whose_it_is(tmp_path):
    rows = [
        *read(10, 0, 256),
        event(120, "access", 0, 256, pid=PEER),
        *read(230, 0, 512, pid=PEER, ino=13),
        *(event(450 + n / 1000, "delete", n) for n in range(256)),
        event(650, "delete", 0, 256, ino=13),
    ]  # 1 MiB of the peer's own file is left
    peer = {"pid": PEER, "tid": PEER, "role": "target", "target": "peer", "comm": "python"}
    targets = [*TARGETS, {"name": "peer", "role": "target", "kind": "pid", "pid": PEER}]
    tables = {"page_cache": rows, "processes": [*PROCESSES, peer]}
    with make_trace(tmp_path / "t", tables, targets=targets) as trace:
        lane = page_cache_lanes(trace, TENTHS)[1]
    found = {name: part["value"].tolist() for name, part in lane.frame.groupby("series")}
    assert found["job"] == pytest.approx([1] * 10)
    assert found["peer"] == pytest.approx([0, 0, 2, 2, 1, 1, 0, 0, 0, 0])
    assert "counts for the target that used its file last" in lane.note
    assert "or that another process had brought in" in lane.note


def test_files_that_targets_read_are_rows(lanes):
    files = lanes[2]
    assert files.kind is Kind.FILES
    found = files.frame[["file", "from_s", "pages"]].to_numpy().tolist()
    assert found == [
        ["inode 12 of 254:0", 0.0, 5],
        ["inode 13 of 254:0", pytest.approx(0.2), 4],
    ]


def test_without_events_there_is_nothing_to_draw(tmp_path):
    tables = {"page_cache": [], "processes": PROCESSES}
    with make_trace(tmp_path / "t", tables, targets=TARGETS) as trace:
        used, grown, *rest = page_cache_lanes(trace, TENTHS)
    assert list(used.frame.columns) == ["from_s", "to_s"]
    assert grown.frame.empty and rest == []
