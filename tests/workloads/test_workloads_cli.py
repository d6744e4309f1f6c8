"""The command line: its answers, and one line and a status for each error."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch

from tracer.workloads.errors import RefusedJobError, kind_of
from tracer.workloads.progress import Progress

pytestmark = pytest.mark.slow

SUMMARY_KEYS = [
    *("model", "steps", "epochs", "ended_by", "checkpoints", "checkpoint_bytes", "batch_size"),
    *("workers", "seed", "samples"),
    *("first_loss", "last_loss", "accuracy", "train_s", "inference_s", "output", "data"),
]


def test_help_and_the_list_need_no_torch():
    code = """
import sys
from tracer.workloads.cli import main
VERBS = ("train", "infer", "serve", "request")
for arguments in (["--help"], ["list"], *([verb, "--help"] for verb in VERBS)):
    sys.argv = ["workloads", *arguments]
    assert main() == 0
assert "torch" not in sys.modules
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "lenet  " in done.stdout
    assert "ours: cells and embedding, batch size, optimizer, learning rate\n" in done.stdout
    assert "[default: runs/<model>-<seed>]" in done.stdout
    assert max(map(len, done.stdout.splitlines())) <= 80


def test_the_error_without_torch_names_the_remedy(command, monkeypatch, tmp_path: Path):
    for name in [name for name in sys.modules if name.startswith("tracer.workloads.")]:
        if name != "tracer.workloads.cli":
            monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "torch", None)
    answer = command("train", "lenet", "--output", tmp_path)
    assert answer.status == 5
    assert answer.err == ("error: PyTorch is not installed; pip install 'traintrace[workloads]'\n")


def test_the_error_without_transformers_names_the_remedy(command, monkeypatch, tmp_path: Path):
    monkeypatch.delitem(sys.modules, "tracer.workloads.models.mobilebert", raising=False)
    monkeypatch.setitem(sys.modules, "transformers", None)
    answer = command("train", "mobilebert", "--output", tmp_path / "a")
    assert answer.status == 5
    assert answer.err == (
        "error: transformers is not installed; pip install 'traintrace[workloads]'\n"
    )
    assert not (tmp_path / "a").exists()


def test_a_training_ends_with_one_json_object(command, tmp_path: Path):
    answer = command(
        *("train", "lenet", "--steps", 3, "--workers", 0, "--samples", 32, "--batch-size", 8),
        *("--seed", 4, "--device", "cpu", "--output", tmp_path / "a", "--data", tmp_path / "d"),
    )
    assert (answer.status, answer.err) == (0, "")
    summary = json.loads(answer.out)
    assert list(summary) == SUMMARY_KEYS
    assert summary["train_s"] > 0
    assert summary["inference_s"] > 0
    given = {"model": "lenet", "steps": 3, "epochs": 1, "batch_size": 8, "workers": 0, "seed": 4}
    assert given.items() <= summary.items()
    assert (summary["samples"], summary["output"]) == (32, str(tmp_path / "a"))
    assert summary["data"] == str(tmp_path / "d")


def test_the_default_folders_lie_under_runs(command, monkeypatch, tmp_path: Path):
    monkeypatch.chdir(tmp_path)
    command("train", "lenet", "--steps", 1, "--workers", 0, "--samples", 16, "--seed", 3)
    answer = command(
        *("infer", "lenet", "--checkpoint", "runs/lenet-3/checkpoint.pt"),
        *("--workers", 0, "--samples", 16, "--seed", 3),
    )
    runs = tmp_path / "runs"
    assert {path.name for path in runs.iterdir()} == {
        "lenet-3",
        "lenet-3-infer",
        "digits-seed3-16",
    }
    assert json.loads(answer.out)["data"] == str(runs / "digits-seed3-16")
    written = [runs / name / "predictions.csv" for name in ("lenet-3", "lenet-3-infer")]
    assert written[0].read_text() == written[1].read_text()


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        ([], "Missing command"),
        (["walk"], "No such command 'walk'"),
        (["train"], "Missing argument 'MODEL'"),
        (["train", "resnet"], "there is no model 'resnet'; choose one of: lenet"),
        (["train", "lenet", "--bogus"], "No such option: --bogus"),
        (["train", "lenet", "--steps", "0"], "Invalid value for '--steps'"),
        (["train", "lenet", "--steps", "many"], "Invalid value for '--steps'"),
        (["train", "lenet", "--epochs", "-1"], "Invalid value for '--epochs'"),
        (["train", "lenet", "--batch-size", "-16"], "Invalid value for '--batch-size'"),
        (["train", "lenet", "--workers", "-4"], "Invalid value for '--workers'"),
        (["train", "lenet", "--workers", "100000"], "Invalid value for '--workers'"),
        (["train", "lenet", "--seed", "-1"], "Invalid value for '--seed'"),
        (["train", "lenet", "--samples", "0"], "Invalid value for '--samples'"),
        (["train", "lenet", "--threads", "0"], "Invalid value for '--threads'"),
        (["train", "lenet", "--lr", "nan"], "Invalid value for '--lr'"),
        (["train", "lenet", "--lr", "-0.1"], "Invalid value for '--lr'"),
        (["train", "lenet", "--device", "tpu"], "Invalid value for '--device'"),
        (["train", "lenet", "--output", "/dev/null/a"], "cannot make the output folder"),
        (["train", "lenet", "--output", "a", "--data", "/dev/null"], "cannot use the data folder"),
        (["train", "lenet", "--output", "a", "--data", "/usr"], "holds other files"),
        (["infer", "lenet"], "Missing option '--checkpoint'"),
        (["infer", "lenet", "--samples", "9", "--checkpoint", "b"], "there is no checkpoint file"),
    ],
)
def test_a_usage_error_is_one_line_with_status_2(
    command, monkeypatch, tmp_path: Path, arguments: list[str], complaint: str
):
    monkeypatch.chdir(tmp_path)
    answer = command(*arguments)
    assert answer.status == 2
    assert answer.out == ""
    assert answer.err.startswith("error: ")
    assert complaint in answer.err
    assert answer.err.count("\n") == 1


