"""Workloads in containers that `tracer workload run` makes from the host's Python."""

import contextlib
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pytest

from tests.docker.conftest import wait_for
from tests.support.dockerd import IMAGE, from_host
from tests.support.front import in_front_of
from tests.support.warm import Tracer
from tracer.store.trace import Trace
from tracer.workloads.containers.connection import connected
from tracer.workloads.containers.engines import EngineName
from tracer.workloads.containers.limits import Limits, Speed
from tracer.workloads.containers.run import ContainerJob, Containers, remove_leftovers
from tracer.workloads.errors import BrokenJobError
from tracer.workloads.owner import OWNER, myself

pytest.importorskip("torch", reason="PyTorch is not installed")

SMALL = ["--samples", "96", "--batch-size", "8", "--epochs", "1", "--workers", "0"]
LONG = ["--samples", "96", "--epochs", "100000", "--workers", "0"]


@pytest.fixture
def run(dockerd, tracer, tmp_path):
    """Runs `tracer workload run lenet OPTIONS`; returns its output, a JSON object, and errors."""

    def workload(*options, status=0):
        options = ("-o", tmp_path / "out", *options)
        return tracer("workload", "run", "lenet", *options, status=status)

    return workload


def containers(dockerd):
    return dockerd.client.containers.list(all=True, ignore_removed=True)


def test_the_docker_command_sets_the_limits_that_the_sdk_sets(dockerd):
    speed = Speed(1 << 20, 2 << 20, 300, 400)
    limits = Limits(
        cpus=0.75, memory_bytes=64 << 20, seccomp=False, shm_bytes=32 << 20, device="/dev/vdx",
        speed=speed, cpuset="0", swap_bytes=100 << 20,
    )  # fmt: skip
    by_sdk = dockerd.client.containers.create(IMAGE, ["true"], **limits.options())
    try:
        command = ["docker", "--host", dockerd.host, "create", *limits.arguments(), IMAGE, "true"]
        made = subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()
        by_command = dockerd.client.containers.get(made)
        try:
            limited = [
                "NanoCpus", "Memory", "MemorySwap", "ShmSize", "CpusetCpus", "SecurityOpt",
                "BlkioDeviceReadBps", "BlkioDeviceWriteBps", "BlkioDeviceReadIOps",
                "BlkioDeviceWriteIOps",
            ]  # fmt: skip
            one, other = (
                {name: box.attrs["HostConfig"][name] for name in limited}
                for box in (by_sdk, by_command)
            )
            assert one == other
            assert one["MemorySwap"] - one["Memory"] == limits.swap_bytes
        finally:
            by_command.remove()
    finally:
        by_sdk.remove()


def test_without_the_docker_command_two_containers_train_and_are_recorded(
    tracer, dockerd, tmp_path
):
    environment = {**os.environ, "PATH": str(tmp_path)}
    options = ("--containers", "2", "--record", "x.trace", "-o", tmp_path / "out")
    ran = json.loads(tracer("workload", "run", "lenet", *SMALL, *options, env=environment).out)
    assert ran["where"] == "2 containers"
    one, other = ran["jobs"]
    assert one["steps"] == other["steps"] == 12
    assert (one["first_loss"], one["last_loss"]) == (other["first_loss"], other["last_loss"])
    assert containers(dockerd) == []
    for number in range(2):
        assert (tmp_path / f"out/container-{number}/checkpoint.pt").stat().st_size > 0
    with Trace(tmp_path / "x.trace") as trace:
        kinds = [target["kind"] for target in trace.manifest["targets"]]
        assert kinds == ["container", "container", "daemon"]
        query = (
            "SELECT target, count(*) FROM phases JOIN (SELECT DISTINCT pid, target FROM processes"
            " WHERE target LIKE 'traintrace-lenet-%') USING (pid) WHERE name = 'backward'"
            " GROUP BY 1"
        )
        assert sorted(n for _, n in trace.connection.execute(query).fetchall()) == [12, 12]
        query = "SELECT count(*) FROM phases WHERE name = 'backward' AND pid IS NOT NULL"
        assert trace.connection.execute(query).fetchone() == (24,)


