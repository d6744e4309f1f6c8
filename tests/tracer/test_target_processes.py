"""Processes and all that descend from them, as the system has them now."""

import subprocess
import sys

import pytest

from tracer.targets.processes import with_descendants

# Each process starts the next one of so many, says its number, and waits for its input's end.
FAMILY = """
import os, subprocess, sys
left = int(sys.argv[1])
print(os.getpid(), flush=True)
if left:
    subprocess.Popen([sys.executable, "-c", sys.argv[2], str(left - 1), sys.argv[2]])
sys.stdin.read()
"""


@pytest.fixture
def family():
    """The numbers of a process, its child, and the child's child."""
    command = [sys.executable, "-c", FAMILY, "2", FAMILY]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    with subprocess.Popen(command, text=True, **pipes) as process:
        yield [int(process.stdout.readline()) for _ in range(3)]
        process.stdin.close()


def test_descendants_of_any_degree_are_found_and_no_ancestor(family):
    parent, child, grandchild = family
    assert with_descendants([parent]) == {parent, child, grandchild}
    assert with_descendants([child]) == {child, grandchild}


def test_descendants_of_a_left_out_process_are_left_out_unless_it_is_a_root(family):
    parent, child, grandchild = family
    assert with_descendants([parent], but=lambda pid: pid == child) == {parent}
    assert with_descendants([child], but=lambda pid: pid == child) == {child, grandchild}


def test_a_root_that_is_gone_is_nobody():
    with subprocess.Popen([sys.executable, "-c", ""]) as process:
        process.wait()
    assert with_descendants([process.pid]) == set()
