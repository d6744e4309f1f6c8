"""Waits whose ends are lost, such as the thaw of a frozen cgroup: nothing about them is exact."""

import pytest

from tests.support.traces import make_trace
from tracer.analysis.views.waiting.critical_path import critical_path

MS = 10**6
JOB = 7
AT = {"pid": JOB, "tid": JOB}
TARGETS = [{"name": "job", "role": "target", "kind": "pid", "pid": JOB}]
PROCESSES = [{**AT, "ppid": 1, "role": "target", "target": "job", "comm": "python"}]
STEPS = [
    {**AT, "name": "train", "start": 0, "end": 1000 * MS},
    *(
        {**AT, "name": "step", "start": at * MS, "end": (at + 200) * MS, "step": number}
        for number, at in enumerate((100, 300))
    ),
]
CLOCK = {"name": "mono", "start_ns": 0, "end_ns": 1000 * MS}


@pytest.fixture
def told(tmp_path):
    """Kinds, lengths (ms) and certainties of waits, and of the path of two steps of 200 ms.

    The thread goes to sleep after 110 ms, in a call. `stream`: that of the events that are lost
    from 190 ms to 260 ms, as the cgroup is thawed; None: none are.
    """

    def make(call, state, stream, length=None):
        events = {
            "processes": PROCESSES,
            "phases": STEPS,
            "syscalls": [{**AT, "ts": 110 * MS, "name": call, "dur_ns": None}],
            "off_cpu": [{**AT, "ts": 110 * MS, "dur_ns": length, "state": state}],
            "loss": [],
        }
        if stream is not None:
            events["loss"] = [
                {"stream": stream, "from": 190 * MS, "to": 260 * MS, "cause": "overrun"}
            ]
        with make_trace(tmp_path / "t", events, targets=TARGETS, clock=CLOCK) as trace:
            critical_path(trace)
            waits = trace.rows("SELECT kind, dur_ns, certainty FROM waits ORDER BY ts")
            path = trace.rows(
                f"SELECT kind, dur_ns // {MS}, certainty FROM critical_path ORDER BY ts"
            )
        return waits, path

    return make


@pytest.mark.parametrize(
    ("call", "state", "kind"),
    [("clock_nanosleep", "S", "timer"), ("fsync", "D", "sync"), ("futex", "S", "lock"),
     ("wait4", "S", "child")],
)  # fmt: skip
def test_a_wait_whose_end_is_lost_is_not_exact(told, call, state, kind):
    """The kernel may have woken the thread 20 ms after it had gone to sleep."""
    waits, path = told(call, state, "ftrace-target-cpu0")
    assert waits == [(kind, None, "inferred")]
    assert path[:2] == [("run", 10, "exact"), (kind, 190, "inferred")]


@pytest.mark.parametrize("stream", [None, "ftrace-machine-cpu0", "files"])
def test_a_wait_that_the_end_of_the_recording_cuts_is_exact(told, stream):
    """No event of a thread that goes to sleep is lost."""
    waits, path = told("clock_nanosleep", "S", stream)
    assert waits == [("timer", None, "exact")]
    assert path[:2] == [("run", 10, "exact"), ("timer", 190, "exact")]


@pytest.mark.parametrize(
    ("stream", "certainty"),
    [("ftrace-target-cpu0", "inferred"), ("programs-target-cpu0", "exact"), (None, "exact")],
)
def test_a_thread_that_runs_while_its_sleeps_may_be_lost_may_have_slept(told, stream, certainty):
    """It slept for 5 ms. Programs of our own record calls, and no sleeps."""
    _, path = told("clock_nanosleep", "S", stream, 5 * MS)
    assert path[2:] == [("run", 185, certainty), ("run", 200, "exact")]