def test_a_job_over_its_memory_limit_fails_with_that_reason(run, dockerd):
    # The job needs anonymous memory: file pages that do not fit would be read again instead.
    options = ("--samples", "10000", "--batch-size", "10000", "--epochs", "1", "--workers", "0")
    ran = run(*options, "--containers", "1", "--memory", "400m", status=2)
    assert "the memory limit was reached" in ran.err
    assert ran.err.count("\n") == 1
    assert json.loads(ran.out)["jobs"] == [None]
    assert containers(dockerd) == []


def test_an_error_of_the_job_is_reported(run):
    ran = run(*SMALL, "--containers", "1", "--lr", "-3", status=2)
    assert "give a finite number above 0" in ran.err
    assert "Traceback" not in ran.err


def test_the_container_has_the_limits(dockerd, run, tmp_path):
    options = ["--containers", "1", "--cpus", "0.5", "--memory", "1g", "--no-seccomp"]
    with running(tmp_path, *LONG, *options) as process:
        (box,) = wait_for_containers(dockerd, process)
        config = box.attrs["HostConfig"]
        assert config["NanoCpus"] == 500_000_000
        assert config["Memory"] == config["MemorySwap"] == 1 << 30
        assert config["SecurityOpt"] == ["seccomp=unconfined"]
        assert config["NetworkMode"] == "none"
        process.send_signal(signal.SIGINT)
        assert process.wait(60) == 130
    assert containers(dockerd) == []


def test_a_container_removed_from_outside_fails_the_run(dockerd, tmp_path):
    with running(tmp_path, *LONG, "--containers", "2") as process:
        one, _ = wait_for_containers(dockerd, process, 2)
        wait_for(lambda: list(tmp_path.glob("out/container-*/train.log")), "a step", 300)
        one.remove(force=True)
        out, _ = process.communicate(timeout=120)
    assert process.returncode == 2
    removed, killed = sorted(json.loads(out)["failures"], key=lambda why: one.name not in why)
    assert "removed from outside" in removed
    assert "another container of the run failed" in killed
    assert containers(dockerd) == []


# The first container that is made tells the versions in the image, the second one runs the job.
@pytest.mark.parametrize(
    ("asks", "number"),
    [
        *((f"POST .*/{what}", number) for what in ("create", "start") for number in (1, 2)),
        (r"GET .*/traintrace-lenet-\d+-0/json", 1),
    ],
)
def test_ctrl_c_during_the_start_leaves_no_container(dockerd, tmp_path, monkeypatch, asks, number):
    asked = []

    def interrupt(head):
        if re.match(asks + "[? ]", head):
            asked.append(head)
            if len(asked) == number:
                process.send_signal(signal.SIGINT)
                time.sleep(0.3)  # the signal arrives before the daemon's answer

    with in_front_of(dockerd.host, tmp_path / "front", interrupt) as host:
        monkeypatch.setenv("DOCKER_HOST", host)
        with running(tmp_path, "--samples", "96", "--containers", "1") as process:
            assert process.wait(200) == 130
    assert len(asked) >= number
    assert containers(dockerd) == []


def test_the_next_run_removes_what_a_killed_run_left_and_infers(dockerd, run, tmp_path):
    from tracer.workloads.infer import infer
    from tracer.workloads.options import InferOptions, JobOptions
    from tracer.workloads.prepare import prepare

    foreign = dockerd.run("foreign", "import time; time.sleep(600)", shared=tmp_path)
    with running(tmp_path, *LONG, "--containers", "2") as process:
        wait_for_containers(dockerd, process, 2)
        process.kill()
        process.wait()
    assert len(containers(dockerd)) == 3
    left = f"traintrace-run-{process.pid}-*"
    assert len(list(Path(tempfile.gettempdir()).glob(left))) == 1
    box = json.loads(run(*SMALL[:4], "--mode", "infer", "--containers", "1").out)
    assert [box.id for box in containers(dockerd)] == [foreign.id]
    assert list(Path(tempfile.gettempdir()).glob(left)) == []
    here = {"model": "lenet", "output": tmp_path / "here", "samples": 96}
    prepare(JobOptions(**here), tmp_path / "weights.pt")
    weights = {"checkpoint": tmp_path / "weights.pt", "batch_size": 8, "workers": 0}
    host = infer(InferOptions(**here, **weights))
    assert box["where"] == "container"
    # Both runs begin with the same fresh weights.
    assert box["jobs"][0]["accuracy"] == host["accuracy"]
    assert box["jobs"][0]["samples"] == host["samples"] == 24


