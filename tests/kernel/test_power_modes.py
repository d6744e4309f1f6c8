"""Quotas and cpusets of the real kernel: a job is held to them, and nothing is left behind."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.waiting import wait_for
from tracer.workloads.errors import JobError
from tracer.workloads.modes.cgroups import Share, entering, find_mount, make, plan, remove
from tracer.workloads.modes.mode import PowerMode
from tracer.workloads.modes.setting import PowerModes

SPIN = "import os, time; print(len(os.sched_getaffinity(0)), flush=True)\nwhile True: pass"
HALF = PowerMode(cores=1, cpu_quota=0.5)

KILLED = """
import sys, time
from pathlib import Path
from tracer.workloads.modes.mode import PowerMode
from tracer.workloads.modes.setting import PowerModes
with PowerModes(True, Path(sys.argv[1])) as modes:
    with modes.applied(PowerMode(cores=1, cpu_quota=0.5), containers=False) as setting:
        print(*setting.cgroups, flush=True)
        time.sleep(1000)
"""


def throttled(folder):
    words = (folder / "cpu.stat").read_text().split()
    return int(words[words.index("nr_throttled") + 1])


@pytest.fixture
def spinning():
    """Processes that use all the time that they get; killed at the end."""
    started = []

    def start(cgroups):
        command = entering(cgroups, [sys.executable, "-S", "-c", SPIN])
        started.append(subprocess.Popen(command, stdout=subprocess.PIPE, text=True))
        return started[-1]

    yield start
    for process in started:
        process.kill()
        process.communicate()


def test_a_job_has_as_many_cores_as_its_mode_and_no_more_time(tmp_path, spinning):
    here = Path("/proc/self/cgroup").read_text()
    with PowerModes(True, tmp_path) as modes:
        with modes.applied(HALF, containers=False) as setting:
            job = spinning(setting.cgroups)
            assert job.stdout.readline() == "1\n"
            cpu = next(path for path in setting.cgroups if (path / "cpu.stat").exists())
            wait_for(lambda: throttled(cpu) >= 3, "the kernel to hold the job back")
            assert Path("/proc/self/cgroup").read_text() == here
        assert job.wait(timeout=60) == -signal.SIGKILL  # it was still in there
        assert not any(path.exists() for path in setting.cgroups)
    assert list(tmp_path.iterdir()) == []


def test_a_killed_runner_s_cgroups_are_removed_by_the_next(tmp_path, spinning):
    runner = subprocess.Popen(
        [sys.executable, "-c", KILLED, str(tmp_path)], stdout=subprocess.PIPE, text=True
    )
    cgroups = [Path(name) for name in runner.stdout.readline().split()]
    job = spinning(cgroups)
    assert job.stdout.readline() == "1\n"
    runner.kill()
    runner.communicate()
    assert cgroups and all(path.exists() for path in cgroups)
    assert json.loads((tmp_path / "power_mode.json").read_text())
    with PowerModes(False, tmp_path):
        assert not any(path.exists() for path in cgroups)
    assert job.wait(timeout=60) == -signal.SIGKILL
    assert list(tmp_path.iterdir()) == []


def test_a_share_that_the_kernel_refuses_fails_and_leaves_nothing(tmp_path):
    planned = plan(Share(cpus=(4096,)), f"traintrace-test-{os.getpid()}")
    with pytest.raises(JobError, match="cannot write '4096' to"):
        make(planned)
    remove(planned)
    assert not (find_mount("cpuset").path / f"traintrace-test-{os.getpid()}").exists()
