"""The CPU time of processes beside a study's run, in a PID namespace that has no others."""

import json
import subprocess
import sys

import pytest

pytestmark = pytest.mark.quiet

SPIN = "import time\nwhile time.process_time() < {}: pass"

STUDY = f"""
import json, subprocess, sys, time
from tracer.workloads.studies.others import others_cpu
print("ready", flush=True)
with others_cpu() as found:
    subprocess.run([sys.executable, "-c", {SPIN.format(0.4)!r}], check=True)
    sys.stdin.readline()
print(json.dumps(found), flush=True)
"""

WITH_OTHERS = f"""
import os, subprocess, sys
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
os.write(go_on[1], b"x")
for seconds in map(float, sys.argv[1:]):
    subprocess.run([sys.executable, "-c", {SPIN!r}.format(seconds)], check=True)
print(study.communicate("go on\\n")[0])
"""
"""A process that waits for the study and for others. It is not the namespace's first process."""


@pytest.mark.parametrize("others", [[], [0.3], [0.5, 0.25]])
def test_the_cpu_time_of_others_and_of_no_child_is_found(others):
    inside = 'python=$1; shift; "$python" "$@"; exit $?'  # a shell as the first process
    ran = subprocess.run(
        [
            *("unshare", "--pid", "--fork", "--mount-proc", "sh", "-c", inside, "sh"),
            *(sys.executable, "-c", WITH_OTHERS, *map(str, others)),
        ],
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    found = json.loads(ran.stdout)["others_cpu_s"]
    assert sum(others) - 0.05 <= found <= sum(others) + 0.15 * (1 + len(others))
