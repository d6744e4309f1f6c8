"""Real loads on the real kernel, and what a recording of them shows."""

from __future__ import annotations

import contextlib
import ctypes
import functools
import os
import shlex
import subprocess
from pathlib import Path

import pytest

from scripts.privileges.reach import reachable
from tests.conftest import Ran, tracer_command
from tests.support import loads
from tests.support.attacker import attack, place, victim  # noqa: F401 fixtures
from tests.support.cgroups import mounted, own_cgroup
from tests.support.file_systems import file_system  # noqa: F401 a fixture
from tests.support.found_names import names  # noqa: F401 a fixture
from tests.support.kernel_settings import short_grace_periods  # noqa: F401 a fixture
from tests.support.loads import Recorded
from tests.support.losses import losses
from tests.support.recorder import loop, recorder  # noqa: F401 fixtures
from tests.support.sysctls import sysctls  # noqa: F401 a fixture
from tests.support.waiting import wait_for
from tracer.probes.kernel import find_tracefs
from tracer.store.trace import Trace
from tracer.targets.cgroups import hierarchies

_CLONE_NEWNS = 0x00020000
"""include/uapi/linux/sched.h"""


@pytest.fixture
def load(tmp_path):
    """A Python program in a file of its own; returns its command line."""

    def make(source: str) -> list[str]:
        return loads.program(tmp_path, "load", source)

    return make


def _in_mounts_of_its_own(changes: list[str]) -> None:
    """Run shell commands that change mounts; no other process sees what they change."""
    assert ctypes.CDLL(None).unshare(_CLONE_NEWNS) == 0
    for change in ("mount --make-rprivate /", *changes):
        subprocess.run(["sh", "-c", change], check=True)


@pytest.fixture
def hidden(tracer, tmp_path):
    """Run `tracer` where shell commands have changed the mounts; nothing else sees that."""
    (tmp_path / "empty").mkdir()

    def run(changes, *arguments):
        changes = [change.replace("EMPTY", str(tmp_path / "empty")) for change in changes]
        before = functools.partial(_in_mounts_of_its_own, changes)
        return tracer(*arguments, before=before, status=None)

    return run


@pytest.fixture
def unable(tmp_path):
    """Run `tracer` by `setpriv OPTIONS`, where shell commands have changed the mounts."""
    (tmp_path / "empty").mkdir(exist_ok=True)

    def run(options, changes, *arguments):
        command = f"exec setpriv {options} {shlex.join(tracer_command(*arguments))}"
        script = " && ".join([*reachable(), *changes, command]).replace(
            "EMPTY", str(tmp_path / "empty")
        )
        unshared = ["unshare", "--mount", "--propagation", "private", "sh", "-c", script]
        return Ran.of(
            subprocess.run(
                unshared, capture_output=True, text=True, timeout=300, check=False, cwd=tmp_path
            )
        )

    return run


@pytest.fixture
def backend():
    """The default: ftrace with programs. A module with a fixture of the same name tries others."""
    return "auto"


@pytest.fixture
def record(tracer, tmp_path, backend):
    """Record a command by a backend; returns the opened trace, which lost nothing."""
    opened = []

    def run(command, *options, status=0):
        folder = tmp_path / f"{len(opened)}.trace"
        how = ("--backend", backend)
        tracer("record", "-o", folder, *how, *options, "--", *command, status=status)
        trace = Trace(folder)
        opened.append(trace)
        assert losses(trace) == []
        return trace

    yield run
    for trace in opened:
        trace.close()


@pytest.fixture(scope="module")
def record_loads(tmp_path_factory):
    """Record several loads at once, for a fixture of a module: `tests.support.loads.record`."""
    with contextlib.ExitStack() as opened:

        def run(*arguments, **options) -> Recorded:
            recorded = loads.record(tmp_path_factory.mktemp("loads"), *arguments, **options)
            opened.callback(recorded.trace.close)
            return recorded

        yield run


@pytest.fixture
def perfs(tmp_path):
    """Pids of the perfs that recorders of this test run now; none of them outlives the test."""
    here = {str(tmp_path), str(Path.cwd())}

    def pids() -> set[int]:
        found = set()
        for folder in Path("/proc").glob("[1-9]*"):
            try:
                line = (folder / "cmdline").read_text(errors="replace").split("\0")
                mine = str((folder / "cwd").readlink()) in here
            except OSError:
                continue
            if mine and Path(line[0]).name == "perf" and "--control" in line:
                found.add(int(folder.name))
        return found

    yield pids
    wait_for(lambda: not pids(), "the end of every perf", 20)


@pytest.fixture
def instances():
    """Names of the tracefs instances that there are now."""

    def found() -> set[str]:
        return {path.name for path in (find_tracefs() / "instances").iterdir()}

    return found


def counting():
    """The hierarchies of this machine whose cgroups count memory or CPU time."""
    return [h for h in hierarchies() if {"", "memory", "cpuacct"} & {*h.controllers.split(",")}]


@pytest.fixture(params=counting(), ids=lambda h: h.controllers or "unified")
def cgroup(request):
    """A cgroup of a test's own: its folder. What is in it ends with the test."""
    folder = request.param.mount / f"tracer-samples-{os.getpid()}"
    folder.mkdir()
    yield folder
    wait_for(lambda: not (folder / "cgroup.procs").read_text(), f"{folder} to empty")
    folder.rmdir()


@pytest.fixture
def joined():
    """A cgroup of a test's own, in any hierarchy, for jobs that join it: its folder."""
    if not mounted():
        pytest.skip("this machine has no cgroups")
    with own_cgroup(mounted()[-1]) as folder:
        yield folder
