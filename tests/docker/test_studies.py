"""Real studies: resumed after a kill, with failing runs, and without anything left behind."""

import contextlib
import json
import os
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.docker.conftest import wait_for
from tests.support.warm import Tracer
from tracer.analysis.studies.runs import read_runs
from tracer.store.trace import Trace
from tracer.workloads.modes.setting import PowerModes
from tracer.workloads.studies import throttle

pytest.importorskip("torch", reason="PyTorch is not installed")

pytestmark = pytest.mark.settings

TINY = """
name = "tiny"
repeats = {repeats}
scale = 0.002
time_scale = 0.02
[[runs]]
model = "lenet"
workers = 1
epochs = 1
cache = "kept"
where = ["host", "2"]
"""

ALONE = TINY.replace('"2"', '"1"')
IN_CONTAINERS = TINY.format(repeats=1).replace('"host", ', "")

TOO_BIG = """
[[runs]]
model = "lenet"
where = ["host", "1"]
cache = "kept"
memory = "96m"
workers = 0
"""
"""Runs with less memory than PyTorch alone takes."""


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


def results(folder):
    return {
        path.parent.name: json.loads(path.read_text()) for path in folder.glob("s/runs/*/run.json")
    }


def loops(folder):
    said = subprocess.run(
        ["losetup", "-j", folder / "s/scratch.img"], capture_output=True, text=True, check=True
    )
    return said.stdout


def assert_nothing_is_left(folder, dockerd):
    assert not os.path.ismount(folder / "s/scratch")
    assert loops(folder) == ""
    assert dockerd.client.containers.list(all=True, ignore_removed=True) == []


def test_a_resumed_study_makes_all_runs_with_their_traces(study, dockerd, tmp_path):
    expire = Path("/proc/sys/vm/dirty_expire_centisecs")
    before_ms = int(expire.read_text()) * 10
    runner = study.start(ALONE.format(repeats=1))
    wait_for(lambda: results(tmp_path), "the first run", 200)
    wait_for(lambda: len(list(tmp_path.glob("s/runs/*"))) > 1, "the second run", 60)
    wait_for(lambda: loops(tmp_path), "its file system", 60)
    runner.kill()
    runner.wait()
    assert loops(tmp_path)
    kept = times_of(tmp_path, "run.json")
    ran = study(ALONE.format(repeats=1))
    assert json.loads(ran.out) == {
        "study": "tiny", "folder": str(tmp_path / "s"), "runs": 2, "done": 2, "failed": 0,
    }  # fmt: skip
    assert kept.items() <= times_of(tmp_path, "run.json").items()
    found = results(tmp_path)
    losses = {s["last_loss"] for one in found.values() for s in one["summaries"]}
    assert len(losses) == 1  # one seed gives one loss in every place
    for name, one in found.items():
        assert len(one["summaries"]) == 1
        with Trace(tmp_path / "s/runs" / name / "run.trace") as trace:
            query = "SELECT count(*) FROM phases WHERE name = 'train'"
            assert trace.connection.execute(query).fetchone() == (1,)
            # The flusher's timers are a fiftieth of the machine's, and it has written all data.
            assert int(trace.manifest["vm"]["dirty_expire_centisecs"]) * 500 == before_ms
            assert trace.manifest["duration_s"] > one["timers"]["dirty_expire_centisecs"] / 100
    assert int(expire.read_text()) * 10 == before_ms
    assert_nothing_is_left(tmp_path, dockerd)
    before = times_of(tmp_path, "*")
    assert json.loads(study(ALONE.format(repeats=1)).out)["done"] == 2
    assert times_of(tmp_path, "*") == before
    # The folder takes more repeats, and keeps the first one.
    ran = study(ALONE.format(repeats=2))
    assert json.loads(ran.out)["done"] == 4
    assert before.items() <= times_of(tmp_path, "*").items()
    assert all(one["others_cpu_s"] >= 0 for one in results(tmp_path).values())
    assert "as many --repeats or more" in study(ALONE.format(repeats=1), status=2).err


def times_of(folder, name):
    """Returns the modification time of the runs' files of this name."""
    return {path: path.stat().st_mtime_ns for path in folder.glob(f"s/runs/*/{name}")}


SERVED = """
name = "served"
repeats = 1
scale = 0.002
time_scale = 0.02
[[runs]]
model = "lenet"
workers = 1
epochs = 2
[[runs]]
model = "lenet"
mode = "serve"
rate = 50
requests = 23
[[runs]]
model = "lenet"
mode = "serve"
rate = 50
requests = 23
where = "2"
medium = "sd-card"
"""