def test_only_containers_whose_owner_is_known_to_have_ended_are_removed(dockerd, tmp_path):
    pid, start, boot, namespace, user = myself().split("-")
    another = f"{int(start) - 1}-{'0' * 8}-{namespace}-{user}"
    labels = {
        "ended": f"{pid}-{int(start) - 1}-{boot}-{namespace}-{user}",
        "runs": myself(),
        "runs-on-another-machine": f"{pid}-{another}",
        "of-an-earlier-boot": f"{pid}-{another}",
        "of-another-namespace": f"{pid}-{int(start) - 1}-{boot}-{int(namespace) + 1}-{user}",
        "of-nobody": "x",
    }
    for name, label in labels.items():
        source = "" if name == "of-an-earlier-boot" else "import time; time.sleep(600)"
        box = dockerd.run(name, source, shared=tmp_path, labels={OWNER: label})
        if not source:
            box.wait()
    with connected(EngineName.DOCKER) as client:
        assert sorted(remove_leftovers(client)) == ["ended", "of-an-earlier-boot"]
    left = labels.keys() - {"ended", "of-an-earlier-boot"}
    assert {box.name for box in containers(dockerd)} == left
    assert all(box.status == "running" for box in containers(dockerd))


def test_an_unsuitable_image_is_refused(run, dockerd):
    ran = run(*SMALL, "--containers", "1", "--image", IMAGE, status=2)
    assert "does not run our jobs" in ran.err
    assert ran.err.count("\n") == 1


def test_a_missing_image_is_refused_before_data_is_made(run, tmp_path):
    ran = run(*SMALL, "--containers", "1", "--image", "no/such:image", status=2)
    assert "there is no image no/such:image" in ran.err
    assert ran.err.count("\n") == 1
    assert list(tmp_path.iterdir()) == []


def test_a_container_removed_before_its_job_begins_is_named(dockerd, tmp_path):
    folders = {Path(folder): folder for folder in from_host()}
    job = ContainerJob("removed-early", ["versions"], folders)
    made = dockerd.client.containers.create(IMAGE, ["true"])
    label = f"LABEL traintrace.python={sys._base_executable}"
    image = made.commit("tracer-tests/labelled", changes=[label]).id
    made.remove()
    with (
        connected(EngineName.DOCKER) as client,
        Containers(client, image, [job], Limits(), tmp_path) as started,
    ):
        client.containers.get(job.name).remove(force=True)
        with pytest.raises(BrokenJobError, match="removed-early was removed before its job began"):
            started.go()


def test_the_error_without_a_daemon_says_how_to_start_one(tracer, tmp_path, monkeypatch):
    monkeypatch.setenv("DOCKER_HOST", f"unix://{tmp_path}/none")
    ran = tracer("workload", "run", "lenet", *SMALL, "--containers", "1", status=5)
    assert "systemctl start docker" in ran.err
    assert ran.err.count("\n") == 1
    assert list(tmp_path.iterdir()) == []  # no data was made


@contextlib.contextmanager
def running(folder, *options):
    with Tracer("workload", "run", "lenet", "-o", folder / "out", *options, cwd=folder) as process:
        yield process
        process.kill()


def wait_for_containers(dockerd, process, count=1):
    """Waits for the run's containers and returns them."""
    found = []

    def there():
        assert process.poll() is None
        found[:] = dockerd.client.containers.list(
            ignore_removed=True, filters={"label": OWNER, "name": "lenet"}
        )
        return len(found) == count

    wait_for(there, "the containers", 200)
    for box in found:
        box.reload()
    return found
