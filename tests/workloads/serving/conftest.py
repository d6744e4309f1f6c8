"""Fixtures of the tests of serving: a trained model, and servers of it as processes."""

from __future__ import annotations

import csv
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch

from tests.support.serving import Server, Trained
from tracer.workloads.data.mnist import open_sets
from tracer.workloads.data.sets import DataRequest
from tracer.workloads.options import TrainOptions
from tracer.workloads.train import train

ROOT = Path(__file__).parents[3]
SAMPLES = 160
"""Number of training samples; a quarter of it, 40, is the number of test samples."""


@pytest.fixture(scope="session")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Trained:
    """Trains a LeNet, but not to full accuracy."""
    folder = tmp_path_factory.mktemp("trained")
    data = folder / "data"
    threads = torch.get_num_threads()
    # Several threads wait long for each other on a busy machine.
    how = {"samples": SAMPLES, "workers": 0, "steps": 60, "threads": 1}
    train(TrainOptions(model="lenet", output=folder, data=data, **how))
    torch.set_num_threads(threads)
    with (folder / "predictions.csv").open() as file:
        rows = list(csv.DictReader(file))
    return Trained(
        folder / "checkpoint.pt",
        data,
        open_sets(DataRequest(data, folder, 0, SAMPLES)).test,
        [int(row["label"]) for row in rows],
        [int(row["prediction"]) for row in rows],
    )


@pytest.fixture(scope="session")
def serve(trained: Trained) -> Iterator[Callable[..., Server]]:
    """Starts servers of the trained LeNet, each on a free port, and waits until they listen."""
    started: list[subprocess.Popen[str]] = []

    def start(*arguments: object, **environment: str) -> Server:
        process = subprocess.Popen(
            [
                *(sys.executable, "-m", "tracer.workloads", "serve", "lenet", "--device", "cpu"),
                *("--port", "0", "--threads", "1", "--checkpoint", str(trained.checkpoint)),
                *map(str, arguments),
            ],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
            env=os.environ | {"PYTHONPATH": str(ROOT)} | environment,
        )
        started.append(process)
        line = process.stderr.readline()
        assert line.startswith("Serving lenet at http://127.0.0.1:"), line
        return Server(process, line.split()[-1])

    yield start
    for process in started:
        process.kill()
        process.communicate()


@pytest.fixture(scope="session")
def server(serve: Callable[..., Server]) -> Iterator[Server]:
    """One server for all tests; whatever they sent it, it ends in order and has said nothing."""
    server = serve()
    yield server
    status, _, err = server.end()
    assert (status, err) == (0, "")