def test_a_study_serves_what_it_has_trained_on_a_limited_medium_too(study, dockerd, tmp_path):
    if throttle.find_hierarchy() is None:
        pytest.skip("this kernel cannot limit devices")
    assert json.loads(study(SERVED).out)["done"] == 3
    found = {
        (one["factors"]["mode"], one["factors"]["where"]): (name, one)
        for name, one in results(tmp_path).items()
    }
    name, training = found["train", "host"]
    for where, servers, medium in (("host", 1, "disk"), ("2", 2, "sd-card")):
        _, serving = found["serve", where]
        assert serving["weights"] == {
            "kind": "trained", "run": name, "epoch": 1, "step": training["summaries"][0]["steps"],
            **training["checkpoint"],
        }  # fmt: skip
        assert training["ended"] < serving["began"]
        assert serving["medium"]["name"] == medium
        answered = [
            (one["server"]["answered"], one["client"]["answered"]) for one in serving["summaries"]
        ]
        assert answered == [(23, 23)] * servers
    assert not (tmp_path / "s/checkpoints").exists()
    _, frame, failed = read_runs(tmp_path / "s")
    assert failed == []
    served = frame[frame["mode"] == "serve"]
    assert sorted(served["where"]) == ["2", "host"]
    assert set(served["weights"]) == {"trained"}
    assert frame.loc[frame["mode"] == "train", "weights"].isna().all()
    assert (served["latency_p99_ms"] >= served["latency_p50_ms"]).all()
    assert (served["achieved_per_s"] > 0).all()
    assert_nothing_is_left(tmp_path, dockerd)


def test_a_container_ended_from_outside_fails_only_its_run(study, dockerd, tmp_path):
    long = TINY.format(repeats=2).replace("epochs = 1", "epochs = 100000")
    runner = study.start(long.replace('"host", ', ""))
    ends = [
        (lambda container: container.kill(), "killed by signal 9"),
        (lambda container: container.remove(force=True), "removed from outside"),
    ]
    for number, (end, _) in enumerate(ends):
        wait_for(lambda number=number: len(results(tmp_path)) == number, "the run before", 60)
        wait_for(
            lambda: list(tmp_path.glob("s/scratch/output/container-*/train.log")), "a step", 300
        )
        end(dockerd.client.containers.list()[0])
    assert runner.wait(300) == 0
    found = sorted(results(tmp_path).values(), key=lambda one: one["began"])
    for one, (_, reason) in zip(found, ends, strict=True):
        assert one["state"] == "failed"
        assert reason in one["reason"]
        assert "another container of the run failed" in one["reason"]
    assert_nothing_is_left(tmp_path, dockerd)


def test_a_missing_image_fails_the_runs_in_containers(study, dockerd, tmp_path):
    ran = study('image = "no/such:image"\n' + IN_CONTAINERS)
    assert (json.loads(ran.out)["done"], json.loads(ran.out)["failed"]) == (0, 1)
    (failed,) = results(tmp_path).values()
    assert "no/such:image" in failed["reason"]
    assert_nothing_is_left(tmp_path, dockerd)


def test_a_run_over_its_time_limit_fails(study, dockerd, tmp_path):
    text = TINY.format(repeats=1).replace("epochs = 1", "epochs = 100000").replace('"2"', '"1"')
    ran = json.loads(study(text.replace("repeats", "longest_s = 2\nrepeats")).out)
    assert (ran["done"], ran["failed"]) == (0, 2)
    assert {one["state"] for one in results(tmp_path).values()} == {"failed"}
    assert all("took longer than 2 s" in one["reason"] for one in results(tmp_path).values())
    assert_nothing_is_left(tmp_path, dockerd)


def test_runs_in_containers_fail_without_a_daemon(study, dockerd, tmp_path):
    ran = study(IN_CONTAINERS, environment={"DOCKER_HOST": f"unix://{tmp_path}/none"})
    assert (json.loads(ran.out)["done"], json.loads(ran.out)["failed"]) == (0, 1)
    (failed,) = results(tmp_path).values()
    assert "systemctl start docker" in failed["reason"]


def test_a_full_scratch_disk_fails_the_runs(study, dockerd, tmp_path):
    text = TINY.format(repeats=1).replace("0.002", "0.2")  # 15 MB of digits
    ran = study(text, scratch="12m")
    assert json.loads(ran.out)["failed"] == 2
    for one in results(tmp_path).values():
        assert "are free" in one["reason"]
    assert_nothing_is_left(tmp_path, dockerd)


