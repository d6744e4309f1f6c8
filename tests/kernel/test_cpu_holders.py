"""Waits for a CPU that programs have which are not recorded: who had it, and how certain that is.

The truth is the kernel's own account of each program's time on a CPU (/proc/PID/schedstat).
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import textwrap

import pytest

from tests.support.loads import program
from tests.support.planted import MS
from tracer.analysis.views.waiting.waits import waits

pytestmark = pytest.mark.quiet

MOST_HOGS = 3
SPIN_MS = 300

PIN = """
import contextlib, json, os, signal, sys, time
os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})
os.nice(-20)
os.setsid()
with contextlib.suppress(FileNotFoundError), open("/proc/self/autogroup", "w") as file:
    file.write("-20")
"""
"""No other program often comes between. A session may have a priority of its own (autogroup)."""

HOG = f"""
{PIN}
os.write(1, b"ready")
while True: pass
"""

LOAD = f"""
{PIN}
hogs = [*map(int, sys.argv[1:])]

def signal_all(which):
    for hog in hogs: os.kill(hog, which)

def ran():
    found = []
    for hog in hogs:
        with open(f"/proc/{{hog}}/schedstat") as file: found.append(int(file.read().split()[0]))
    return found

stopped = ran()
signal_all(signal.SIGCONT)
while not all(now > then for now, then in zip(ran(), stopped)): pass
begin, before = time.monotonic_ns(), ran()
until = time.thread_time() + {SPIN_MS} / 1000
while time.thread_time() < until:
    for _ in range(1000): pass  # each look at this clock is a recorded call
after, end = ran(), time.monotonic_ns()
signal_all(signal.SIGSTOP)
print(json.dumps([begin, end, [now - then for now, then in zip(after, before)]]))
"""


@pytest.fixture(scope="module")
def hogs(tmp_path_factory):
    """Processes that compute if they are not stopped, on the CPU of the loads."""
    command = program(tmp_path_factory.mktemp("hogs"), "hog", HOG)
    with contextlib.ExitStack() as running:
        found = []
        for _ in range(MOST_HOGS):
            hog = running.enter_context(subprocess.Popen(command, stdout=subprocess.PIPE))
            running.callback(hog.kill)
            assert hog.stdout.read(5) == b"ready"
            hog.send_signal(signal.SIGSTOP)
            os.waitid(os.P_PID, hog.pid, os.WSTOPPED)
            found.append(hog.pid)
        yield found


@pytest.fixture(scope="module")
def recorded(record_loads, hogs, tmp_path_factory):
    command = program(tmp_path_factory.mktemp("load"), "load", textwrap.dedent(LOAD))
    loads = {f"{n} hogs": [*command, *hogs[:n]] for n in range(1, MOST_HOGS + 1)}
    found = record_loads(loads, "-e", "default,sched")
    waits(found.trace)
    return found


def charged(recorded, name, which):
    """The time (ns) of a load's waits for the CPU, while it computes, by thread."""
    begin, end, _ = json.loads(recorded.loads[name].out)
    rows = recorded.rows(
        "SELECT by_tid, sum(least(ts + dur_ns, ?) - greatest(ts, ?))::BIGINT FROM waits"
        f" WHERE kind = 'cpu' AND tid = ? AND ts < ? AND ts + dur_ns > ? AND ({which}) GROUP BY 1",
        end, begin, recorded.pid(name), end, begin,
    )  # fmt: skip
    return dict(rows)


@pytest.mark.parametrize("number", range(1, MOST_HOGS + 1))
def test_most_of_the_time_is_charged_to_the_programs_that_have_the_cpu(recorded, hogs, number):
    """They have it for as long as the load, or longer. Others come between for a short time."""
    name = f"{number} hogs"
    *_, truth = json.loads(recorded.loads[name].out)
    assert min(truth) >= SPIN_MS * MS / 2
    found = charged(recorded, name, "true")
    found.pop(None, None)
    assert set(sorted(found, key=found.get)[-number:]) == set(hogs[:number])


@pytest.mark.parametrize("number", range(1, MOST_HOGS + 1))
def test_no_wait_for_a_thread_that_is_not_recorded_is_exact(recorded, hogs, number):
    """Another one may have had the CPU before or after it, and no event tells of that."""
    exact = charged(recorded, f"{number} hogs", "certainty = 'exact' AND by_tid IS NOT NULL")
    kept = recorded.rows("SELECT DISTINCT tid FROM off_cpu")
    assert exact.keys() <= {tid for (tid,) in kept}
    assert exact.keys().isdisjoint(hogs)
