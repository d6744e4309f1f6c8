"""Loads that plant delays of known causes in their steps, and what the critical path says of them.

Each load knows when it waited, and for what. It plants several delays, one in each step, and none
in a last one, the control.
"""

from __future__ import annotations

import json
import textwrap

from tests.conftest import ROOT
from tests.support.loads import Recorded

CHARGED = 0.95
"""The least share of a planted delay that is charged to its cause."""
MISTAKEN = 0.02
"""The largest share of the control's time that is charged to the cause."""
MS = 10**6

PREAMBLE = f"""
import sys
sys.path.insert(0, {str(ROOT)!r})
import ctypes, json, mmap, os, subprocess, threading, time
from tracer import phases

planted = []

def spin(ms):
    end = time.process_time() + ms / 1000
    while time.process_time() < end:
        for _ in range(1000): pass  # each look at this clock is a recorded call

def step(number, wait, prepare):
    prepare()
    with phases.phase("step", epoch=0, step=number):
        spin(3)
        begin = time.monotonic_ns()
        wait()
        planted.append((begin, time.monotonic_ns()))
        spin(3)

def steps(waits, prepare=lambda: None):
    with phases.phase("train"):
        for number, wait in enumerate(waits):
            step(number, wait, prepare)

nothing = lambda: spin(60)
"""
"""`steps` runs steps with given waits, and keeps how long each was."""

END = "\nprint(json.dumps(planted))\n"


def load(source: str) -> str:
    """Returns the program of a load: the preamble, `source`, and the report of what it planted."""
    return PREAMBLE + textwrap.dedent(source) + END


def windows(recorded: Recorded, name: str) -> list[tuple[int, int]]:
    """Returns the begin and end (ns) of what each step planted, the control last."""
    told = json.loads(recorded.loads[name].out)
    return told["planted"] if isinstance(told, dict) else told


def during(recorded: Recorded, name: str, window: tuple[int, int], which: str) -> int:
    """Returns the time (ns) of the critical path within a window that segments of `which` take."""
    begin, end = window
    return int(
        recorded.one(
            "SELECT coalesce(sum(least(ts + dur_ns, ?) - greatest(ts, ?)), 0) FROM critical_path"
            f" WHERE step_pid = ? AND ts < ? AND ts + dur_ns > ? AND ({which})",
            end, begin, recorded.pid(name), end, begin,
        )
    )  # fmt: skip


def assert_charged(recorded: Recorded, name: str, which: str) -> None:
    """Asserts that `which` has the planted delays, except waits for a CPU, which others cause."""
    *planted, control = windows(recorded, name)
    assert len(planted) > 2
    for window in planted:
        length = window[1] - window[0]
        assert during(recorded, name, window, "true") == length
        others = during(recorded, name, window, f"kind = 'cpu' AND NOT ({which})")
        assert during(recorded, name, window, which) >= CHARGED * (length - others), window
    length = control[1] - control[0]
    assert during(recorded, name, control, which) <= MISTAKEN * length
