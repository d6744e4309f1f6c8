"""The models that can be trained.

This file lists them without importing torch, so that the command line answers at once. The module
of a model declares a `tracer.workloads.models.workload.Workload` as WORKLOAD; a module of several
models declares one constant per model.
"""

from __future__ import annotations

import importlib
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tracer.workloads.errors import JobError

if TYPE_CHECKING:
    from tracer.workloads.models.workload import Workload


@dataclass(frozen=True)
class Entry:
    """One model of the catalogue. `module` is imported when the model is used.

    `datasets` names the data sets it can be trained on (`tracer.workloads.data.catalogue`), the
    papers' own first. `ours`: the settings that no paper gives for this model, in words.
    """

    name: str
    about: str
    module: str
    datasets: tuple[str, ...]
    ours: str
    attribute: str = "WORKLOAD"


# Prashanthi et al. 2022 and 2023 train with SGD and batches of 16 and cite values for rate and
# momentum. Park & Bahn 2023 give the epochs only.
_RATE = "learning rate"
_ALL = "batch size, optimizer, learning rate"
_LARGE = ("imagenet", "landmarks")


def _classifier(name: str, about: str, datasets: tuple[str, ...], ours: str = _RATE) -> Entry:
    module = "tracer.workloads.models.classifiers"
    return Entry(name, about, module, datasets, ours, name.upper())


CATALOGUE = {
    entry.name: entry
    for entry in (
        Entry(
            "lenet",
            "LeNet-5: 61,706 weights, 28x28 grey images (MNIST)",
            "tracer.workloads.models.lenet",
            ("mnist",),
            _RATE,
        ),
        _classifier(
            "squeezenet",
            "SqueezeNet 1.1: 1.2 M weights, small (ImageNet)",
            (*_LARGE, "cifar10"),
            _ALL,
        ),
        # Its pooling would reduce 32 x 32 pixels to none.
        _classifier("alexnet", "AlexNet: 61 M weights, large (ImageNet)", _LARGE, _ALL),
        # With 32 x 32 pixels its batch normalisation would see a single pixel.
        _classifier(
            "mobilenet",
            "MobileNet v3 large: 5.5 M weights (Google Landmarks)",
            ("landmarks", "imagenet"),
        ),
        _classifier(
            "resnet18", "ResNet-18: 11.7 M weights (ImageNet, CIFAR-10)", (*_LARGE, "cifar10")
        ),
        _classifier("resnet50", "ResNet-50: 25.6 M weights (ImageNet)", (*_LARGE, "cifar10")),
        _classifier(
            "vgg11", "VGG-11: 133 M weights, 1 GB per checkpoint (CIFAR-10)", ("cifar10", *_LARGE)
        ),
        Entry(
            "lstm",
            "LSTM of 750 cells: 27 M weights, large, texts (Wikipedia)",
            "tracer.workloads.models.lstm",
            ("wikipedia",),
            f"cells and embedding, {_ALL}",
        ),
        Entry(
            "mobilebert",
            "MobileBERT: 25 M weights, small, texts (Wikipedia)",
            "tracer.workloads.models.mobilebert",
            ("wikipedia",),
            _ALL,
        ),
    )
}


def find_model(name: str) -> Entry:
    """Returns the entry of the model `name`. Raises JobError if the catalogue lacks it."""
    entry = CATALOGUE.get(name)
    if entry is None:
        raise JobError(f"there is no model {name!r}", f"choose one of: {', '.join(CATALOGUE)}")
    return entry


def load(name: str) -> Workload:
    """Imports and returns the workload of the model `name`. Raises JobError for an unknown name."""
    entry = find_model(name)
    workload: Workload = getattr(importlib.import_module(entry.module), entry.attribute)
    return workload
