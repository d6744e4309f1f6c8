"""Processes that join a target and end while the recorder looks at them."""

from __future__ import annotations

import os
import subprocess

import pytest

from tracer.probes.catalogue import PROBES
from tracer.session.capture import Capture
from tracer.session.members import Members
from tracer.store import listed
from tracer.store.finalize import MEMBERS
from tracer.store.lists import MemberFacts
from tracer.targets import Target


class Joined(Target):
    """A target with one process, which has joined it."""

    process: subprocess.Popen | None = None

    @property
    def joined(self):
        return True

    def members(self, tree=None):
        return {self.process.pid: 0} if self.process is not None else {}


class Ending(Joined):
    """A target without processes. A look at it ends the process of another one."""

    def members(self, tree=None):
        if self.process is not None:
            self.process.kill()
            self.process.wait()
        return {}


@pytest.fixture
def capture(tmp_path):
    made = Capture(tmp_path, [PROBES["syscalls"]], 64, sorted(os.sched_getaffinity(0)))
    yield made
    made.close()


def test_a_process_that_ends_before_its_threads_are_listed_counts_as_late(capture, tmp_path):
    """Nothing says that its events were recorded. The other one is followed before it is listed."""
    there, brief, ending = (Joined("a", "cgroup"), Joined("b", "cgroup"), Ending("c", "cgroup"))
    with Members(tmp_path, [there, brief, ending], capture) as members:
        there.process = subprocess.Popen(["sleep", "60"])
        members.first_look()
        brief.process = ending.process = subprocess.Popen(["sleep", "60"])
        members.look()
        there.process.kill()
        there.process.wait()
    late = {pid: late for _, pid, *_, late in listed.read(tmp_path / MEMBERS, MemberFacts)}
    assert late == {there.process.pid: False, 0: False, brief.process.pid: True}
