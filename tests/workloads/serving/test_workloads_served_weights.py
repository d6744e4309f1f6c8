"""A trained checkpoint that is served: its bytes, and what it answers."""

import hashlib
import os
import shutil

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed")

from tracer.workloads.errors import JobError  # noqa: E402 (they need torch)
from tracer.workloads.options import JobOptions  # noqa: E402
from tracer.workloads.prepare import prepare  # noqa: E402

pytestmark = pytest.mark.slow

SAMPLES = ("--samples", "160")
LOAD = ("--mode", "serve", "--rate", "100", "--timeout", "60", *SAMPLES)


def test_a_server_answers_as_the_training_did(trained, tracer, tmp_path):
    pairs = list(zip(trained.labels, trained.predictions, strict=True))
    wrong = sum(label != prediction for label, prediction in pairs)
    assert 0 < wrong < len(pairs) / 2  # fresh weights guess nine of ten wrong
    where = ("--data", trained.data, "--requests", len(pairs), "-o", tmp_path / "served")
    weights = ("--checkpoint", trained.checkpoint)
    told = tracer("workload", "run", "lenet", *LOAD, *where, *weights).json
    (job,) = told["jobs"]
    assert (job["client"]["answered"], job["client"]["wrong"]) == (len(pairs), wrong)
    data = trained.checkpoint.read_bytes()
    assert told["weights"] == {
        "bytes": len(data), "sha256": hashlib.sha256(data).hexdigest(), "epoch": 5, "step": 60,
    }  # fmt: skip


def test_inference_with_a_checkpoint_predicts_what_the_training_predicted(
    trained, tracer, tmp_path
):
    where = ("--data", trained.data, "-o", tmp_path)
    how = ("--mode", "infer", "--workers", "0", "--checkpoint", trained.checkpoint)
    tracer("workload", "run", "lenet", *how, *SAMPLES, *where)
    files = [place / "predictions.csv" for place in (trained.checkpoint.parent, tmp_path)]
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


def test_a_checkpoint_with_code_is_refused_and_the_code_does_not_run(command, tmp_path):
    torch.save({"name": "lenet", "model": Evil(tmp_path / "ran")}, tmp_path / "code.pt")
    copied = ("--trained", tmp_path / "code.pt", "--checkpoint", tmp_path / "copy.pt")
    ran = command("prepare", "lenet", "--samples", 16, "--output", tmp_path / "out", *copied)
    assert ran.status != 0
    assert "contains more than tensors" in ran.err and "code.pt" in ran.err
    assert ran.err.count("\n") == 1
    assert not (tmp_path / "ran").exists()


class Evil:
    """An object whose loading would make a file."""

    def __init__(self, file):
        self.file = file

    def __reduce__(self):
        return exec, (f"from pathlib import Path; Path({str(self.file)!r}).touch()",)


def test_a_checkpoint_is_not_for_a_training_and_is_never_overwritten(trained, tracer, tmp_path):
    file = tmp_path / "checkpoint.pt"
    shutil.copy(trained.checkpoint, file)
    before = file.read_bytes()
    ran = tracer("workload", "run", "lenet", "--checkpoint", file, status=2)
    assert "give --mode serve or --mode infer" in ran.err
    (tmp_path / "weights.pt").symlink_to("checkpoint.pt")
    where = ("--data", trained.data, "--requests", "1", "-o", tmp_path)
    ran = tracer("workload", "run", "lenet", *LOAD, *where, "--checkpoint", file, status=None)
    assert ran.status != 0 and "name another --output" in ran.err
    assert file.read_bytes() == before
