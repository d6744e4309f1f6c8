"""Processes that wait until they are let go, and then make a known number of calls."""

import contextlib
import subprocess

from tests.support.loads import PYTHON

WAITING_CALLS = (23, 101, 1009)
COUNTED = """
import os, sys
sys.stdin.readline()
for _ in range({calls}): os.getppid()
open("{done}", "w").close()
sys.stdin.readline()
"""
GO = """
import os, time
for pid in {pids}:
    with open("/proc/%d/fd/0" % pid, "w") as stdin: stdin.write("\\n")
for done in {done}:
    while not os.path.exists(done): time.sleep(0.01)
for _ in range(499): os.getppid()
"""


@contextlib.contextmanager
def waiting(folder):
    """Processes that make calls once they are let go, and say so in a file; their pids."""
    with contextlib.ExitStack() as started:
        pids = []
        for calls in WAITING_CALLS:
            source = COUNTED.format(done=folder / f"{calls}", calls=calls)
            process = subprocess.Popen([*PYTHON, "-c", source], stdin=subprocess.PIPE)
            started.callback(process.communicate)
            started.callback(process.kill)
            pids.append(process.pid)
        yield pids
