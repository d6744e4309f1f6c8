"""Recordings of stacks where the machine lacks what one kind of them needs."""

import json

import pytest

from tests.support.hiding import NO_NAMES, NO_PY_SPY
from tracer.probes.kernel import find_tracefs
from tracer.store.trace import Trace

SLEEP = ("record", "--stacks", "-e", "sched", "-o", "x.trace", "--", "sleep", "0.1")
MEND = "pip install 'traintrace[stacks]'"


def recorded_kinds(folder):
    """The manifest's entry on stacks; the number of stacks of each kind."""
    with Trace(folder / "x.trace") as trace:
        [(kernel,)] = trace.rows("SELECT count(kernel_stack) FROM off_cpu")
        return trace.manifest["stacks"], kernel, "python_stacks" in trace.tables


def test_without_py_spy_kernel_stacks_are_recorded_and_the_mend_of_the_others_is_told(
    hidden, tmp_path
):
    ran = hidden([NO_PY_SPY], *SLEEP)
    assert ran.status == 0, ran.err
    [said] = [line for line in ran.err.splitlines() if "Python stacks" in line]
    assert said.startswith("tracer: no Python stacks are recorded: there is no py-spy command")
    assert said.endswith(f"; {MEND}")
    facts, kernel, looks = recorded_kinds(tmp_path)
    assert facts["kinds"] == ["kernel"]
    assert list(facts["missing"]) == ["python"]
    assert MEND in facts["missing"]["python"]
    assert kernel > 0
    assert not looks


def test_without_names_of_kernel_functions_only_python_stacks_are_recorded(hidden, tmp_path):
    ran = hidden([NO_NAMES], *SLEEP)
    assert ran.status == 0, ran.err
    [said] = [line for line in ran.err.splitlines() if "kernel stacks" in line]
    assert said.startswith("tracer: no kernel stacks are recorded: the kernel hides")
    facts, kernel, looks = recorded_kinds(tmp_path)
    assert facts["kinds"] == ["python"]
    assert list(facts["missing"]) == ["kernel"]
    assert kernel == 0
    assert looks
    told = hidden([], "info", "x.trace")
    assert "stacks      python" in told.out
    assert "no stacks   kernel: the kernel hides" in told.out


def test_without_any_stacks_the_recording_is_refused(hidden, tmp_path):
    ran = hidden([NO_PY_SPY, NO_NAMES], *SLEEP)
    assert ran.status == 5
    assert ran.err.count("\n") == 1
    assert "there is no py-spy command" in ran.err
    assert "the kernel hides" in ran.err
    assert MEND in ran.err
    assert not (tmp_path / "x.trace").exists()


@pytest.mark.parametrize("backend", ["ebpf", "perf"])
def test_a_kernel_that_names_no_states_of_threads_has_no_kernel_stacks(hidden, tmp_path, backend):
    there = find_tracefs() / "events/sched/sched_switch/format"
    changes = [
        f"sed '/^print fmt/d' {there} > EMPTY/format",
        f"mount --bind EMPTY/format {there}",
    ]
    ran = hidden(changes, *SLEEP[:2], "--backend", backend, *SLEEP[2:])
    assert ran.status == 0, ran.err
    assert "no kernel stacks are recorded" in ran.err
    facts, kernel, looks = recorded_kinds(tmp_path)
    assert (facts["kinds"], kernel, looks) == (["python"], 0, True)
    assert "--backend" in facts["missing"]["kernel"]
    told = json.loads(hidden([], "info", "x.trace", "--json").out)
    assert told["missing"]["sched"] == ["ftrace:kernel_stack"]
