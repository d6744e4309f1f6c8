"""A training job that benchmarks attach to: endless steps, each marked by `tracer.phases`.

    TRACER_MARKS=DIR python benchmarks/parts/steps.py lenet|mobilenet FOLDER

Two DataLoader workers read images from a file in FOLDER; each step writes a log line. Runs until
it is killed.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import torch
from torch.nn import functional
from torch.utils.data import DataLoader, IterableDataset

from tracer import phases
from tracer.workloads.models.lenet import LeNet5
from tracer.workloads.models.vision import models

BATCH = 16
SHAPES = {"lenet": (1, 28, 28), "mobilenet": (3, 64, 64)}
_IMAGES = 4096


class Images(IterableDataset[tuple[torch.Tensor, int]]):
    """The images of a file, repeated without end."""

    def __init__(self, path: Path, shape: tuple[int, ...]) -> None:
        self.path = path
        self.shape = shape

    def __iter__(self) -> Iterator[tuple[torch.Tensor, int]]:
        size = int(np.prod(self.shape))
        rng = np.random.default_rng(23)
        with self.path.open("rb") as file:
            while True:
                at = int(rng.integers(0, _IMAGES))
                file.seek(at * size)
                pixels = np.frombuffer(file.read(size), np.uint8).reshape(self.shape)
                yield torch.from_numpy(pixels.astype(np.float32) / 255), at % 10


def steps(name: str, folder: Path) -> Iterator[int]:
    """Trains without end; yields the number of each finished step."""
    torch.manual_seed(23)
    torch.set_num_threads(1)
    shape = SHAPES[name]
    path = folder / "images.u8"
    path.write_bytes(np.random.default_rng(23).bytes(_IMAGES * int(np.prod(shape))))
    model = LeNet5(10) if name == "lenet" else models().mobilenet_v3_large(num_classes=10)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    loader = DataLoader(Images(path, shape), batch_size=BATCH, num_workers=2)
    with (folder / "train.log").open("w") as log:
        for step, (images, labels) in enumerate(loader):
            with phases.phase("step", step=step):
                optimizer.zero_grad()
                loss = functional.cross_entropy(model(images), labels)
                loss.backward()  # type: ignore[no-untyped-call]
                optimizer.step()
                log.write(f"{step} {loss.item()}\n")
                log.flush()
            yield step


if __name__ == "__main__":
    for _ in steps(sys.argv[1], Path(sys.argv[2])):
        pass
