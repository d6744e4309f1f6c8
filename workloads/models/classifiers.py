"""The papers' networks for colour images, as torchvision builds them, with fresh weights.

Learning rates are the papers' 0.01 with momentum 0.9 where that converges; networks without batch
normalisation want less.
"""

from __future__ import annotations

from torch import Tensor, nn
from torch.nn import functional

from workloads.data.sets import DataShape
from workloads.models import vision
from workloads.models.workload import Workload

_SMALL = 64
"""Images below this side are small: CIFAR-10's."""


def _predict(scores: Tensor) -> Tensor:
    return scores.argmax(dim=1)


def _workload(
    name: str, network: str, datasets: tuple[str, ...], *, lr: float, small_stem: bool = False
) -> Workload:
    def build(sets: DataShape) -> nn.Module:
        model: nn.Module = getattr(vision.models(), network)(weights=None, num_classes=sets.classes)
        if small_stem and sets.side < _SMALL:
            _fit_small_images(model)
        return model

    return Workload(
        name=name,
        build=build,
        datasets=datasets,
        loss=functional.cross_entropy,
        predict=_predict,
        lr=lr,
        momentum=0.9,
    )


def _fit_small_images(resnet: nn.Module) -> None:
    """The first layer of He et al., "Deep residual learning for image recognition", section 4.2.

    Of 32 x 32 pixels, the one for ImageNet leaves a single pixel at the end. One pixel of one
    image, the last batch of 17 samples, is too little for batch normalisation.
    """
    resnet.conv1 = nn.Conv2d(3, 64, kernel_size=3, padding=1, bias=False)
    resnet.maxpool = nn.Identity()


_LARGE_IMAGES = ("imagenet", "landmarks")

SQUEEZENET = _workload("squeezenet", "squeezenet1_1", (*_LARGE_IMAGES, "cifar10"), lr=0.003)
# 32 x 32 pixels are fewer than its pooling takes.
ALEXNET = _workload("alexnet", "alexnet", _LARGE_IMAGES, lr=0.01)
# At 32 x 32 pixels, batch normalisation would see a single one.
MOBILENET = _workload("mobilenet", "mobilenet_v3_large", ("landmarks", "imagenet"), lr=0.01)
RESNET18 = _workload("resnet18", "resnet18", (*_LARGE_IMAGES, "cifar10"), lr=0.01, small_stem=True)
RESNET50 = _workload("resnet50", "resnet50", (*_LARGE_IMAGES, "cifar10"), lr=0.01, small_stem=True)
VGG11 = _workload("vgg11", "vgg11", ("cifar10", *_LARGE_IMAGES), lr=0.01)
