"""Workloads in containers of podman: as by Docker, without a daemon."""

import contextlib
import json
import signal
import tempfile
from pathlib import Path

import psutil
import pytest

from tests.docker.conftest import wait_for
from tests.docker.test_engines import engine_of
from tests.support.dockerd import IMAGE
from tests.support.engine import Podman
from tests.support.losses import losses
from tests.support.warm import Tracer
from tracer.store.trace import Trace
from tracer.workloads.containers import contents, image
from tracer.workloads.containers.connection import connected
from tracer.workloads.containers.engines import EngineName
from tracer.workloads.containers.limits import Limits, Speed
from tracer.workloads.containers.run import swept
from tracer.workloads.containers.versions import DEPLOYMENT
from tracer.workloads.errors import JobError
from tracer.workloads.owner import OWNER

pytest.importorskip("torch", reason="PyTorch is not installed")

SMALL = ["--samples", "96", "--batch-size", "8", "--epochs", "1", "--workers", "2"]
BY_PODMAN = ["--engine", "podman", "--image", f"localhost/{IMAGE}:latest"]
MIB = 1 << 20


@pytest.fixture(scope="module")
def store():
    """Runs podman with its own store."""
    yield from engine_of(Podman)


@pytest.fixture
def podman(store, monkeypatch):
    """Returns podman without containers, named by the environment."""
    for name, path in store.environment.items():
        monkeypatch.setenv(name, path)
    yield store
    store.remove_all()


def containers(podman):
    return podman.call("ps", "--all", "--format={{.Names}}").split()


def monitors(podman):
    """Returns the files of the monitors of running containers; podman itself takes 0.1 s to ask."""
    return list(podman.folder.glob("run/overlay-containers/*/userdata/conmon.pid"))


def services():
    """Returns the services of podman that run for workloads."""
    found = []
    for process in psutil.process_iter(["cmdline"]):
        words = process.info["cmdline"] or []
        if words[1:3] == ["system", "service"] and "traintrace-run-" in words[-1]:
            found.append(process.pid)
    return found


def test_the_podman_command_sets_the_limits(podman):
    limits = Limits(
        cpus=0.75, memory_bytes=64 * MIB, seccomp=False, shm_bytes=32 * MIB, device="/dev/null",
        speed=Speed(1 * MIB, 2 * MIB, 300, 400), cpuset="0", swap_bytes=100 * MIB,
    )  # fmt: skip
    made = podman.call("create", *limits.arguments(), IMAGE, "true")
    found = json.loads(podman.call("inspect", made))[0]["HostConfig"]
    wanted = {
        "NanoCpus": 750_000_000,
        "Memory": 64 * MIB,
        "MemorySwap": 164 * MIB,
        "ShmSize": 32 * MIB,
        "CpusetCpus": "0",
        "SecurityOpt": ["seccomp=unconfined"],
    }
    assert {name: found[name] for name in wanted} == wanted
    rates = {"ReadBps": 1 * MIB, "WriteBps": 2 * MIB, "ReadIOps": 300, "WriteIOps": 400}
    assert {kind: found[f"BlkioDevice{kind}"][0]["Rate"] for kind in rates} == rates


def test_an_image_is_made_from_the_hosts_python(podman, monkeypatch):
    few = ("waitress",)  # a small image: PyTorch alone takes most of the time
    monkeypatch.setattr(contents, "PACKAGES", few)
    with connected(EngineName.PODMAN) as client:
        name = image.ensure(client, DEPLOYMENT)
        assert image.ensure(client, DEPLOYMENT) == name
        there = image.versions_in(client, name)
    here = image.versions(DEPLOYMENT)
    assert (there["python"], there["source"]) == (here["python"], here["source"])
    assert there["packages"]["waitress"] == here["packages"]["waitress"]
    assert there["packages"]["torch"] is None
    assert name in podman.call("images", "--format={{.Repository}}:{{.Tag}}").split()
    assert containers(podman) == []


def test_a_container_trains_and_is_recorded(podman, tracer, tmp_path):
    options = (*SMALL, *BY_PODMAN, "--containers", "1", "--record", "x.trace", "-o", "out")
    ran = json.loads(tracer("workload", "run", "lenet", *options).out)
    assert ran["where"] == "container"
    assert [job["steps"] for job in ran["jobs"]] == [12]
    assert containers(podman) == []
    assert services() == []
    with Trace(tmp_path / "x.trace") as trace:
        assert {t["kind"] for t in trace.manifest["targets"]} == {"container"}
        assert {c["engine"] for c in trace.manifest["containers"]} == {"podman"}
        found = trace.rows(
            "SELECT target, count(*) FROM phases JOIN (SELECT DISTINCT pid, target FROM processes"
            " WHERE target LIKE 'traintrace-lenet-%') USING (pid) WHERE name = 'backward'"
            " GROUP BY 1"
        )
        assert [count for _, count in found] == [12]
        assert losses(trace) == []


def test_ctrl_c_and_a_kill_leave_nothing(podman, tmp_path):
    long = ["--samples", "96", "--epochs", "100000", *BY_PODMAN, "--containers", "1"]
    with running(tmp_path, *long) as process:
        wait_for(lambda: monitors(podman), "the container", 200)
        process.send_signal(signal.SIGINT)
        assert process.wait(60) == 130
    assert (containers(podman), services()) == ([], [])
    foreign = podman.run("foreign", "import time; time.sleep(600)", shared=tmp_path)
    again = tmp_path / "again"
    again.mkdir()
    with running(again, *long) as process:
        # The folder is made once the container that tells the versions is gone.
        wait_for((again / "out/container-0").exists, "the job", 200)
        wait_for(lambda: len(monitors(podman)) == 2, "the container", 200)
        assert len(owned(podman)) == 1
        wait_for(lambda: services(), "the service")
        process.kill()
        process.wait()
    wait_for(lambda: services() == [], "the end of the service")
    assert len(containers(podman)) == 2
    folders = list(Path(tempfile.gettempdir()).glob(f"traintrace-run-{process.pid}-*"))
    assert folders != []
    with connected(EngineName.PODMAN) as client, swept(client):
        pass
    assert podman.call("ps", "--quiet", "--no-trunc").split() == [foreign]
    assert [folder for folder in folders if folder.exists()] == []


def owned(podman):
    """Returns the containers of jobs: `OWNER` labels that of the image's versions, too."""
    label = f"--filter=label={OWNER}"
    return podman.call("ps", "--all", label, "--filter=name=lenet", "--format={{.Names}}").split()


def test_the_errors_without_podman_say_how_to_mend_it(podman, tracer, tmp_path, monkeypatch):
    ran = tracer("workload", "run", "lenet", "--engine", "podman", status=2)
    assert "images, limits and engines are only for containers" in ran.err
    with monkeypatch.context() as broken:
        broken.setenv("CONTAINERS_STORAGE_CONF", str(tmp_path / "none"))
        assert "podman does not run (" in refusal()
        broken.setenv("PATH", str(tmp_path))
        assert "podman is not installed; apt-get install podman" in refusal()


def refusal():
    with pytest.raises(JobError) as raised, connected(EngineName.PODMAN):
        pass
    return str(raised.value)


@contextlib.contextmanager
def running(folder, *options):
    with Tracer("workload", "run", "lenet", "-o", folder / "out", *options, cwd=folder) as process:
        yield process
        process.kill()
