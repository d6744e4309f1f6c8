"""What every data set gives to the loops."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor
from torch.utils.data import Dataset, get_worker_info

from tracer import phases

Sample = tuple[Tensor, int]


class SampleSet(Dataset[Sample]):
    """Samples of one split; the number of them is known."""

    def prepare(self) -> None:
        """Do what is left to do before the first sample is read. Raises JobError."""

    @abstractmethod
    def __len__(self) -> int: ...

    @abstractmethod
    def __getitem__(self, index: int) -> Sample: ...

    def __getitems__(self, indices: list[int]) -> list[Sample]:
        """One batch. A DataLoader's worker marks it; without workers the loop's mark covers it."""
        if get_worker_info() is None:
            return [self[index] for index in indices]
        with phases.phase("fetch"):
            return [self[index] for index in indices]


@dataclass(frozen=True)
class DataRequest:
    """Which data set a job asks for.

    `folder` holds or receives the set; None: a folder beside `output`. `seed` makes a set that
    is not there yet. `samples` is the number of training samples to use; None: all that are
    there, or the set's own default where it is made.
    """

    folder: Path | None
    output: Path
    seed: int
    samples: int | None


@dataclass(frozen=True, kw_only=True)
class DataShape:
    """What a model has to know of its data to be built.

    `classes`: labels are 0 to classes - 1. `vocabulary`: of texts, the number of different tokens.
    `side`: of images, their height and width in pixels.
    """

    classes: int
    vocabulary: int = 0
    side: int = 0


@dataclass(frozen=True, kw_only=True)
class SampleShape(DataShape):
    """What a server has to know beyond: one sample's `dimensions`, and its type in torch."""

    dimensions: tuple[int, ...]
    dtype: torch.dtype


@dataclass(frozen=True)
class DataSets(DataShape):
    """The opened sets and the folder their files lie in."""

    folder: Path
    train: SampleSet
    test: SampleSet
