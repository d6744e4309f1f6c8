"""The lane of phases over time: what is nested, joined, and left out."""

import pytest

from tests.support.timeline import MS, TENTHS, made
from tracer.analysis.timeline.phases import phases

pytestmark = pytest.mark.slow


def mark(start, end, name, tid=1, **more):
    return {"start": start * MS, "end": None if end is None else end * MS, "name": name,
            "pid": 1, "tid": tid, **more}  # fmt: skip


def test_phases_are_nested_as_they_were_marked(tmp_path):
    marks = [
        mark(0, 900, "train"), mark(0, 100, "step", step=0), mark(0, 40, "fetch", step=0),
        mark(40, 100, "forward"), mark(100, 200, "step", step=1), mark(150, 150, "mark"),
        mark(900, None, "inference"), mark(100, 300, "fetch", tid=2),
    ]  # fmt: skip
    names = [{"pid": 1, "tid": tid, "comm": comm} for tid, comm in ((1, "python"), (2, "loader"))]
    with made(tmp_path, phases=marks, processes=names) as trace:
        lane = phases(trace, TENTHS)
    found = [(row.thread, row.depth, row.name) for row in lane.frame.itertuples()]
    assert found == [
        ("python 1", 0, "train"), ("python 1", 0, "inference"),
        ("python 1", 1, "step"), ("python 1", 1, "step"),
        ("python 1", 2, "fetch"), ("python 1", 2, "forward"), ("python 1", 2, "mark"),
        ("loader 1/2", 0, "fetch"),
    ]  # fmt: skip
    last = lane.frame[lane.frame["name"] == "inference"].iloc[0]
    assert not last["ended"] and last["to_s"] == pytest.approx(1)
    assert lane.note == ""


def test_too_many_phases_lose_their_innermost_levels_and_that_is_said(tmp_path):
    marks = [mark(0, 900, "train")]
    for n in range(40):
        marks += [mark(20 * n, 20 * n + 19, "step", step=n), mark(20 * n, 20 * n + 5, "fetch")]
    with made(tmp_path, phases=marks) as trace:
        some = phases(trace, TENTHS, most=50)
        few = phases(trace, TENTHS, most=20)
    assert set(some.frame["name"]) == {"train", "step"}
    assert "innermost level is left out (40 phases)" in some.note
    assert set(few.frame["name"]) == {"train"} and "2 levels are left out (80 phases)" in few.note


def test_neighbours_are_joined_if_there_are_too_many_outermost_phases(tmp_path):
    marks = [mark(4 * n, 4 * n + 3, "step", step=n) for n in range(100)]
    marks += [mark(700 + 4 * n, 703 + 4 * n, "eval") for n in range(10)]
    with made(tmp_path, phases=marks) as trace:
        lane = phases(trace, TENTHS, most=5)
    assert lane.frame[["name", "spans"]].to_numpy().tolist() == [["step", 100], ["eval", 10]]
    assert "110 phases are drawn as 2" in lane.note


def test_phases_that_cannot_be_joined_are_left_out_the_shortest_first_and_counted(tmp_path):
    marks = [mark(4 * n, 4 * n + 2 + n % 2, ("load", "compute")[n % 2]) for n in range(100)]
    with made(tmp_path, phases=marks) as trace:
        lane = phases(trace, TENTHS, most=23)
    assert len(lane.frame) == 23 and set(lane.frame["name"]) == {"compute"}
    assert lane.note == "77 phases are left out: those of the shortest spans."


def test_only_threads_with_most_time_in_phases_are_drawn(tmp_path):
    marks = [mark(0, 10 + n, "fetch", tid=n) for n in range(1, 31)]
    with made(tmp_path, phases=marks) as trace:
        lane = phases(trace, TENTHS)
    assert lane.frame["thread"].nunique() == 10
    assert "20 more threads" in lane.note
