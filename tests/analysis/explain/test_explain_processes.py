"""Explanations of steps of several processes."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest

from tests.support.traces import make_trace
from tests.support.waiting_steps import JOB, MS, TARGETS, WORKER, beside, steps_of
from tracer.analysis.explain.explanation import explain
from tracer.analysis.explain.words import process_called, step_called, what

pytestmark = pytest.mark.slow

PEER, PEERS_WORKER = JOB + 100, WORKER + 100
WAITS, PEERS_WAITS = [2, 2, 40, 2], [2, 2, 7, 60]
TWO = [*TARGETS, TARGETS[0] | {"name": "peer", "pid": PEER}]


def make_two(folder, target="peer"):
    """Makes a trace of a job and its peer, which has this target, each with a worker."""
    tables = beside(steps_of(WAITS), steps_of(PEERS_WAITS), target)
    return make_trace(folder, tables, targets=TWO if target == "peer" else TARGETS)


@pytest.fixture
def trace(tmp_path):
    with make_two(tmp_path / "t") as made:
        yield made


def test_a_step_has_the_parts_of_its_process_alone(trace):
    found = explain(trace, "thread", slowest=8)
    assert found.targets == {JOB: "job", PEER: "peer"}
    for step in found.slowest:
        assert {part.group["step_pid"] for part in step.parts} == {step.pid}
        assert sum(part.ns for part in step.parts) == step.total_ns
        assert sum(part.typical_ns for part in step.parts) == pytest.approx(step.typical_ns)


def test_a_step_is_compared_with_the_typical_steps_of_its_process(trace):
    """The peer's are the steps of 12, 12 and 17 ms, the job's the three of 12 ms."""
    found = explain(trace, "thread", slowest=2)
    peer, job = found.slowest
    assert (peer.pid, peer.typical_steps, peer.typical_ns) == (PEER, 3, pytest.approx(41 / 3 * MS))
    assert (job.pid, job.typical_steps, job.typical_ns) == (JOB, 3, 12 * MS)
    for step in (peer, job):
        (own,) = (part for part in step.parts if part.group["thread"] is None)
        assert (own.ns, own.more_ns) == (10 * MS, 0)


def test_other_groups_compare_with_the_typical_steps_of_all(trace):
    found = explain(trace, "kind", slowest=2)
    assert {(step.typical_steps, step.typical_ns) for step in found.slowest} == {
        (found.typical_steps, found.typical_ns)
    }


def test_each_query_gives_its_number(trace):
    found = explain(trace, "thread", slowest=1)
    for part in (*found.parts, *found.slowest[0].parts):
        assert trace.rows(part.query) == [(part.ns,)]


@pytest.mark.parametrize(("target", "of"), [("peer", (" of job", " of peer")), ("job", ("", ""))])
def test_the_terminal_tells_which_thread_of_which_process(tmp_path, tracer, target, of):
    """Targets are named if there are several."""
    make_two(tmp_path / "t", target).close()
    said = " ".join(tracer("explain", "t", "--by", "thread", "--slowest", "1").out.split())
    assert f"20 % process {JOB}{of[0]}, the step's thread {JOB} runs" in said
    assert f"20 % process {PEER}{of[1]}, the step's thread {PEER} runs" in said
    assert f"Step 0:3 of process {PEER}{of[1]} took 70 ms" in said
    assert "of 2 processes together; a step is compared with typical ones of its process" in said
    tracer("explain", "t", "--by", "thread", "--html", "why.html")
    page = (tmp_path / "why.html").read_text()
    assert f"process {PEER}{of[1]}, the step" in page


def test_steps_of_one_process_do_not_name_it(tmp_path, tracer):
    make_trace(tmp_path / "t", steps_of(WAITS), targets=TARGETS).close()
    said = " ".join(tracer("explain", "t", "--by", "thread").out.split())
    assert f" the step's thread {JOB} " in said
    assert not re.search(r"process \d|\bof its process\b|processes together", said)


def test_threads_of_one_name_that_are_waited_for_are_told_apart_by_number():
    wait = {"kind": "cpu", "by_comm": "python"}
    assert what({**wait, "by_tid": 12}) == "waits for a CPU (python 12 has it)"
    assert what({**wait, "by_tid": None}) == what(wait) == "waits for a CPU (python has it)"
    assert what({"kind": "ipc", "by_comm": None, "by_tid": 13}).endswith("(for thread 13)")


def test_a_step_of_another_thread_than_the_first_names_both(trace):
    found = explain(trace, "thread", slowest=1)
    step = replace(found.slowest[0], tid=PEERS_WORKER)
    assert (
        step_called(step, found) == f"Step 0:3 of thread {PEERS_WORKER} in process {PEER} of peer"
    )


def test_a_target_is_named_if_there_are_several():
    assert process_called(7, {7: "job", 107: "job"}) == "process 7"
    assert process_called(7, {7: "job", 107: None}) == "process 7 of job"
    assert process_called(None, {7: "job", 107: None}) == "an unknown process"
