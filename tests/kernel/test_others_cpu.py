"""The CPU time of processes beside a study's run, in a PID namespace that has no others."""

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tracer.workloads.studies.others import others_cpu

pytestmark = pytest.mark.quiet

SPIN = "import time\nwhile time.process_time() < {}: pass"

STUDY = f"""
import json, subprocess, sys, time
from tracer.workloads.studies.others import others_cpu
with others_cpu() as found:
    print("ready", flush=True)
    subprocess.run([sys.executable, "-c", {SPIN.format(0.4)!r}], check=True)
    sys.stdin.readline()
print(json.dumps(found), flush=True)
"""

WITH_OTHERS = f"""
import json, os, subprocess, sys
def used(): return sum(os.times()[:4])
left, go_on = os.pipe(), os.pipe()
if os.fork() == 0:  # what a shell leaves in the background: init is its parent, and waits for it
    if os.fork() == 0:
        exec({SPIN.format(0.6)!r})
        os.write(left[1], b"x")
        os.read(go_on[0], 1)
    os._exit(0)
os.wait()
os.read(left[0], 1)
study = subprocess.Popen(
    [sys.executable, "-c", {STUDY!r}], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
)
study.stdout.readline()
begun = used()
os.write(go_on[1], b"x")
for seconds in map(float, sys.argv[1:]):
    subprocess.run([sys.executable, "-c", {SPIN!r}.format(seconds)], check=True)
truth = used() - begun
print(json.dumps([json.loads(study.communicate("go on\\n")[0]), truth]))
"""
"""A process that waits for the study and for others. It is not the namespace's first process.

The kernel's account of it and its children is the truth: a Python takes some time to begin.
"""

A_TREE_ENDS = f"""
import json, os, subprocess, sys
from tracer.workloads.studies.others import others_cpu
SPENT = {SPIN.format(1.5)!r} + '''
import sys
print("spent", flush=True)
sys.stdin.read()
'''
WAITS = "import subprocess, sys; subprocess.run(sys.argv[1:])"
STAYS = WAITS + "; print('ended', flush=True); import time; time.sleep(60)"
waiting = [word for _ in range(int(sys.argv[1])) for word in (sys.executable, "-c", WAITS)]
command = [sys.executable, "-c", STAYS, *waiting, sys.executable, "-c", SPENT]
first, second = os.pipe(), os.pipe()
if os.fork() == 0:  # what descends from the study itself is not another process
    tree = subprocess.Popen(command, stdin=first[0], stdout=second[1])
    os._exit(0)
os.wait()
os.close(first[0])
os.close(second[1])
said = os.fdopen(second[0])
assert said.readline() == "spent\\n"
with others_cpu() as found:
    os.close(first[1])
    assert said.readline() == "ended\\n"
print(json.dumps(found))
"""
"""A tree of others that ends in the block but for its root. The last one has used 1.5 s before."""

A_CONTAINER = f"""
import ctypes, json, os, subprocess, sys
from tracer.workloads.studies.others import others_cpu
SPINS = "input()\\n" + {SPIN.format(0.8)!r} + "\\nprint(flush=True)\\ninput()"
SHIM = "import ctypes, subprocess, sys; ctypes.CDLL(None).prctl(15, sys.argv[1].encode());"
SHIM += "subprocess.run([sys.executable, '-c', sys.argv[2]])"


def begin():
    first, second = os.pipe(), os.pipe()
    if os.fork() == 0:
        subprocess.Popen(
            [sys.executable, "-c", SHIM, "containerd-shim", SPINS], stdin=first[0], stdout=second[1]
        )
        os._exit(0)
    os.wait()
    return os.fdopen(first[1], "w"), os.fdopen(second[0])


earlier = begin() if sys.argv[1] == "before" else None
with others_cpu() as found:
    go_on, said = earlier or begin()
    print(file=go_on, flush=True)
    said.readline()
print(json.dumps(found))
"""


def in_a_namespace(program, *arguments):
    """Returns what a program prints in a PID namespace whose first process is a shell."""
    inside = 'python=$1; shift; "$python" "$@"; exit $?'
    ran = subprocess.run(
        [
            *("unshare", "--pid", "--fork", "--kill-child", "--mount-proc", "sh", "-c", inside),
            *("sh", sys.executable, "-c", program, *map(str, arguments)),
        ],
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    return json.loads(ran.stdout)


@pytest.mark.parametrize("others", [[], [0.3], [0.5, 0.25]])
def test_the_cpu_time_of_others_and_of_no_child_is_found(others):
    found, truth = in_a_namespace(WITH_OTHERS, *others)
    assert sum(others) - 0.05 <= found["others_cpu_s"] <= truth + 0.15


@pytest.mark.parametrize("between", [0, 1, 2])
def test_the_earlier_time_of_an_ended_process_does_not_count_if_its_parent_ends_too(between):
    assert in_a_namespace(A_TREE_ENDS, between)["others_cpu_s"] < 0.5


@pytest.mark.parametrize(("begins", "counted"), [("before", True), ("in the block", False)])
def test_a_container_that_was_there_before_the_run_counts_and_its_own_does_not(begins, counted):
    found = in_a_namespace(A_CONTAINER, begins)
    assert (found["others_cpu_s"] >= 0.75) == counted
    assert found["others_over_s"] > 0.75


def test_the_time_that_the_host_took_is_what_proc_says():
    def taken():
        ticks = int(Path("/proc/stat").read_text().split(maxsplit=9)[8])
        return ticks / os.sysconf("SC_CLK_TCK")

    before = taken()
    with others_cpu() as found:
        began = taken()
        time.sleep(0.2)
        ended = taken()
    least, most = ended - began, taken() - before
    assert least - 0.005 <= found["steal_s"] <= most + 0.005  # times are sums of ticks of 0.01 s
