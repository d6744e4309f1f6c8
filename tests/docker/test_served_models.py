"""Models served from containers of the deployment image by `tracer workload run`."""

import json

import pytest

pytest.importorskip("torch", reason="PyTorch is not installed")

LOAD = ["--samples", "96", "--rate", "50", "--requests", "23", "--timeout", "60"]


@pytest.fixture
def run(dockerd, tracer, tmp_path):
    """Runs `tracer workload run lenet --mode serve OPTIONS`."""

    def workload(*options, status=0):
        where = ("--mode", "serve", "-o", tmp_path / "out")
        return tracer("workload", "run", "lenet", *where, *options, status=status)

    return workload


def test_the_deployment_image_cannot_train(run, dockerd):
    from tracer.workloads.containers import image
    from tracer.workloads.containers.versions import DEPLOYMENT, TRAINING

    small = image.ensure(dockerd.client, DEPLOYMENT)
    large = image.ensure(dockerd.client, TRAINING)
    sizes = [dockerd.client.images.get(name).attrs["Size"] for name in (small, large)]
    assert sizes[0] < sizes[1]
    layers = [dockerd.client.images.get(name).attrs["RootFS"]["Layers"] for name in (small, large)]
    assert layers[0][0] == layers[1][0]  # one base, stored once
    command = [
        *image.python_command(dockerd.client, small),
        "-m",
        "tracer.workloads",
        "train",
        "lenet",
    ]
    box = dockerd.client.containers.run(small, command, entrypoint="", detach=True)
    try:
        assert box.wait()["StatusCode"] == 2
        assert box.logs() == b"error: this image can only serve; use the training image\n"
    finally:
        box.remove()


SERVE = """
import http.client, json, os, signal, socket, sys, threading, time, traceback
from pathlib import Path
from tracer.workloads.options import ServeOptions
from tracer.workloads.serving.server import serve

def ask(place, *what):
    connection = http.client.HTTPConnection("served")
    connection.sock = socket.socket(socket.AF_UNIX)
    while connection.sock.connect_ex(place): time.sleep(0.01)
    connection.request(*what)
    return json.loads(connection.getresponse().read())

def zeros(dimensions):
    return [zeros(dimensions[1:]) for _ in range(dimensions[0])] if dimensions else 0

def client(place, answers):
    try:
        sample = zeros(ask(place, "GET", "/health")["sample"]["dimensions"])
        answers += ask(place, "POST", "/predict", json.dumps({"samples": [sample]}))["predictions"]
    except BaseException:
        traceback.print_exc()
        os._exit(1)
    os.kill(os.getpid(), signal.SIGTERM)

for model in sys.argv[1:]:
    place, answers = f"/tmp/{model}", []
    asking = threading.Thread(target=client, args=(place, answers))
    asking.start()
    found = serve(ServeOptions(model=model, checkpoint=Path("/models", model), socket=Path(place)))
    asking.join()
    print(json.dumps([model, found["answered"], len(answers)]))
"""
"""Program that serves one model after the other, and asks each for a prediction."""


def test_the_deployment_image_serves_the_papers_models(dockerd, tmp_path):
    from tracer.workloads.containers import image
    from tracer.workloads.containers.versions import DEPLOYMENT
    from tracer.workloads.options import JobOptions
    from tracer.workloads.prepare import prepare

    names = ["mobilebert", "squeezenet", "lstm"]
    for name in names:
        prepare(JobOptions(model=name, output=tmp_path, samples=16), tmp_path / name)
    small = image.ensure(dockerd.client, DEPLOYMENT)
    box = dockerd.client.containers.run(
        small,
        [*image.python_command(dockerd.client, small), "-c", SERVE, *names],
        entrypoint="",
        network_mode="none",
        volumes={str(tmp_path): {"bind": "/models", "mode": "ro"}},
        detach=True,
    )
    try:
        assert box.wait(timeout=120)["StatusCode"] == 0, box.logs()
        said = [json.loads(line) for line in box.logs(stderr=False).splitlines()]
        assert said == [[name, 1, 1] for name in names]
    finally:
        box.remove(force=True)


def test_a_server_that_does_not_begin_says_why(run, dockerd):
    ran = run(*LOAD, "--containers", "1", "--handlers", "0", status=2)
    assert "Invalid value for '--handlers'" in ran.err
    assert ran.err.count("\n") == 1
    assert dockerd.client.containers.list(all=True, ignore_removed=True) == []
