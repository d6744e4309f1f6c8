"""The interface of every data set to the training and inference loops.

A set is opened without torch; its samples need torch.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

from tracer import phases

if TYPE_CHECKING:
    import torch
    from torch import Tensor

Sample: TypeAlias = "tuple[Tensor, int]"


class SampleSet(ABC):
    """The samples of one split, for a DataLoader. Their number is known."""

    def prepare(self) -> None:  # noqa: B027 (most sets have no such work)
        """Does all remaining work before the first sample is read. Raises JobError."""

    @abstractmethod
    def __len__(self) -> int: ...

    @abstractmethod
    def __getitem__(self, index: int) -> Sample: ...

    def __getitems__(self, indices: list[int]) -> list[Sample]:
        """Returns one batch. A DataLoader worker marks it; otherwise the loop's mark covers it."""
        from torch.utils.data import get_worker_info

        if get_worker_info() is None:
            return [self[index] for index in indices]
        with phases.phase("fetch"):
            return [self[index] for index in indices]


@dataclass(frozen=True)
class DataRequest:
    """The data set that a job asks for.

    `folder` holds or receives the set; None: a folder beside `output`. `seed` is used to draw a set
    that does not exist yet. `samples` is the number of training samples to use; None: all of an
    existing set, or the default number of a drawn one.
    """

    folder: Path | None
    output: Path
    seed: int
    samples: int | None


@dataclass(frozen=True, kw_only=True)
class DataShape:
    """The shape of the data, from which a model is built.

    `classes`: labels are 0 to classes - 1. `vocabulary`: number of different tokens of texts.
    `side`: height and width of images in pixels.
    """

    classes: int
    vocabulary: int = 0
    side: int = 0


@dataclass(frozen=True, kw_only=True)
class SampleShape(DataShape):
    """The shape that a server needs: also the `dimensions` of one sample and its torch dtype."""

    dimensions: tuple[int, ...]
    dtype: torch.dtype


@dataclass(frozen=True)
class DataSets(DataShape):
    """The opened sets and the folder of their files."""

    folder: Path
    train: SampleSet
    test: SampleSet
