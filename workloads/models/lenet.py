"""LeNet-5, after LeCun et al., "Gradient-based learning applied to document recognition", 1998.

Like most of today's versions, it has full connections from S2 to C3, plain average pooling, and a
linear output layer with cross entropy.
"""

from __future__ import annotations

from torch import Tensor, nn
from torch.nn import functional

from tracer.workloads.models.workload import Workload


class LeNet5(nn.Module):
    """A model from images [batch, 1, 28, 28] to scores [batch, classes]."""

    def __init__(self, classes: int) -> None:
        super().__init__()
        self.features = nn.Sequential(
            nn.Conv2d(1, 6, kernel_size=5, padding=2),
            nn.Tanh(),
            nn.AvgPool2d(2),
            nn.Conv2d(6, 16, kernel_size=5),
            nn.Tanh(),
            nn.AvgPool2d(2),
            nn.Flatten(),
        )
        self.classifier = nn.Sequential(
            nn.Linear(400, 120),
            nn.Tanh(),
            nn.Linear(120, 84),
            nn.Tanh(),
            nn.Linear(84, classes),
        )

    def forward(self, images: Tensor) -> Tensor:
        scores: Tensor = self.classifier(self.features(images))
        return scores


def _predict(scores: Tensor) -> Tensor:
    return scores.argmax(dim=1)


WORKLOAD = Workload(
    name="lenet",
    build=lambda sets: LeNet5(sets.classes),
    loss=functional.cross_entropy,
    predict=_predict,
    lr=0.01,
    momentum=0.9,
)
