"""What a model's file declares, and all that the loops know of it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from torch import Tensor, nn

from workloads.data.sets import DataShape


@dataclass(frozen=True)
class Workload:
    """A model with its data and its habits.

    `build` gives the model for data of this shape, with fresh weights from torch's seeded
    generator; `datasets` names those it can be trained on (`workloads.data.catalogue`), the
    papers' own first; `loss` takes the model's outputs and the targets of a batch and gives a
    scalar; `predict` takes the outputs and gives one class a sample.
    """

    name: str
    build: Callable[[DataShape], nn.Module]
    datasets: tuple[str, ...]
    loss: Callable[[Tensor, Tensor], Tensor]
    predict: Callable[[Tensor], Tensor]
    lr: float
    momentum: float
