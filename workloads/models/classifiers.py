"""The papers' networks for colour images, as torchvision builds them, with fresh weights.

The learning rate is 0.01. It is lower for networks without batch normalisation that would not
converge with batches of 16.
"""

from __future__ import annotations

from collections.abc import Callable

from torch import Tensor, nn
from torch.nn import functional

from tracer.workloads.data.sets import DataShape
from tracer.workloads.models import vision
from tracer.workloads.models.workload import Workload

_SMALL = 64
"""Images with a smaller side are small images, such as CIFAR-10's."""


def _predict(scores: Tensor) -> Tensor:
    return scores.argmax(dim=1)


def _workload(
    name: str,
    network: str,
    *,
    lr: float = 0.01,
    adapt: Callable[[nn.Module, DataShape], None] | None = None,
) -> Workload:
    def build(sets: DataShape) -> nn.Module:
        model: nn.Module = getattr(vision.models(), network)(weights=None, num_classes=sets.classes)
        if adapt is not None:
            adapt(model, sets)
        return model

    return Workload(
        name=name,
        build=build,
        loss=functional.cross_entropy,
        predict=_predict,
        lr=lr,
        momentum=0.9,
    )


def _fit_small_images(resnet: nn.Module, sets: DataShape) -> None:
    """Replaces the first layer for small images.

    The layer is that of He et al., "Deep residual learning for image recognition", section 4.2. The
    layer for ImageNet reduces 32 x 32 pixels to a single pixel at the end. If the last batch has
    one sample (as with 17 samples), that pixel is too little for batch normalisation.
    """
    if sets.side < _SMALL:
        resnet.conv1 = nn.Conv2d(3, 64, kernel_size=3, padding=1, bias=False)
        resnet.maxpool = nn.Identity()


def _start_wide(alexnet: nn.Module, _: DataShape) -> None:
    """Sets initial weights after He et al., "Delving deep into rectifiers", 2015, as VGG has them.

    With torch's default weights, little of an image reaches AlexNet's outputs, and the loss does
    not change for hundreds of steps.
    """
    for layer in alexnet.modules():
        if isinstance(layer, nn.Conv2d | nn.Linear):
            nn.init.kaiming_normal_(layer.weight, nonlinearity="relu")
            if layer.bias is not None:
                nn.init.zeros_(layer.bias)


SQUEEZENET = _workload("squeezenet", "squeezenet1_1", lr=0.003)
ALEXNET = _workload("alexnet", "alexnet", lr=0.001, adapt=_start_wide)
MOBILENET = _workload("mobilenet", "mobilenet_v3_large")
RESNET18 = _workload("resnet18", "resnet18", adapt=_fit_small_images)
RESNET50 = _workload("resnet50", "resnet50", adapt=_fit_small_images)
VGG11 = _workload("vgg11", "vgg11")
