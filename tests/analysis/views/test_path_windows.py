"""Windows of steps: whatever their size, the paths through the waits are the same."""

from __future__ import annotations

import random

import numpy as np
import pytest

from tests.support.traces import make_trace
from tracer.analysis.views.cuts import Cuts
from tracer.analysis.views.waiting.chain_walk import NO_WAIT, SpansOfLanes, pieces_of
from tracer.analysis.views.waiting.path_windows import windows
from tracer.analysis.views.waiting.waits import waits

TARGETS = [{"name": "job", "role": "target", "kind": "pid", "pid": 1}]
THREADS, END = 4, 400
NO_MARKS = Cuts(np.empty(0, np.int64), np.empty(0, np.int64))


def a_trace(draw: random.Random):
    """Threads that wait for one another, some of them for long or without an end."""
    rows = []
    for tid in range(1, THREADS + 1):
        now = draw.randint(0, 20)
        while now < END:
            length = draw.choice((1, 5, 9, 150))
            last = now + length >= END and draw.random() < 0.5
            rows.append(
                {"ts": now, "dur_ns": None if last else length, "pid": 1, "tid": tid, "state": "S",
                 "wake_ns": now + length, "waker_tid": draw.randint(1, THREADS),
                 "interrupt": draw.random() < 0.2, "run_delay_ns": 0}
            )  # fmt: skip
            now += length + draw.randint(1, 20)
    rows.sort(key=lambda row: row["ts"] + (row["dur_ns"] or END))
    calls = [{"ts": 0, "tid": tid, "name": "read", "dur_ns": END} for tid in range(1, THREADS + 1)]
    lives = [
        {"pid": 1, "tid": tid, "target": "job", "role": "target"} for tid in range(1, THREADS + 1)
    ]
    return {"off_cpu": rows, "syscalls": calls, "processes": lives}


def paths(trace, spans, most):
    """All pieces: span, begin, end, lane, and the number of the wait."""
    found = []
    cuts = (np.zeros(THREADS + 1, np.int64), np.empty(0, np.int64))
    for window in windows(trace, spans, ("ipc", "other"), NO_MARKS, most):
        for pieces in pieces_of(window.waits, window.spans, cuts, 7):
            for span, begin, end, lane, wait in zip(
                pieces.span, pieces.begin, pieces.end, pieces.lane, pieces.wait, strict=True
            ):
                number = None if wait == NO_WAIT else window.rows["row"][int(wait)].as_py()
                found.append((int(window.first + span), int(begin), int(end), int(lane), number))
    return found


@pytest.mark.parametrize("seed", range(5))
def test_windows_of_any_size_give_the_same_paths(tmp_path, seed):
    draw = random.Random(seed)
    begins = sorted(draw.randint(0, END) for _ in range(30))
    spans = SpansOfLanes(
        np.array([draw.randrange(THREADS) for _ in begins]),
        np.array(begins),
        np.array([begin + draw.choice((3, 30, 200)) for begin in begins]),
    )
    with make_trace(tmp_path / "t", a_trace(draw), targets=TARGETS) as trace:
        waits(trace)
        whole = paths(trace, spans, 1 << 20)
        assert {number for *_, number in whole} > {None}
        for most in (1, 2, 5, 17):
            assert paths(trace, spans, most) == whole


def test_waits_do_not_depend_on_the_order_of_intervals_in_the_table(tmp_path):
    """The recorder writes them in the order of their ends; another program may not."""
    tables = a_trace(random.Random(23))
    found = []
    for name in ("ends", "reversed"):
        with make_trace(tmp_path / name, tables, targets=TARGETS) as trace:
            found.append(trace.rows(f"FROM {waits(trace)} ORDER BY ALL"))
        tables["off_cpu"].reverse()
    assert found[0] == found[1]
    assert len(found[0]) == len(tables["off_cpu"])


def test_the_longest_of_several_calls_entered_at_once_tells_if_a_poll_reached_its_limit(tmp_path):
    sleep = {"ts": 10, "dur_ns": 5, "pid": 1, "tid": 1, "state": "S", "wake_ns": 15,
             "waker_tid": 0, "interrupt": True, "run_delay_ns": 0}  # fmt: skip
    lives = [{"pid": 1, "tid": 1, "target": "job", "role": "target"}]
    for results, kind in (((0, 1), "timer"), ((1, 0), "ipc")):
        calls = [
            {"ts": 5, "tid": 1, "name": "poll", "dur_ns": length, "ret": result}
            for length, result in zip((90, 20), results, strict=True)
        ]
        tables = {"off_cpu": [sleep], "syscalls": calls, "processes": lives}
        with make_trace(tmp_path / kind, tables, targets=TARGETS) as trace:
            assert trace.rows(f"SELECT kind FROM {waits(trace)}") == [(kind,)]
