"""The declaration of a model: everything that the training and inference loops know of it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from torch import Tensor, nn

from tracer.workloads.data.sets import DataShape


@dataclass(frozen=True)
class Workload:
    """A model with its training parameters.

    `build` makes the model for data of a shape, with fresh weights from torch's seeded generator.
    `loss` maps the model's outputs and the targets of a batch to a scalar. `predict` maps the
    outputs to one class per sample.
    """

    name: str
    build: Callable[[DataShape], nn.Module]
    loss: Callable[[Tensor, Tensor], Tensor]
    predict: Callable[[Tensor], Tensor]
    lr: float
    momentum: float