def test_the_folder_of_another_study_is_refused(study, tmp_path):
    (tmp_path / "s").mkdir()
    (tmp_path / "s/study.json").write_text('{"name": "other"}')
    ran = study(TINY.format(repeats=1), status=2)
    assert "belongs to another study" in ran.err
    assert ran.err.count("\n") == 1
    assert not Path(tmp_path / "s/scratch.img").exists()


SLOW = """
[[runs]]
model = "lenet"
epochs = 1
workers = 0
cache = "kept"
where = [{where}]
power_mode = [{modes}]
"""
MOST_OF_ONE = "{cores = 1, cpu_quota = 0.9}"
NO_STUDY = TINY.partition("[[runs]]")[0]
NOTE = Path("/var/lib/traintrace/power_mode.json")


def test_runs_have_their_power_modes_and_only_impossible_ones_fail(study, dockerd, tmp_path):
    slow = SLOW.format(where='"host", "1"', modes=f"{MOST_OF_ONE}, {{gpu_mhz = 1}}")
    ran = json.loads(study(NO_STUDY.format(repeats=1) + TOO_BIG + slow).out)
    assert (ran["done"], ran["failed"]) == (2, 4)
    found = sorted(results(tmp_path).values(), key=lambda one: one["began"])
    too_big = [one for one in found if one["factors"]["memory"]]
    assert sorted(one["factors"]["where"] for one in too_big) == ["1", "host"]
    for one in too_big:
        assert one["state"] == "failed"
        assert "the memory limit was reached" in one["reason"]
    states = [one["state"] for one in found]
    assert "done" in states[states.index("failed") :]  # the study went on
    for one in found:
        if one in too_big:
            continue
        mode = one["power_mode"]
        if one["state"] == "failed":
            assert mode == {"name": "gpu_mhz 1"}
            assert "gpu_mhz" in one["reason"] and "\n" not in one["reason"]
        else:
            assert mode["name"] == "cores 1, cpu_quota 0.9"
            assert (mode["settings"]["cores"], mode["settings"]["cpu_quota"]) == (1, 0.9)
            assert mode["by"]["cpu_quota"] == "quota of CPU time, not a frequency"
    assert not NOTE.exists()
    assert_nothing_is_left(tmp_path, dockerd)


def test_the_containers_of_a_run_share_the_cpu_time_of_a_mode(study, dockerd, tmp_path):
    text = NO_STUDY.format(repeats=1) + SLOW.format(where='"2"', modes=MOST_OF_ONE)
    process = study.start(text.replace("epochs = 1", "epochs = 100000"))
    wait_for(lambda: len(dockerd.client.containers.list()) == 2, "two containers", 300)
    first = str(min(os.sched_getaffinity(0)))
    for box in dockerd.client.containers.list():
        config = box.attrs["HostConfig"]
        assert (config["NanoCpus"], config["CpusetCpus"]) == (450_000_000, first)
    process.terminate()
    assert process.wait(120) == 130
    assert not NOTE.exists()
    assert_nothing_is_left(tmp_path, dockerd)


def test_the_next_study_removes_the_power_mode_of_a_killed_study(study, dockerd, tmp_path):
    text = NO_STUDY.format(repeats=1) + SLOW.format(where='"host"', modes=MOST_OF_ONE)
    process = study.start(text.replace("epochs = 1", "epochs = 100000"))
    cgroup = Path(f"traintrace-{process.pid}")
    wait_for(lambda: any(members(cgroup)), "the job to join its cgroups", 300)
    process.kill()
    process.wait()
    assert NOTE.exists() and any(members(cgroup))
    shutil.rmtree(tmp_path / "s/runs")
    (tmp_path / "s/study.json").unlink()
    lacking = NO_STUDY.format(repeats=1) + SLOW.format(where='"host"', modes="{gpu_mhz = 1}")
    assert json.loads(study(lacking).out)["failed"] == 1
    assert not NOTE.exists() and not list(Path("/sys/fs/cgroup").glob(f"**/{cgroup}"))
    assert_nothing_is_left(tmp_path, dockerd)


def members(cgroup):
    """Yields the processes in the cgroups of this name."""
    for path in Path("/sys/fs/cgroup").glob(f"**/{cgroup}/cgroup.procs"):
        with contextlib.suppress(FileNotFoundError):
            yield from path.read_text().split()
