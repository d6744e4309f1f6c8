"""Marks are read piece by piece: nothing depends on where a piece ends."""

from __future__ import annotations

import pytest

from tests.support.phases import marks_file, read_phases
from tracer.phases.format import ABSENT, AUTOMATIC, BEGIN, END, MEASURED
from tracer.store import phases
from tracer.store.numbers import Epochs
from tracer.store.phases import write_phases
from tracer.store.span import Span
from tracer.store.training import Loop

F, C, B, O = b"fetch", b"forward", b"backward", b"optimizer"  # noqa: E741
A = AUTOMATIC


def mark(ts, kind, name, tid=5, epoch=ABSENT, step=ABSENT, pid=5):
    return (ts, kind, pid, tid, name, epoch, step)


def fact(start, end, name, **more):
    return mark(start, BEGIN | A, name, **more), mark(end, END | A, name, tid=more.get("tid", 5))


def a_step(at, batch=0, iteration=1 << 20):
    fetch = fact(at, at + 2, F, epoch=iteration, step=batch)
    return [*fetch, *fact(at + 3, at + 4, C), *fact(at + 5, at + 6, B), *fact(at + 7, at + 8, O)]


def numbers(rows, name):
    return [(row["start"], row["epoch"], row["step"]) for row in rows if row["name"] == name]


def test_a_step_is_handed_on_when_its_cycle_is_over():
    emitted = []
    loop = Loop(True, "automatic", Epochs(), None, emitted.append)
    for step in range(1000):
        at = 10 * step
        for name in (F, C, B, O):
            loop.add([Span(at, 5, 5, name.decode(), epoch=1, end=at + 1)])
            at += 2
        steps = [span for span in emitted if span.name == "step"]
        assert len(steps) == step


def test_marks_of_one_time_lie_in_the_order_of_their_files_numbers(tmp_path):
    for number in range(12):
        marks_file(tmp_path, number=number)
    marks_file(tmp_path, mark(7, BEGIN, b"a"), number=2)
    marks_file(tmp_path, mark(7, END, b"a"), number=10)
    (row,) = read_phases(tmp_path)
    assert (row["start"], row["end"]) == (7, 7)


def test_a_thread_s_mark_may_lie_in_the_file_before_a_younger_one_of_another_thread(tmp_path):
    """A helper's forward lies within its leader's, though the leader's end is a file earlier."""
    leading = [*a_step(0), mark(20, BEGIN | A, C), mark(40, END | A, C), *fact(41, 42, B)]
    marks_file(tmp_path, *leading, number=0)
    marks_file(tmp_path, *fact(30, 35, C, tid=6), *fact(50, 51, O), number=1)
    assert {row["tid"] for row in read_phases(tmp_path)} == {5}


@pytest.mark.parametrize("ends", ["helper first", "leader first", "never"])
def test_a_helper_s_forward_that_ends_with_its_leader_s_is_a_part_of_that(tmp_path, ends):
    begins = [*a_step(0), mark(20, BEGIN | A, C), mark(30, BEGIN | A, C, tid=6)]
    last = [mark(40, END | A, C, tid=6), mark(40, END | A, C)]
    if ends == "leader first":
        last.reverse()
    marks_file(tmp_path, *begins, *(last if ends != "never" else []))
    assert {row["tid"] for row in read_phases(tmp_path)} == {5}


def counted(rows):
    names = [(row["tid"], row["name"]) for row in rows]
    return {name: names.count(name) for name in names}


TWO_STEPS = {(5, "train"): 1, (5, "epoch"): 1, (5, "step"): 2, (5, "forward"): 2, (5, "fetch"): 2,
             (5, "backward"): 2, (5, "optimizer"): 2}  # fmt: skip


@pytest.mark.parametrize(
    "help",
    [[*fact(56, 58, O, tid=6)], [*fact(55, 58, C, tid=6), *fact(59, 62, B, tid=6)]],
    ids=["hooks that make steps", "reentrant checkpoints"],
)
def test_a_thread_of_pytorch_s_that_learns_within_a_backward_is_no_second_training(tmp_path, help):
    """On GPUs, PyTorch's own threads run backward: they call hooks and compute anew."""
    begin, end = fact(54, 70, B)
    fetch = fact(50, 52, F, epoch=1 << 20, step=1)
    second = [*fetch, *fact(53, 53, C), begin, *help, end, *fact(71, 72, O)]
    marks_file(tmp_path, *a_step(0), *second)
    rows = read_phases(tmp_path)
    assert counted(rows) == TWO_STEPS
    assert numbers(rows, "step") == [(0, 0, 0), (50, 0, 1)]


def test_a_file_that_a_thread_saves_during_a_backward_is_a_checkpoint(tmp_path):
    begin, end = fact(54, 70, B)
    saved = fact(56, 60, b"checkpoint", tid=6)
    fetch = fact(50, 52, F, epoch=1 << 20, step=1)
    second = [*fetch, *fact(53, 53, C), begin, *saved, *fact(62, 64, C, tid=6), end]
    marks_file(tmp_path, *a_step(0), *second, *fact(71, 72, O))
    rows = read_phases(tmp_path)
    assert counted(rows) == {**TWO_STEPS, (6, "checkpoint"): 1}
    assert numbers(rows, "checkpoint") == [(56, None, None)]


