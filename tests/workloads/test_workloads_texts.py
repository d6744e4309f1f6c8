"""Text models: their treatment of padding, training and inference."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from tracer.workloads import models
from tracer.workloads.data.sets import DataSets, SampleSet
from tracer.workloads.data.vocabulary import SIZE
from tracer.workloads.infer import infer
from tracer.workloads.options import InferOptions, TrainOptions
from tracer.workloads.train import train

pytestmark = pytest.mark.slow

MODELS = ("lstm", "mobilebert")


class Nothing(SampleSet):
    def __len__(self) -> int:
        return 0

    def __getitem__(self, index: int) -> tuple[torch.Tensor, int]:
        raise IndexError


@pytest.fixture
def output(tmp_path: Path) -> Iterator[Path]:
    """Yields a folder whose checkpoints are removed at once: one of MobileBERT has 170 MB.

    The test runs in one thread, because several wait long for each other on a busy machine.
    """
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield tmp_path
    torch.set_num_threads(threads)
    for checkpoint in tmp_path.rglob("checkpoint.pt"):
        checkpoint.unlink()


def build(name: str, folder: Path) -> torch.nn.Module:
    torch.manual_seed(0)
    workload = models.load(name)
    return workload.build(DataSets(folder, Nothing(), Nothing(), classes=3, vocabulary=50)).eval()


@pytest.mark.parametrize("name", MODELS)
def test_padding_changes_no_score(name: str, output: Path):
    model = build(name, output)
    short = torch.tensor([[7, 2, 49, 0]])
    # MobileBERT reads tokens in threes, so both texts need the zero after the last token.
    long = torch.nn.functional.pad(short, (0, 12))
    with torch.inference_mode():
        scores = model(short)
        torch.testing.assert_close(model(long), scores, rtol=1e-3, atol=1e-4)
        assert scores.shape == (1, 3)
        assert not torch.allclose(model(torch.tensor([[7, 3, 49, 0]])), scores, rtol=1e-5)
        assert model(torch.zeros(2, 8, dtype=torch.int64)).isfinite().all()


@pytest.mark.parametrize("name", MODELS)
def test_equal_seeds_train_equally_and_the_checkpoint_infers(name: str, output: Path):
    common = {"model": name, "batch_size": 2, "workers": 0, "seed": 3, "samples": 4}
    summaries = [
        train(TrainOptions(output=output / run, data=output / f"{run}-data", steps=2, **common))
        for run in ("a", "b")
    ]
    for file in ("train.log", "predictions.csv"):
        assert (output / "a" / file).read_bytes() == (output / "b" / file).read_bytes()
    first, last = summaries[0]["first_loss"], summaries[0]["last_loss"]
    assert isinstance(first, float) and isinstance(last, float)
    assert first != last
    inferred = infer(
        InferOptions(
            output=output / "infer",
            data=output / "a-data",
            checkpoint=output / "a" / "checkpoint.pt",
            **common,
        )
    )
    written = [output / run / "predictions.csv" for run in ("a", "infer")]
    assert written[0].read_bytes() == written[1].read_bytes()
    assert inferred["samples"] == 1


def test_the_lstm_learns_four_texts_by_heart(output: Path):
    common = {"workers": 0, "samples": 4, "batch_size": 4, "lr": 1.0}
    summary = train(TrainOptions(model="lstm", output=output / "a", steps=8, **common))
    first, last = summary["first_loss"], summary["last_loss"]
    assert isinstance(first, float) and isinstance(last, float)
    assert last < 0.5 * first


@pytest.mark.parametrize("vocabulary", [3, SIZE])
def test_the_lstm_is_the_larger_model_with_any_vocabulary(vocabulary: int):
    # Park & Bahn 2023, Table 4.
    shape = DataSets(Path(), Nothing(), Nothing(), classes=10, vocabulary=vocabulary)
    counts = {
        name: sum(weight.numel() for weight in models.load(name).build(shape).parameters())
        for name in MODELS
    }
    # An embedding; one layer with four gates of input, state and two biases; ten classes.
    assert counts["lstm"] == SIZE * 750 + 4 * 750 * (750 + 750 + 2) + 10 * 751
    assert counts["mobilebert"] == 24_844_544 + 10 * 513
    assert counts["lstm"] > counts["mobilebert"]


BUILDING = """
import json, sys
asked = []
sys.addaudithook(lambda event, _: asked.append(event) if event.startswith("socket.") else None)
from tracer.workloads import models
from tracer.workloads.data.sets import DataSets
models.load("lenet"), models.load("lstm")
before = sorted({"torch", "transformers"} & set(sys.modules))
import torch
model = models.load("mobilebert").build(DataSets("", None, None, classes=2, vocabulary=30_522))
weights = sum(weight.numel() for weight in model.parameters())
model(torch.ones(1, 4, dtype=torch.int64)).sum().backward()
print(json.dumps({"before": before, "asked": asked, "weights": weights}))
"""


@pytest.fixture(scope="module")
def building() -> subprocess.CompletedProcess[str]:
    """A process that loads other models and then builds MobileBERT."""
    command = [sys.executable, "-c", BUILDING]
    return subprocess.run(command, capture_output=True, text=True, check=True)


def test_other_models_do_not_import_transformers(building: subprocess.CompletedProcess[str]):
    assert json.loads(building.stdout)["before"] == ["torch"]


def test_mobilebert_is_built_offline_and_without_output(
    building: subprocess.CompletedProcess[str],
):
    assert building.stderr == ""
    told = json.loads(building.stdout)  # and nothing else
    assert not {"socket.connect", "socket.getaddrinfo"} & set(told["asked"]), told["asked"]
    # Weights of MobileBERT, and 512 weights and a bias per class.
    assert told["weights"] == 24_844_544 + 2 * 513
