"""The data sets, one file each; named here without importing torch.

A set's file has `open_sets(request: DataRequest) -> DataSets`, which opens the real set where the
folder holds it and else draws one like it by seed, as real files.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from workloads.errors import JobError

if TYPE_CHECKING:
    from workloads.data.sets import DataRequest, DataSets


@dataclass(frozen=True)
class Source:
    """One data set. `samples` is how many the papers trained on; `--scale` takes a share.

    Of wikipedia they name no number: the one here is our choice.
    """

    name: str
    about: str
    module: str
    samples: int


CATALOGUE = {
    source.name: source
    for source in (
        Source("mnist", "28x28 grey images of ten digits", "workloads.data.mnist", 60_000),
        Source("cifar10", "32x32 images of ten classes", "workloads.data.cifar10", 50_000),
        Source("imagenet", "JPEGs, prepared to 256x256 on disk", "workloads.data.imagenet", 50_000),
        Source("landmarks", "large JPEGs, decoded in fetches", "workloads.data.landmarks", 23_080),
        Source("wikipedia", "articles of ten topics", "workloads.data.wikipedia", 50_000),
    )
}


def find(name: str) -> Source:
    """The data set `name`. Raises JobError where the catalogue lacks it."""
    source = CATALOGUE.get(name)
    if source is None:
        raise JobError(f"there is no data set {name!r}", f"choose one of: {', '.join(CATALOGUE)}")
    return source


def open_sets(name: str, request: DataRequest) -> DataSets:
    """Open the set `name`, or make it. Raises JobError."""
    opened: Callable[[DataRequest], DataSets] = importlib.import_module(find(name).module).open_sets
    return opened(request)
