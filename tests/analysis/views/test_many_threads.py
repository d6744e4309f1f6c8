"""Waits keep short numbers for threads and calls; a trace may have more than two bytes hold."""

import pytest

from tests.support.traces import make_trace
from tracer.analysis.views.waiting.critical_path import critical_path
from tracer.analysis.views.waiting.waits import waits

THREADS = (1 << 15) + 10
LAST = THREADS


@pytest.fixture
def trace(tmp_path):
    threads = range(1, THREADS + 1)
    lives = [
        {"pid": tid, "tid": tid, "target": "job", "role": "target", "comm": f"thread {tid}"}
        for tid in threads
    ]
    names = {LAST: "futex", LAST - 2: "nanosleep"}
    calls = [
        {"ts": 10, "tid": tid, "pid": tid, "name": names.get(tid, f"call_{tid}"), "dur_ns": 900}
        for tid in threads
    ]
    sleeps = [
        {"ts": 100, "dur_ns": 50, "pid": tid, "tid": tid, "state": "S", "wake_ns": 150,
         "waker_tid": tid - 1, "interrupt": tid == LAST - 2, "run_delay_ns": 0}
        for tid in (LAST - 2, LAST - 1, LAST)
    ]  # fmt: skip
    phases = [
        {"name": name, "pid": LAST, "tid": LAST, "epoch": 0, "step": 0, "start": 50, "end": 300}
        for name in ("train", "step")
    ]
    tables = {"off_cpu": sleeps, "syscalls": calls, "processes": lives, "phases": phases}
    with make_trace(tmp_path / "x.trace", tables) as made:
        yield made


def test_waits_name_the_last_threads_and_calls(trace):
    found = trace.rows(f"SELECT tid, kind, call, by_tid, by_comm FROM {waits(trace)} ORDER BY tid")
    assert found == [
        (LAST - 2, "timer", "nanosleep", None, None),
        (LAST - 1, "other", f"call_{LAST - 1}", LAST - 2, f"thread {LAST - 2}"),
        (LAST, "lock", "futex", LAST - 1, f"thread {LAST - 1}"),
    ]


def test_a_path_names_the_last_threads_and_calls(trace):
    asked = f"SELECT ts, dur_ns, kind, call, comm, by_comm FROM {critical_path(trace)} ORDER BY ts"
    assert trace.rows(asked) == [
        (50, 50, "run", None, f"thread {LAST}", None),
        (100, 50, "timer", "nanosleep", f"thread {LAST - 2}", None),
        (150, 150, "run", None, f"thread {LAST}", None),
    ]
