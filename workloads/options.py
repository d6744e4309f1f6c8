"""What a job is asked to do. No torch here: the command line reads its defaults from these."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path


class Device(StrEnum):
    """Where the model runs; AUTO takes CUDA where there is one."""

    AUTO = "auto"
    CPU = "cpu"
    CUDA = "cuda"


@dataclass(frozen=True, kw_only=True)
class JobOptions:
    """What training and inference share.

    `dataset` is one that the model can be trained on; None: the papers' own. `data` holds or
    receives it; None: a folder beside `output`. `samples` is the number of training samples; None:
    that share of the papers' number which `scale` gives, or all of a set that is there, or the
    default of a made one. `threads` is the number of torch's threads; None: torch's own choice.
    """

    model: str
    output: Path
    dataset: str | None = None
    data: Path | None = None
    batch_size: int = 16
    workers: int = 4
    seed: int = 0
    samples: int | None = None
    scale: float | None = None
    threads: int | None = None
    device: Device = Device.AUTO


@dataclass(frozen=True, kw_only=True)
class TrainOptions(JobOptions):
    """A training job. `steps`, where given, takes the place of `epochs`.

    `lr` None: the model's own. Ten epochs of batches of 16 is what the traced papers ran.
    """

    steps: int | None = None
    epochs: int = 10
    lr: float | None = None


@dataclass(frozen=True, kw_only=True)
class InferOptions(JobOptions):
    """Inference over the test set with the weights in `checkpoint`."""

    checkpoint: Path
