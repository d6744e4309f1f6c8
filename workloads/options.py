"""The options of a job. This file does not import torch: the command line reads its defaults."""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path


class Device(StrEnum):
    """The device that the model runs on. AUTO uses CUDA if it is available."""

    AUTO = "auto"
    CPU = "cpu"
    CUDA = "cuda"


class Arrivals(StrEnum):
    """The times at which requests are due: random, as from many independent users, or even."""

    POISSON = "poisson"
    UNIFORM = "uniform"


class CheckpointWay(StrEnum):
    """The way in which a checkpoint reaches its file.

    truncate: the file is truncated and written again, as `torch.save` does. overwrite: it is
    written again in place, so that it keeps its blocks. rename: a new file is written and then
    takes the place of the old one. new: each checkpoint is a file of its own; the last one is
    renamed to checkpoint.pt when the training ends.
    """

    TRUNCATE = "truncate"
    OVERWRITE = "overwrite"
    RENAME = "rename"
    NEW = "new"


CHECKPOINT = "checkpoint.pt"
"""The name of a training's checkpoint in its output folder."""
EACH_EPOCH, AT_THE_END = "epoch", "end"
CHECKPOINT_TIMES = re.compile(rf"{EACH_EPOCH}|{AT_THE_END}|[1-9]\d{{0,8}}")
"""The times of checkpoints: after each epoch, at the end, or after each number of steps."""


@dataclass(frozen=True, kw_only=True)
class JobOptions:
    """The options that training and inference share.

    `dataset` is one that the model can be trained on; None: the papers' own. `data` is the folder
    that holds or receives it; None: a folder beside `output`. `samples` is the number of training
    samples; None: the share `scale` of the papers' number, or without `scale` all of an existing
    set, or the default of a drawn one. `threads` is the number of torch's threads; None: torch's
    own choice.
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
    """The options of a training job. `steps`, if given, replaces `epochs`.

    `at_least_s`: the training goes on past its last step until this time, in s, is over.
    `at_most_s`: it ends after the step in which this time is over, whatever else is given.
    `lr` None: the model's own. `shuffle`: each epoch has an order of its own, which the seed
    determines; without it, all epochs read the samples in their own order. The papers ran ten
    epochs with batches of 16. `checkpoint_every`: one of CHECKPOINT_TIMES; the last step is always
    followed by a checkpoint.
    """

    steps: int | None = None
    epochs: int = 10
    at_least_s: float | None = None
    at_most_s: float | None = None
    lr: float | None = None
    shuffle: bool = True
    checkpoint_every: str = EACH_EPOCH
    checkpoint_way: CheckpointWay = CheckpointWay.TRUNCATE


@dataclass(frozen=True, kw_only=True)
class InferOptions(JobOptions):
    """The options of inference over the test set with the weights in `checkpoint`.

    `batches`: the number of batches, over as many passes as that takes; None: those of one pass.
    """

    checkpoint: Path
    batches: int | None = None


@dataclass(frozen=True, kw_only=True)
class ServeOptions:
    """The options of serving over HTTP with the weights in `checkpoint`.

    `port` 0: any free port. `socket`: a Unix socket to listen on instead. `handlers` is the number
    of requests answered at the same time, each with `threads` threads of torch; None: torch's own
    choice. `patience_s`: seconds a client may take to send its request.
    """

    model: str
    checkpoint: Path
    host: str = "127.0.0.1"
    port: int = 8080
    socket: Path | None = None
    handlers: int = 4
    threads: int | None = None
    device: Device = Device.AUTO
    patience_s: int = 30


@dataclass(frozen=True, kw_only=True)
class RequestOptions(JobOptions):
    """The options of the client: it sends samples of the test set to the server at `url`.

    `url` is http://HOST:PORT, or unix:PATH of a socket. `rate` requests per second are sent, each
    of `batch_size` samples: `requests` of them, or those that are due within `seconds`. `seed`
    determines samples and arrivals. At most `connections` requests are in flight. An answer may
    arrive until `timeout_s` after its request was due. The client writes nothing but
    prepared data to `output`.
    """

    batch_size: int = 1
    workers: int = 0
    url: str = "http://127.0.0.1:8080"
    rate: float
    requests: int | None = None
    seconds: float | None = None
    arrivals: Arrivals = Arrivals.POISSON
    connections: int = 64
    timeout_s: float = 10
