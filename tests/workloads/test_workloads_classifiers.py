"""Networks for colour images: each trains, is restored from its checkpoint, and is reproducible."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator
from pathlib import Path
from statistics import fmean

import pytest
import torch

from tracer.workloads import models
from tracer.workloads.data import catalogue
from tracer.workloads.data.sets import DataRequest, DataSets, SampleSet
from tracer.workloads.infer import infer
from tracer.workloads.options import InferOptions, TrainOptions
from tracer.workloads.train import train

pytestmark = pytest.mark.slow

NAMES = ("squeezenet", "alexnet", "mobilenet", "resnet18", "resnet50", "vgg11")
PAIRS = [(name, dataset) for name in NAMES for dataset in models.find_model(name).datasets]

# Weights for the papers' numbers of classes; torchvision documents those with 1000 classes.
WEIGHTS = {
    ("squeezenet", 1000): 1_235_496,
    ("alexnet", 1000): 61_100_840,
    ("mobilenet", 1000): 5_483_032,
    ("resnet18", 1000): 11_689_512,
    ("resnet50", 1000): 25_557_032,
    ("vgg11", 1000): 132_863_336,
}


@pytest.fixture(scope="module")
def drawn(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """Returns a function that gives the folder of a set of 5 samples, drawn once."""
    base = tmp_path_factory.mktemp("sets")

    def draw(dataset: str) -> Path:
        folder = base / dataset
        catalogue.open_sets(dataset, DataRequest(folder, base / "output", 0, 5))
        return folder

    return draw


@pytest.fixture
def output(tmp_path: Path) -> Iterator[Path]:
    """Yields a folder whose checkpoints are removed at once: one of VGG-11 has 1 GB.

    The test runs in one thread, because several wait long for each other on a busy machine.
    """
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield tmp_path
    torch.set_num_threads(threads)
    for path in tmp_path.rglob("checkpoint.pt"):
        path.unlink()


def losses(output: Path) -> list[float]:
    lines = (output / "train.log").read_text().splitlines()
    return [float(line.split("loss=")[1]) for line in lines]


class Nothing(SampleSet):
    def __len__(self) -> int:
        return 0

    def __getitem__(self, index: int):
        raise IndexError(index)


def sets(classes: int, side: int) -> DataSets:
    return DataSets(Path("nowhere"), Nothing(), Nothing(), classes=classes, side=side)


@pytest.mark.parametrize(("name", "classes"), WEIGHTS)
def test_the_networks_have_their_published_numbers_of_weights(name: str, classes: int):
    with torch.device("meta"):
        model = models.load(name).build(sets(classes, side=224))
    assert sum(weight.numel() for weight in model.parameters()) == WEIGHTS[name, classes]


@pytest.mark.parametrize(("name", "dataset"), PAIRS)
def test_each_named_data_set_fits_the_network_with_one_image(name: str, dataset: str):
    side = {"cifar10": 32, "landmarks": 224, "imagenet": 256}[dataset]
    workload = models.load(name)
    with torch.device("meta"):
        model = workload.build(sets(7, side)).train()
        scores = model(torch.empty(1, 3, side, side))
    assert scores.shape == (1, 7)


@pytest.mark.parametrize("name", NAMES)
def test_a_trained_model_and_its_checkpoint_predict_the_same(
    name: str, drawn: Callable[[str], Path], output: Path
):
    common = {"model": name, "workers": 0, "batch_size": 2}
    common["data"] = drawn(models.find_model(name).datasets[0])
    summary = train(TrainOptions(output=output / "train", steps=1, **common))
    written = losses(output / "train")
    assert len(written) == 1
    assert all(map(math.isfinite, written))
    assert summary["first_loss"] == written[0]
    checkpoint = output / "train" / "checkpoint.pt"
    infer(InferOptions(output=output / "infer", checkpoint=checkpoint, **common))
    predictions = [output / run / "predictions.csv" for run in ("train", "infer")]
    assert predictions[0].read_bytes() == predictions[1].read_bytes()
    assert len(predictions[0].read_text().splitlines()) == 1 + 1


def test_equal_seeds_give_equal_losses_and_other_seeds_other_losses(output: Path):
    # SqueezeNet has dropout, which must depend on the seed, too.
    for run, seed in (("a", 5), ("b", 5), ("c", 6)):
        options = TrainOptions(
            model="squeezenet",
            dataset="cifar10",
            output=output / run,
            data=output / "data",
            workers=0,
            samples=24,
            steps=3,
            seed=seed,
        )
        train(options)
    assert losses(output / "a") == losses(output / "b")
    assert not set(losses(output / "a")) & set(losses(output / "c"))


def test_the_loss_falls(output: Path):
    options = TrainOptions(
        model="squeezenet", dataset="cifar10", output=output, workers=0, samples=320, epochs=10
    )
    train(options)
    written = losses(output)
    epochs = [fmean(written[n : n + 20]) for n in range(0, len(written), 20)]
    # The loss of one epoch may rise again, and where it does depends on the kind of CPU.
    assert fmean(epochs[-2:]) < 0.8 * epochs[0]


def test_scale_takes_a_share_of_the_papers_samples(command, output: Path):
    answer = command(
        *("train", "squeezenet", "--dataset", "cifar10", "--scale", 0.0002, "--workers", 0),
        *("--output", output / "a"),
    )
    assert (answer.status, answer.err) == (0, "")
    summary = json.loads(answer.out)
    assert (summary["samples"], summary["epochs"]) == (10, 10)
    assert summary["data"] == str(output / "cifar10-seed0-10")


def test_a_data_set_that_does_not_fit_is_refused(command, output: Path):
    answer = command("train", "alexnet", "--dataset", "cifar10", "--output", output)
    assert answer.status == 2
    assert answer.err == (
        "error: alexnet cannot be trained on cifar10; use --dataset imagenet or landmarks\n"
    )
