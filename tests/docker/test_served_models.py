"""Models served from containers of the deployment image, as `tracer workload run` has it."""

import json

import pytest

from tracer.store.trace import Trace

pytest.importorskip("torch", reason="PyTorch is not installed")

LOAD = ["--samples", "96", "--rate", "50", "--requests", "23", "--timeout", "60"]


@pytest.fixture
def run(dockerd, tracer, tmp_path):
    """Run `tracer workload run lenet --mode serve OPTIONS`."""

    def workload(*options, status=0):
        where = ("--mode", "serve", "-o", tmp_path / "out")
        return tracer("workload", "run", "lenet", *where, *options, status=status)

    return workload


def test_two_servers_are_driven_each_and_only_they_are_recorded(run, dockerd, tmp_path):
    ran = json.loads(run(*LOAD, "--containers", "2", "--record", "x.trace").out)
    assert ran["where"] == "2 containers"
    assert [job["server"]["answered"] for job in ran["jobs"]] == [23, 23]
    assert [job["client"]["answered"] for job in ran["jobs"]] == [23, 23]
    assert dockerd.client.containers.list(all=True) == []
    with Trace(tmp_path / "x.trace") as trace:
        marked = (
            "SELECT target, count(*) FROM phases JOIN (SELECT DISTINCT pid, target FROM processes"
            " WHERE target LIKE 'traintrace-lenet-%') USING (pid) WHERE name = 'eval' GROUP BY 1"
        )
        assert sorted(n for _, n in trace.connection.execute(marked).fetchall()) == [23, 23]
        processes = (
            "SELECT target, count(DISTINCT pid) FROM processes"
            " WHERE target LIKE 'traintrace-lenet-%' AND role = 'target' GROUP BY 1"
        )
        assert [n for _, n in trace.connection.execute(processes).fetchall()] == [1, 1]


def test_the_deployment_image_is_without_training(run, dockerd):
    from workloads.containers import image
    from workloads.containers.versions import DEPLOYMENT, TRAINING

    small = image.ensure(dockerd.client, DEPLOYMENT)
    large = image.ensure(dockerd.client, TRAINING)
    sizes = [dockerd.client.images.get(name).attrs["Size"] for name in (small, large)]
    assert sizes[0] < sizes[1]
    layers = [dockerd.client.images.get(name).attrs["RootFS"]["Layers"] for name in (small, large)]
    assert layers[0][0] == layers[1][0]  # one base, stored once
    command = [*image.python_command(dockerd.client, small), "-m", "workloads", "train", "lenet"]
    box = dockerd.client.containers.run(small, command, entrypoint="", detach=True)
    try:
        assert box.wait()["StatusCode"] == 2
        assert box.logs() == b"error: this image only serves; take that for training\n"
    finally:
        box.remove()


@pytest.mark.parametrize("model", ["mobilebert", "squeezenet", "lstm"])
def test_what_the_papers_deploy_is_served_from_it(dockerd, tracer, tmp_path, model):
    ran = tracer(
        *("workload", "run", model, "--mode", "serve", "-o", tmp_path / "out", "--containers", "1"),
        *("--samples", "16", "--rate", "5", "--requests", "3", "--timeout", "120"),
    )
    (job,) = json.loads(ran.out)["jobs"]
    assert (job["server"]["answered"], job["client"]["answered"]) == (3, 3)


def test_a_server_that_does_not_begin_says_why(run, dockerd):
    ran = run(*LOAD, "--containers", "1", "--handlers", "0", status=2)
    assert "Invalid value for '--handlers'" in ran.err
    assert ran.err.count("\n") == 1
    assert dockerd.client.containers.list(all=True) == []