def test_missing_cuda_is_reported(command, monkeypatch, tmp_path: Path):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    answer = command("train", "lenet", "--device", "cuda", "--output", tmp_path)
    assert answer.status == 2
    assert answer.err.startswith("error: CUDA is not available to this torch; use --device cpu")


def test_a_damaged_data_set_is_reported(command, tmp_path: Path):
    arguments = ("train", "lenet", "--steps", 1, "--workers", 0, "--samples", 16)
    folders = ("--output", tmp_path / "a", "--data", tmp_path / "d")
    assert command(*arguments, *folders).status == 0
    (tmp_path / "d" / "t10k-images-idx3-ubyte").write_bytes(b"damaged")
    answer = command(*arguments, *folders)
    assert (answer.status, answer.out) == (2, "")
    assert answer.err.startswith(f"error: {tmp_path}/d/t10k-images-idx3-ubyte ends inside its")


@pytest.mark.parametrize("name", ["train.log", "predictions.csv", "checkpoint.pt"])
def test_an_unwritable_file_is_reported(command, tmp_path: Path, name: str):
    (tmp_path / name).symlink_to("/dev/full")
    answer = command(
        *("train", "lenet", "--steps", 1, "--workers", 0, "--samples", 16),
        *("--output", tmp_path, "--data", tmp_path / "d"),
    )
    assert answer.status == 2
    assert answer.err.startswith(f"error: cannot write {tmp_path / name}: ")
    assert answer.err.count("\n") == 1


@pytest.mark.parametrize("verb", ["train", "prepare"])
def test_a_folder_that_nobody_may_make_is_a_matter_of_permission(command, verb: str):
    """Nobody makes folders in sysfs, root neither."""
    answer = command(verb, "lenet", "--output", "/sys/never")
    assert answer.status == 3
    assert answer.err.startswith("error: cannot make the output folder /sys/never: ")
    assert kind_of(answer.status) is RefusedJobError


def test_ctrl_c_ends_the_job_and_its_workers_quietly(start, tmp_path: Path):
    log = tmp_path / "a" / "train.log"
    job = start(
        *("train", "lenet", "--epochs", 10_000, "--workers", 1, "--samples", 64),
        *("--output", tmp_path / "a"),
    )
    deadline = time.monotonic() + 60
    while not (log.exists() and log.stat().st_size) and time.monotonic() < deadline:
        assert job.poll() is None
        time.sleep(0.02)
    children = Path(f"/proc/{job.pid}/task/{job.pid}/children").read_text().split()
    # A terminal sends the signal to the workers, too.
    os.killpg(job.pid, signal.SIGINT)
    out, err = job.communicate(timeout=30)
    assert (job.returncode, out, err) == (130, "", "")
    assert not any(Path(f"/proc/{child}").exists() for child in children)


class Terminal:
    def __init__(self, is_terminal: bool) -> None:
        self.is_terminal = is_terminal
        self.written = ""

    def isatty(self) -> bool:
        return self.is_terminal

    def write(self, text: str) -> None:
        self.written += text

    def flush(self) -> None:
        pass


@pytest.mark.parametrize("is_terminal", [True, False])
def test_only_a_terminal_gets_progress(monkeypatch, is_terminal: bool):
    terminal = Terminal(is_terminal)
    monkeypatch.setattr(sys, "stderr", terminal)
    with Progress("train", 2) as progress:
        progress.show(1, "loss 2.3000")
        progress.show(2, "loss 2.2000")
    assert ("\rtrain 2/2 loss 2.2000" in terminal.written) == is_terminal
    assert terminal.written.endswith("\r\x1b[K" if is_terminal else "")
    assert bool(terminal.written) == is_terminal
