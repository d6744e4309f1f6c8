"""Marks in a time namespace: their clock becomes the machine's, or the trace says that it is not.

runc sets such clocks (`timeOffsets`), and CRIU for what it restores on another machine.
"""

import subprocess
import sys

import pytest

from tests.conftest import tracer_command
from tests.support.losses import losses
from tracer.phases import clock
from tracer.store.trace import Trace

STEPS, CALLS = 23, 7
CHANGED_CLOCK = ("unshare", "--time", "--monotonic")

pytestmark = pytest.mark.skipif(
    subprocess.run([*CHANGED_CLOCK, "1", "true"], check=False, capture_output=True).returncode != 0,
    reason="this kernel has no time namespaces",
)

MARKING = f"""
import os
from tracer import phases
def work(name):
    for step in range({STEPS}):
        with phases.phase(name, step=step):
            for _ in range({CALLS}): os.getppid()
work("step")
child = os.fork()
if not child:
    work("fetch")
    os._exit(0)
os.waitpid(child, 0)
"""

CALLS_IN_PHASES = """
SELECT p.name, p.step, count(*) FROM phases p JOIN syscalls s
ON s.tid = p.tid AND s.ts >= p.start AND s.ts + s.dur_ns <= p."end"
WHERE s.name = 'getppid' GROUP BY ALL ORDER BY 1, 2
"""


@pytest.mark.parametrize("ahead", ["1000", "-5"])
def test_calls_lie_in_the_phases_of_a_process_with_another_clock(record, ahead):
    command = [*CHANGED_CLOCK, ahead, sys.executable, "-c", MARKING]
    rows = record(command, "-e", "syscalls").rows(CALLS_IN_PHASES)
    assert rows == [(name, step, CALLS) for name in ("fetch", "step") for step in range(STEPS)]


ONLY_CHILDREN = f"""
import ctypes, sys
assert ctypes.CDLL(None).unshare(0x80) == 0  # CLONE_NEWTIME
open("/proc/self/timens_offsets", "w").write("monotonic 1000 0")
{MARKING}
"""


def test_a_process_in_front_of_its_childrens_namespace_marks_in_its_own_clock(record):
    rows = record([sys.executable, "-c", ONLY_CHILDREN], "-e", "syscalls").rows(CALLS_IN_PHASES)
    assert rows == [(name, step, CALLS) for name in ("fetch", "step") for step in range(STEPS)]


UNAWARE = f"""
import time
from tracer.phases import marks
marks._now = time.monotonic_ns
{MARKING.replace("os.fork()", "1").replace("os.waitpid(child, 0)", "")}
"""


def test_marks_of_an_unknown_clock_are_a_loss(tracer, tmp_path):
    """Those of a process that was restored, and so got another clock while it marked."""
    command = [*CHANGED_CLOCK, "1000", sys.executable, "-c", UNAWARE]
    tracer("record", "-e", "syscalls", "-o", "x.trace", "--", *command)
    with Trace(tmp_path / "x.trace") as trace:
        assert trace.rows("FROM phases") == []
        assert losses(trace) == [
            "marks: ? 1 files of marks left out: of another clock than this machine's"
        ]


def test_a_recorder_whose_clock_is_not_that_of_events_refuses(tmp_path):
    command = tracer_command("record", "-o", tmp_path / "x.trace", "--", "true")
    ran = subprocess.run(
        [*CHANGED_CLOCK, "1000", *command], capture_output=True, text=True, check=False
    )
    assert ran.returncode == 5  # a missing feature
    assert "differs from that of events by 1000 s" in ran.stderr
    assert not (tmp_path / "x.trace").exists()


def test_this_machines_own_clock_has_no_offset():
    assert clock.offset_ns() == 0
