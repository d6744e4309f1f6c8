"""Explanations of two or three steps, and of steps that start at once."""

from __future__ import annotations

import pytest

from tests.support.traces import make_trace
from tests.support.waiting_steps import JOB, MS, PROCESSES, TARGETS, beside, steps_of
from tracer.analysis.explain.explanation import explain
from tracer.analysis.explain.over_time import over_time
from tracer.analysis.report.waits import path_times

pytestmark = pytest.mark.slow


@pytest.mark.parametrize(
    ("waits", "typical"),
    [
        ([2, 40, 2], [2, 2]),
        ([2, 10, 40], [2, 10]),
        ([40, 2, 40], [2]),
        ([40, 2], [2]),
        ([2, 2, 2], [2, 2, 2]),
        ([2, 2], [2, 2]),
        ([2], [2]),
    ],
)
@pytest.mark.parametrize("by", ["kind", "thread"])
def test_the_slowest_of_few_steps_is_not_compared_with_itself(tmp_path, waits, typical, by):
    """Steps take 10 ms and their wait."""
    with make_trace(tmp_path / "t", steps_of(waits), targets=TARGETS) as made:
        (step,) = explain(made, by, slowest=1).slowest
    mean = (10 + sum(typical) / len(typical)) * MS
    assert (step.typical_steps, step.typical_ns) == (len(typical), pytest.approx(mean))
    more = sum(part.more_ns for part in step.parts)
    assert more == pytest.approx((10 + max(waits)) * MS - mean)


def test_few_steps_of_a_process_are_compared_with_each_other(tmp_path):
    two = beside(steps_of([2, 2, 2, 2, 2]), steps_of([4, 60]), "peer")
    targets = [*TARGETS, TARGETS[0] | {"name": "peer", "pid": JOB + 100}]
    with make_trace(tmp_path / "t", two, targets=targets) as made:
        (step,) = explain(made, "thread", slowest=1).slowest
    assert (step.typical_steps, step.typical_ns) == (1, 14 * MS)


def test_the_terminal_tells_the_whole_difference_of_one_of_three_steps(tmp_path, tracer):
    make_trace(tmp_path / "t", steps_of([2, 40, 2]), targets=TARGETS).close()
    said = " ".join(tracer("explain", "t", "--slowest", "1").out.split())
    assert "It has 38 ms more than a typical step" in said


def test_steps_of_a_thread_that_start_at_once_have_their_own_parts(tmp_path):
    """A step of 60 ms, and one of 30 ms that starts with it and computes."""
    steps = [(0, 100, 160), (1, 100, 130), (2, 200, 260)]
    mark = {"pid": JOB, "tid": JOB, "epoch": 0}
    tables = {
        "processes": PROCESSES,
        "off_cpu": [],
        "phases": [
            {"name": "train", "start": 0, "end": 1000 * MS, **mark},
            *(
                {"name": "step", "start": start * MS, "end": end * MS, "step": number, **mark}
                for number, start, end in steps
            ),
        ],
    }
    with make_trace(tmp_path / "t", tables, targets=TARGETS) as made:
        found = explain(made, slowest=3)
        assert found.steps == path_times(made)[1] == 3
        for step in found.slowest:
            assert sum(part.ns for part in step.parts) == step.total_ns
            assert sum(one["dur_ns"] for one in step.segments) == step.total_ns
            for part in step.parts:
                assert made.rows(part.query) == [(part.ns,)]
        bars = over_time(made).drop(columns=["first", "called"]).sum(axis="columns")
        assert bars.tolist() == pytest.approx([30, 60, 60])
        assert [(one.step, one.total_ns) for one in found.slowest] == [
            (0, 60 * MS), (2, 60 * MS), (1, 30 * MS),
        ]  # fmt: skip


@pytest.mark.parametrize(("taken", "told"), [(1.0, True), (0.1, False)])
def test_time_that_the_host_took_from_the_cpus_is_told_if_it_matters(tmp_path, tracer, taken, told):
    tables = steps_of([2, 40, 2])
    tables["samples"] = [
        {"ts": ts, "name": name, "value": number * value}
        for number, ts in enumerate((200 * MS, 900 * MS))
        for name, value in (("cpu_time", 9.0), ("steal_time", taken))
    ]
    make_trace(tmp_path / "t", tables, targets=TARGETS).close()
    said = " ".join(tracer("explain", "t").out.split())
    assert ("for 10 % of the time in which the CPUs of this virtual machine" in said) == told
    assert ("the host ran something else" in said) == told
