"""Real studies with failing runs, which end, are stopped or killed, and leave nothing behind."""

import contextlib
import json
import os
import shutil
from pathlib import Path

import pytest
from docker.errors import NotFound

from tests.docker.conftest import init_of, wait_for
from tests.support.study_folders import assert_nothing_is_left, results, times_of
from tests.support.warm import Tracer
from tracer.workloads.modes.setting import PowerModes

pytest.importorskip("torch", reason="PyTorch is not installed")

pytestmark = pytest.mark.settings

HEAD = """
name = "tiny"
repeats = {repeats}
scale = 0.002
time_scale = 0.01
record = ["-e", "processes"]
"""
TINY = (
    HEAD
    + """
[[runs]]
model = "lenet"
workers = 1
epochs = 1
cache = "kept"
where = ["host", "1"]
"""
)
IN_A_CONTAINER = TINY.replace('"host", ', "")
ON_THE_HOST = TINY.replace(', "1"', "")
SLOW = (
    HEAD
    + """
[[runs]]
model = "lenet"
epochs = {epochs}
workers = 0
cache = "kept"
where = [{where}]
power_mode = [{modes}]
"""
)
ENDLESS = 100_000
"""Epochs that no test waits for."""
MOST_OF_ONE = "{cores = 1, cpu_quota = 0.9}"
NOTE = Path("/var/lib/traintrace/power_mode.json")


@pytest.fixture
def study(dockerd, tracer, tmp_path):
    """Runs a study from its text to its end; `.start` runs one in the background."""
    with PowerModes(needed=False):
        pass  # the machine has its own settings again, if tests were killed during a study
    started = []

    def command_of(text, scratch):
        (tmp_path / "mine.toml").write_text(text)
        return ("study", "run", "mine.toml", "-o", "s", "--scratch", scratch)

    def run(text, status=0, scratch="512m", environment=None):
        env = {**os.environ, **(environment or {})}
        return tracer(*command_of(text, scratch), status=status, env=env)

    def start(text):
        started.append(Tracer(*command_of(text, "512m"), cwd=tmp_path))
        return started[-1]

    run.start = start
    yield run
    for process in started:
        process.kill()
        process.close()


def has_begun(container):
    """Returns whether a container has passed its gate, so that its job runs."""
    with contextlib.suppress(NotFound, OSError):  # it has ended
        words = Path(f"/proc/{init_of(container)}/cmdline").read_bytes().split(b"\0")
        return b"tracer.workloads" in words and b"-c" not in words
    return False


def test_a_container_ended_from_outside_fails_only_its_run(study, dockerd, tmp_path):
    """The containers of the run share the CPU time of its power mode."""
    slow = {"epochs": ENDLESS, "where": '"2"', "modes": MOST_OF_ONE}
    runner = study.start(SLOW.format(repeats=2, **slow))

    def boxes():
        return dockerd.client.containers.list(ignore_removed=True)

    wait_for(lambda: [has_begun(box) for box in boxes()] == [True, True], "the jobs", 300)
    first = str(min(os.sched_getaffinity(0)))
    for box in boxes():
        config = box.attrs["HostConfig"]
        assert (config["NanoCpus"], config["CpusetCpus"]) == (450_000_000, first)
    boxes()[0].kill()
    wait_for(lambda: results(tmp_path / "s"), "the end of the run", 120)
    wait_for(lambda: len(boxes()) == 2, "the containers of the next run", 300)
    runner.terminate()
    assert runner.wait(120) == 130
    (one,) = results(tmp_path / "s").values()
    assert one["state"] == "failed"
    assert "killed by signal 9" in one["reason"]
    assert "another container of the run failed" in one["reason"]
    assert not NOTE.exists()
    assert_nothing_is_left(tmp_path / "s", dockerd)


def test_runs_in_containers_fail_without_a_daemon_and_without_their_image(study, dockerd, tmp_path):
    """A study's folder takes more repeats, and keeps the first one."""
    lacking = 'image = "no/such:image"\n' + IN_A_CONTAINER
    nowhere = {"DOCKER_HOST": f"unix://{tmp_path}/none"}
    before = {}
    for repeats, environment in ((1, nowhere), (2, None)):
        text = lacking.format(repeats=repeats)
        ran = json.loads(study(text, status=1, environment=environment).out)
        assert (ran["runs"], ran["done"], ran["failed"]) == (repeats, 0, repeats)
        assert before.items() <= times_of(tmp_path / "s", "*").items()
        before = times_of(tmp_path / "s", "*")
    reasons = {one["repeat"]: one["reason"] for one in results(tmp_path / "s").values()}
    assert "systemctl start docker" in reasons[0]
    assert "there is no image no/such:image" in reasons[1]
    assert_nothing_is_left(tmp_path / "s", dockerd)
    assert "as many --repeats or more" in study(lacking.format(repeats=1), status=2).err


def test_a_run_over_its_time_limit_fails(study, dockerd, tmp_path):
    text = TINY.format(repeats=1).replace("epochs = 1", f"epochs = {ENDLESS}")
    ran = json.loads(study("longest_s = 2\n" + text, status=1).out)
    assert (ran["done"], ran["failed"]) == (0, 2)
    found = results(tmp_path / "s").values()
    assert {one["state"] for one in found} == {"failed"}
    assert all("took longer than 2 s" in one["reason"] for one in found)
    assert_nothing_is_left(tmp_path / "s", dockerd)


def test_a_full_scratch_disk_fails_the_runs(study, dockerd, tmp_path):
    text = ON_THE_HOST.format(repeats=1).replace("0.002", "0.2")  # 15 MB of digits
    ran = study(text, status=1, scratch="12m")
    assert json.loads(ran.out)["failed"] == 1
    (failed,) = results(tmp_path / "s").values()
    assert "which has room for" in failed["reason"]
    assert_nothing_is_left(tmp_path / "s", dockerd)


def test_the_folder_of_another_study_is_refused(study, tmp_path):
    (tmp_path / "s").mkdir()
    (tmp_path / "s/study.json").write_text('{"name": "other"}')
    ran = study(TINY.format(repeats=1), status=2)
    assert "belongs to another study" in ran.err
    assert ran.err.count("\n") == 1
    assert not Path(tmp_path / "s/scratch.img").exists()


def test_the_next_study_removes_the_power_mode_of_a_killed_study(study, dockerd, tmp_path):
    slow = {"epochs": ENDLESS, "where": '"host"', "modes": MOST_OF_ONE}
    process = study.start(SLOW.format(repeats=1, **slow))
    cgroup = Path(f"traintrace-{process.pid}")
    wait_for(NOTE.exists, "the power mode", 300)
    wait_for(lambda: any(members(cgroup)), "the job to join its cgroups", 60)
    process.kill()
    process.wait()
    assert NOTE.exists() and any(members(cgroup))
    shutil.rmtree(tmp_path / "s/runs")
    (tmp_path / "s/study.json").unlink()
    lacking = f'medium = "{tmp_path}/absent"\n'
    ran = study(SLOW.format(repeats=1, **slow) + lacking, status=1)
    assert json.loads(ran.out)["failed"] == 1
    assert not NOTE.exists() and not list(Path("/sys/fs/cgroup").glob(f"**/{cgroup}"))
    assert_nothing_is_left(tmp_path / "s", dockerd)


def members(cgroup):
    """Yields the processes in the cgroups of this name."""
    for path in Path("/sys/fs/cgroup").glob(f"**/{cgroup}/cgroup.procs"):
        with contextlib.suppress(FileNotFoundError):
            yield from path.read_text().split()
