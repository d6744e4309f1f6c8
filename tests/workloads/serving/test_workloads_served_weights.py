"""A trained checkpoint that is served: its bytes, and what it answers."""

import csv
import hashlib
import json
import os

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed")

from tracer.workloads.errors import JobError  # noqa: E402 (they need torch)
from tracer.workloads.options import JobOptions  # noqa: E402
from tracer.workloads.prepare import prepare  # noqa: E402

pytestmark = pytest.mark.slow

SAMPLES = ("--samples", "400")
LOAD = ("--mode", "serve", "--rate", "100", "--timeout", "60", *SAMPLES)


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """Trains a LeNet; returns its output folder, its result, and its predictions."""
    from tests.support.warm import Tracer

    folder = tmp_path_factory.mktemp("trained")
    command = ("workload", "run", "lenet", "--epochs", "3", "--workers", "0", *SAMPLES)
    with Tracer(*command, "-o", folder / "lenet", cwd=folder) as process:
        out, _ = process.communicate(None, timeout=300)
    with (folder / "lenet/predictions.csv").open() as file:
        rows = list(csv.DictReader(file))
    return folder / "lenet", json.loads(out), rows


def test_a_server_answers_as_the_training_did(trained, tracer):
    folder, result, rows = trained
    wrong = sum(row["label"] != row["prediction"] for row in rows)
    assert 0 < wrong < len(rows) / 2  # fresh weights guess nine of ten wrong
    requests = ("--requests", str(len(rows)), "-o", folder.with_name("served"))
    file = folder / "checkpoint.pt"
    told = tracer("workload", "run", "lenet", *LOAD, *requests, "--checkpoint", file).json
    (job,) = told["jobs"]
    assert (job["client"]["answered"], job["client"]["wrong"]) == (len(rows), wrong)
    data = file.read_bytes()
    assert told["weights"] == {
        "bytes": len(data), "sha256": hashlib.sha256(data).hexdigest(),
        "epoch": 2, "step": result["jobs"][0]["steps"],
    }  # fmt: skip
    fresh = tracer("workload", "run", "lenet", *LOAD, *requests).json
    assert fresh["weights"] is None
    assert fresh["jobs"][0]["client"]["wrong"] > wrong


def test_inference_with_a_checkpoint_predicts_what_the_training_predicted(trained, tracer):
    folder, _, _ = trained
    output = folder.with_name("inferred")
    how = ("--mode", "infer", "--workers", "0", "--checkpoint", folder / "checkpoint.pt")
    tracer("workload", "run", "lenet", *how, *SAMPLES, "-o", output)
    files = [place / "predictions.csv" for place in (folder, output)]
    assert files[0].read_bytes() == files[1].read_bytes()


@pytest.mark.parametrize(
    ("file", "complaint"),
    [
        ("missing.pt", "cannot read the checkpoint"),
        ("fifo", "is not a file"),
        ("text.pt", "is not a complete file of torch.save"),
        ("squeezenet.pt", "holds a 'squeezenet', not a 'lenet'"),
    ],
)
def test_a_file_that_is_no_checkpoint_of_the_model_is_refused(tmp_path, file, complaint):
    os.mkfifo(tmp_path / "fifo")
    (tmp_path / "text.pt").write_text("weights")
    other = {"name": "squeezenet", "model": {}, "epoch": 0, "step": 1}
    torch.save(other, tmp_path / "squeezenet.pt")
    options = JobOptions(model="lenet", output=tmp_path / "out", samples=16)
    with pytest.raises(JobError, match=complaint) as refused:
        prepare(options, tmp_path / "copy.pt", tmp_path / file)
    assert file in str(refused.value) and str(refused.value).count("\n") == 0


def test_a_checkpoint_with_code_is_refused_and_the_code_does_not_run(tracer, tmp_path):
    torch.save({"name": "lenet", "model": Evil()}, tmp_path / "code.pt")
    job = ("workload", "run", "lenet", *LOAD, "--requests", "1", "-o", tmp_path / "out")
    ran = tracer(*job, "--checkpoint", tmp_path / "code.pt", status=None)
    assert ran.status != 0
    assert "contains more than tensors" in ran.err and "code.pt" in ran.err
    assert ran.err.count("\n") == 1
    assert not (tmp_path / "ran").exists()


class Evil:
    """An object whose loading would run code."""

    def __reduce__(self):
        return exec, ("from pathlib import Path; Path('ran').touch()",)


def test_a_checkpoint_is_not_for_a_training_and_is_never_overwritten(trained, tracer):
    folder, _, _ = trained
    before = (folder / "checkpoint.pt").read_bytes()
    file = folder / "checkpoint.pt"
    ran = tracer("workload", "run", "lenet", "--checkpoint", file, status=2)
    assert "give --mode serve or --mode infer" in ran.err
    (folder / "weights.pt").symlink_to("checkpoint.pt")
    try:
        served = ("workload", "run", "lenet", *LOAD, "--requests", "1", "-o", folder)
        ran = tracer(*served, "--checkpoint", file, status=None)
        assert ran.status != 0 and "name another --output" in ran.err
    finally:
        (folder / "weights.pt").unlink()
    assert file.read_bytes() == before
