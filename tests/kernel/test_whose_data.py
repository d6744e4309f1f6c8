"""Data that the kernel's flusher writes while a step waits for a sync, and whose data it is."""

import subprocess
import sys

import pytest

from tests.support.planted import load
from tests.support.slow_disk import slow_disk
from tests.support.slow_ext4 import QUIET, mounted
from tracer.analysis.explain.explanation import explain
from tracer.analysis.explain.words import meanwhile

PAGE = 4096
OWN, OTHERS = 5, 37

NEIGHBOUR = f"""
import os, sys, time
file = os.open(sys.argv[1] + "/neighbour", os.O_CREAT | os.O_RDWR)
while True:
    os.pwrite(file, os.urandom({OTHERS * PAGE}), 0)
    time.sleep(0.05)
"""
STEPS = load(f"""
folder = os.open(sys.argv[1], os.O_RDONLY)
own = os.open(sys.argv[1] + "/own", os.O_CREAT | os.O_RDWR)
sync = lambda: ctypes.CDLL(None, use_errno=True).syncfs(folder)

def write():
    os.pwrite(own, os.urandom({OWN * PAGE}), 0)
    time.sleep(0.3)

steps([sync, sync, sync], write)
""")


@pytest.fixture(scope="module")
def served(record_loads, tmp_path_factory):
    """The requests that the disk served during each step's waits."""
    folder = tmp_path_factory.mktemp("whose")
    mount, python = folder / "mount", folder / "neighbour"
    python.symlink_to(sys.executable)  # its name is that of the process
    (folder / "steps.py").write_text(STEPS)
    with slow_disk(folder, "d", 20) as disk, mounted(disk, mount, {}, QUIET):
        neighbour = subprocess.Popen([python, "-S", "-E", "-c", NEIGHBOUR, mount])
        try:
            command = ["/usr/bin/python3", "-S", "-E", folder / "steps.py", mount]
            found = record_loads({"job": command}, "-e", "default,sched")
        finally:
            neighbour.kill()
            neighbour.wait()
    steps = explain(found.trace, slowest=3).slowest
    assert len(steps) == 3
    # The first step syncs what the neighbour dirtied before the recording.
    return [
        [served for one in step.segments for served in one["meanwhile"]]
        for step in steps
        if step.step
    ]


def test_the_flusher_writes_for_a_neighbour(served):
    for step in served:
        theirs = [one for one in step if one["for_whom"] == "neighbour"]
        assert {(one["operation"], one["own"]) for one in theirs} == {("write", False)}
        assert all(one["comm"].startswith("kworker/") for one in theirs)
        assert {one["bytes"] for one in theirs} == {OTHERS * PAGE}
        assert "writes of kworker/" in meanwhile(theirs)
        assert "for neighbour (1 request)" in meanwhile(theirs)


def test_the_flusher_writes_for_the_job(served):
    for step in served:
        mine = [one for one in step if (one["for_whom"] or "").startswith("target ")]
        assert {one["bytes"] for one in mine} == {OWN * PAGE}