def test_an_optimizer_s_step_on_another_thread_is_no_second_training(tmp_path):
    """It steps while nobody computes; it is a phase without numbers."""
    marks_file(
        tmp_path, *a_step(0), *fact(15, 17, O, tid=6), *a_step(20, batch=1), *fact(40, 41, O, tid=6)
    )
    rows = read_phases(tmp_path)
    assert counted(rows) == {**TWO_STEPS, (6, "optimizer"): 2}
    own = [row for row in rows if row["tid"] == 6]
    assert [(row["epoch"], row["step"], row["source"]) for row in own] == [
        (None, None, "automatic"),
        (None, None, "automatic"),
    ]


def test_threads_that_only_make_steps_lead_if_there_are_no_others(tmp_path):
    marks_file(tmp_path, *fact(1, 2, O), *fact(3, 4, O, tid=6), *fact(5, 6, O))
    assert counted(read_phases(tmp_path)) == {
        (5, "train"): 1,
        (5, "step"): 1,
        (5, "optimizer"): 2,
        (6, "train"): 1,
        (6, "step"): 1,
        (6, "optimizer"): 1,
    }


def test_two_threads_that_train_at_once_both_lead(tmp_path):
    one, other = ([*fact(at, at + 4, B, tid=tid)] for at, tid in ((10, 5), (12, 6)))
    begins, ends = zip(one, other, strict=True)
    marks_file(tmp_path, *begins, *ends, *fact(20, 22, B, tid=6))
    assert {row["tid"] for row in read_phases(tmp_path) if row["name"] == "train"} == {5, 6}


def test_a_phase_that_ends_when_a_step_begins_was_before_it(tmp_path):
    marks_file(tmp_path, *a_step(0), *fact(10, 10, b"checkpoint"), *a_step(10, batch=1))
    rows = read_phases(tmp_path)
    assert numbers(rows, "step") == [(0, 0, 0), (10, 0, 1)]
    assert numbers(rows, "checkpoint") == [(10, 0, None)]


def test_a_fetch_before_the_end_of_the_data_is_one_whatever_the_time(tmp_path):
    """The fetch in which the data ends begins in the instant in which the one before ended."""
    last = [mark(20, BEGIN | A, F, epoch=1 << 20, step=2), *fact(20, 20, b"exhausted")]
    once = [*fact(18, 20, F, epoch=1 << 20, step=1), *last, mark(22, END | A, F)]
    marks_file(tmp_path, *a_step(0), *once)
    assert numbers(read_phases(tmp_path), "fetch") == [(0, 0, 0), (18, 0, None)]


def test_a_process_that_begins_anew_counts_and_marks_anew(tmp_path):
    """exec keeps the pid; a pid can be another process's later."""
    own = mark(1, BEGIN, b"step", epoch=7, step=70), mark(2, END, b"step")
    marks_file(tmp_path, *own, *a_step(10), process="5-1")
    marks_file(tmp_path, *a_step(1010), *a_step(1020, batch=1), process="5-1000")
    rows = read_phases(tmp_path)
    assert numbers(rows, "step") == [(1, 7, 70), (1010, 0, 0), (1020, 0, 1)]
    assert [row["start"] for row in rows if row["name"] == "train"] == [1010]


def test_gpu_time_is_added_to_the_phase_that_was_open_when_it_was_measured(tmp_path):
    marks_file(
        tmp_path,
        *a_step(0), *fact(10, 13, F, epoch=1 << 20, step=1), *fact(20, 30, C),
        mark(31, MEASURED | A, C, epoch=30, step=17), *fact(32, 40, B), *fact(41, 42, O),
    )  # fmt: skip
    found = [row["gpu_ns"] for row in read_phases(tmp_path) if row["name"] == "forward"]
    assert found == [None, 17]


def test_a_process_marks_as_itself_alone(tmp_path):
    marks_file(tmp_path, *a_step(0), *(mark(ts, BEGIN, b"step", pid=6) for ts in range(23)))
    (tmp_path / "noise.marks").write_bytes(bytes(64))
    (tmp_path / "5-1-1.marks").symlink_to("/etc/passwd")
    (building := tmp_path / "building").mkdir()
    _, lost = write_phases(tmp_path, 0, None, building)
    assert lost == {
        "marks left out: they name another process than the file does": 23,
        "files of marks left out: not named after a process": 1,
        "files of marks left out: not readable": 1,
    }
    assert {row["pid"] for row in read_phases(tmp_path)} == {5}


@pytest.fixture(params=[1 << 16, 2], ids=["few", "many"])
def most_held(request, monkeypatch):
    """The number of phases from which on they are written to a file before they are sorted."""
    monkeypatch.setattr(phases, "_ROWS", request.param)


def test_phases_that_begin_together_lie_in_each_other(tmp_path, most_held):
    """The one without an end comes first, then the longest; of two alike, the outer one."""
    begun = {
        6: (5, b"x"),
        1: (10, b"train"),
        2: (10, b"x"),
        3: (10, b"step"),
        4: (10, b"epoch"),
        5: (10, b"train"),
    }
    marks = [mark(ts, BEGIN, name, tid=tid) for tid, (ts, name) in begun.items()]
    ends = {6: 6, 5: 20, 4: 50, 3: 50, 2: 50}
    marks += [mark(ts, END, begun[tid][1], tid=tid) for tid, ts in ends.items()]
    marks_file(tmp_path, *sorted(marks))
    found = [(row["tid"], row["end"]) for row in read_phases(tmp_path)]
    assert found == [(6, 6), (1, None), (4, 50), (3, 50), (2, 50), (5, 20)]


def test_a_folder_may_have_any_name(tmp_path, most_held):
    building = tmp_path / "start=3" / "[a]*?'"
    building.mkdir(parents=True)
    marks_file(tmp_path, *a_step(0))
    rows, _ = write_phases(tmp_path, 0, None, building)
    assert rows == 7
