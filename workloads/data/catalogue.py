"""The data sets, one file each, listed here without importing torch.

The file of a set has `open_sets(request: DataRequest) -> DataSets`. It opens the real set if the
folder holds it; otherwise it draws a similar set from the seed, as real files.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tracer.workloads.errors import JobError

if TYPE_CHECKING:
    from tracer.workloads.data.sets import DataRequest, DataSets


@dataclass(frozen=True)
class Source:
    """One data set. `samples` is the papers' number of training samples; `--scale` uses a share.

    The papers give no number for wikipedia; the one here is our choice.
    """

    name: str
    about: str
    module: str
    samples: int


CATALOGUE = {
    source.name: source
    for source in (
        Source("mnist", "28x28 grey images of ten digits", "tracer.workloads.data.mnist", 60_000),
        Source("cifar10", "32x32 images of ten classes", "tracer.workloads.data.cifar10", 50_000),
        Source(
            "imagenet",
            "JPEGs, prepared to 256x256 on disk",
            "tracer.workloads.data.imagenet",
            50_000,
        ),
        Source(
            "landmarks",
            "large JPEGs, decoded when fetched",
            "tracer.workloads.data.landmarks",
            23_080,
        ),
        Source("wikipedia", "articles of ten topics", "tracer.workloads.data.wikipedia", 50_000),
    )
}


def find_source(name: str) -> Source:
    """Returns the data set `name`. Raises JobError if the catalogue lacks it."""
    source = CATALOGUE.get(name)
    if source is None:
        raise JobError(f"there is no data set {name!r}", f"choose one of: {', '.join(CATALOGUE)}")
    return source


def open_sets(name: str, request: DataRequest) -> DataSets:
    """Opens the set `name`; draws it first if it does not exist. Raises JobError."""
    opened: Callable[[DataRequest], DataSets] = importlib.import_module(
        find_source(name).module
    ).open_sets
    return opened(request)
