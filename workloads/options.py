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


class Arrivals(StrEnum):
    """When requests are due: at random, as from many users apart, or evenly."""

    POISSON = "poisson"
    UNIFORM = "uniform"


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


@dataclass(frozen=True, kw_only=True)
class ServeOptions:
    """Serving over HTTP with the weights in `checkpoint`.

    `port` 0: a free one. `socket`: a Unix socket to listen at instead. `handlers` is how many
    requests are answered at once, each with `threads` of torch's threads; None: torch's own
    choice. `patience_s` is what a client may take to send its request.
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
    """Requests to the server at `url`, `rate` of them a second, with samples of the test set.

    `url` is http://HOST:PORT, or unix:PATH of a socket.

    Either `requests` of them or as many as fall into `seconds`, each of `batch_size` samples;
    `seed` draws samples and arrivals. At most `connections` are underway at once, and an answer is
    waited for until `timeout_s` after its request was due. Nothing is written to `output`.
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
