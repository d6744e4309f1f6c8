"""What every data set gives to the loops."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from pathlib import Path

from torch import Tensor
from torch.utils.data import Dataset

Sample = tuple[Tensor, int]


class SampleSet(Dataset[Sample]):
    """Samples of one split; the number of them is known."""

    @abstractmethod
    def __len__(self) -> int: ...


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


@dataclass(frozen=True)
class DataSets:
    """The opened sets and the folder their files lie in."""

    folder: Path
    train: SampleSet
    test: SampleSet
