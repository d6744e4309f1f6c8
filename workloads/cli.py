"""The command line: `python -m workloads list|train|infer|serve|request`.

Data on stdout, everything else on stderr. torch is imported when a job starts.
"""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer
from typer.core import TyperGroup

from workloads import models
from workloads.data import catalogue
from workloads.errors import FAILURE, USAGE, JobError
from workloads.options import (
    Arrivals,
    Device,
    InferOptions,
    JobOptions,
    RequestOptions,
    ServeOptions,
    TrainOptions,
)

_PROGRAM = "python -m workloads"
_PACKAGES = {
    "torch": "PyTorch",
    "torchvision": "torchvision",
    "PIL": "pillow",
    "transformers": "transformers",
    "urllib3": "urllib3",
    "waitress": "waitress",
}
_MANY = 1_000_000_000

app = typer.Typer(
    help="Training jobs to trace. Each run ends with one JSON object on stdout.",
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
)


def _positive(value: float | None) -> float | None:
    if value is not None and not (math.isfinite(value) and value > 0):
        raise typer.BadParameter("a finite number above 0 is needed")
    return value


Model = Annotated[str, typer.Argument(help="A model that `list` names.", metavar="MODEL")]
Data = Annotated[
    Path | None,
    typer.Option(
        help="Folder of the data set. The set's usual files there are used as they are; in an "
        "absent or empty folder a set is drawn from the seed. "
        "[default: one beside the output folder, named for the set, seed and samples]"
    ),
]
Samples = Annotated[
    int | None,
    typer.Option(
        min=1,
        max=10_000_000,
        help="Training samples to use. A set that is drawn gets so many, and a quarter more to "
        "test with. [default: all of a set that is there; 4096 of a drawn one, 1024 of JPEGs]",
    ),
]
DataSet = Annotated[
    str | None,
    typer.Option(
        metavar="SET", help="A data set that `list` names. [default: the papers' for the model]"
    ),
]
Scale = Annotated[
    float | None,
    typer.Option(
        metavar="SHARE",
        callback=_positive,
        help="So much of the papers' training samples and epochs, such as 0.01.",
    ),
]
BatchSize = Annotated[int, typer.Option(min=1, max=_MANY, help="Samples a step.")]
Workers = Annotated[
    int, typer.Option(min=0, max=256, help="Processes that fetch batches; 0: the job itself.")
]
Seed = Annotated[
    int,
    typer.Option(
        min=0, max=2**32 - 1, help="Seed of the drawn set, the weights and the order of samples."
    ),
]
Threads = Annotated[
    int | None, typer.Option(min=1, max=1024, help="torch's threads. [default: torch's choice]")
]
DeviceOption = Annotated[
    Device, typer.Option("--device", help="Where to run; auto takes CUDA where it is there.")
]


@app.command("list")
def list_models() -> None:
    """Name the models and the data sets."""
    typer.echo("models")
    for entry in models.CATALOGUE.values():
        typer.echo(f"  {entry.name:12} {entry.about}")
    typer.echo("data sets")
    for source in catalogue.CATALOGUE.values():
        typer.echo(f"  {source.name:12} {source.about}")


@app.command()
def train(
    model: Model,
    steps: Annotated[
        int | None,
        typer.Option(
            min=1,
            max=_MANY,
            help="Stop after exactly so many optimizer steps, over as many epochs as they take; "
            "overrides --epochs.",
        ),
    ] = None,
    epochs: Annotated[
        int | None,
        typer.Option(
            min=1,
            max=_MANY,
            help="Passes over the training samples. [default: 10, as the papers', times --scale]",
        ),
    ] = None,
    batch_size: BatchSize = JobOptions.batch_size,
    workers: Workers = JobOptions.workers,
    seed: Seed = JobOptions.seed,
    data: Data = None,
    output: Annotated[
        Path | None,
        typer.Option(
            help="Folder for train.log, checkpoint.pt and predictions.csv; those of an earlier "
            "run there are written over. [default: runs/<model>-<seed>]"
        ),
    ] = None,
    samples: Samples = None,
    dataset: DataSet = None,
    scale: Scale = None,
    lr: Annotated[
        float | None,
        typer.Option(callback=_positive, help="Learning rate of SGD. [default: the model's own]"),
    ] = None,
    threads: Threads = None,
    device: DeviceOption = JobOptions.device,
) -> None:
    """Train a model, with a checkpoint an epoch, then test it.

    Example: python -m workloads train lenet --steps 200 --output /tmp/lenet
    """
    models.find(model)
    options = TrainOptions(
        model=model,
        output=output or Path("runs") / f"{model}-{seed}",
        data=data,
        batch_size=batch_size,
        workers=workers,
        seed=seed,
        samples=samples,
        dataset=dataset,
        scale=scale,
        threads=threads,
        device=device,
        steps=steps,
        epochs=epochs or max(1, round(TrainOptions.epochs * (scale or 1))),
        lr=lr,
    )
    from workloads.train import train as run

    _print(run(options))


@app.command()
def infer(
    model: Model,
    checkpoint: Annotated[Path, typer.Option(help="A checkpoint.pt that `train` wrote.")],
    batch_size: BatchSize = JobOptions.batch_size,
    workers: Workers = JobOptions.workers,
    seed: Seed = JobOptions.seed,
    data: Data = None,
    output: Annotated[
        Path | None,
        typer.Option(
            help="Folder for predictions.csv; that of an earlier run there is written over. "
            "[default: runs/<model>-<seed>-infer]"
        ),
    ] = None,
    samples: Samples = None,
    dataset: DataSet = None,
    scale: Scale = None,
    threads: Threads = None,
    device: DeviceOption = JobOptions.device,
) -> None:
    """Run a trained model over the test set.

    Example: python -m workloads infer lenet --checkpoint runs/lenet-0/checkpoint.pt
    """
    models.find(model)
    options = InferOptions(
        model=model,
        output=output or Path("runs") / f"{model}-{seed}-infer",
        data=data,
        batch_size=batch_size,
        workers=workers,
        seed=seed,
        samples=samples,
        dataset=dataset,
        scale=scale,
        threads=threads,
        device=device,
        checkpoint=checkpoint,
    )
    from workloads.infer import infer as run

    _print(run(options))


@app.command()
def serve(
    model: Model,
    checkpoint: Annotated[Path, typer.Option(help="A checkpoint.pt that `train` wrote.")],
    host: Annotated[
        str, typer.Option(help="Address to listen on; 0.0.0.0: every one of this machine.")
    ] = ServeOptions.host,
    port: Annotated[
        int, typer.Option(min=0, max=65_535, help="Port to listen on; 0: a free one.")
    ] = ServeOptions.port,
    socket: Annotated[
        Path | None, typer.Option(help="Listen at this Unix socket, and at no port.")
    ] = None,
    handlers: Annotated[
        int, typer.Option(min=1, max=256, help="Requests that are answered at once.")
    ] = ServeOptions.handlers,
    patience: Annotated[
        int,
        typer.Option(min=1, max=86_400, help="Seconds that a client may take to send its request."),
    ] = ServeOptions.patience_s,
    threads: Threads = None,
    device: DeviceOption = ServeOptions.device,
) -> None:
    """Answer requests with a trained model over HTTP, until Ctrl-C.

    It listens once stderr says so. GET /health says what a sample looks like; POST /predict
    takes {"samples": [SAMPLE, ...]}, each a nested list of numbers, and answers
    {"predictions": [CLASS, ...]}.

    Example: python -m workloads serve lenet --checkpoint runs/lenet-0/checkpoint.pt
    """
    models.find(model)
    options = ServeOptions(
        model=model,
        checkpoint=checkpoint,
        host=host,
        port=port,
        socket=socket,
        handlers=handlers,
        patience_s=patience,
        threads=threads,
        device=device,
    )
    from workloads.serving.server import serve as run

    _print(run(options))


@app.command()
def request(
    model: Model,
    rate: Annotated[
        float, typer.Option(callback=_positive, help="Requests a second, whatever the answers do.")
    ],
    url: Annotated[
        str, typer.Option(help="Address of the server, or unix:PATH of its socket.")
    ] = RequestOptions.url,
    requests: Annotated[
        int | None, typer.Option(min=1, max=10_000_000, help="Send so many requests.")
    ] = None,
    seconds: Annotated[
        float | None, typer.Option(callback=_positive, help="Or send requests for so long.")
    ] = None,
    arrivals: Annotated[
        Arrivals, typer.Option(help="When they are due: drawn by the seed, or evenly.")
    ] = RequestOptions.arrivals,
    connections: Annotated[
        int, typer.Option(min=1, max=1024, help="Requests underway at once, at most.")
    ] = RequestOptions.connections,
    batch_size: Annotated[
        int, typer.Option(min=1, max=10_000, help="Samples a request.")
    ] = RequestOptions.batch_size,
    timeout: Annotated[
        float,
        typer.Option(callback=_positive, help="Seconds to wait for an answer, from due on."),
    ] = RequestOptions.timeout_s,
    seed: Seed = JobOptions.seed,
    data: Data = None,
    samples: Samples = None,
    dataset: DataSet = None,
    scale: Scale = None,
) -> None:
    """Send samples of the test set to a server, at a rate, and measure its answers.

    Latencies are from when a request was due, so that a server which stands still is seen.

    Example: python -m workloads request lenet --rate 100 --seconds 10
    """
    models.find(model)
    options = RequestOptions(
        model=model,
        output=Path("runs") / f"{model}-{seed}-request",
        url=url,
        rate=rate,
        requests=requests,
        seconds=seconds,
        arrivals=arrivals,
        connections=connections,
        batch_size=batch_size,
        timeout_s=timeout,
        seed=seed,
        data=data,
        samples=samples,
        dataset=dataset,
        scale=scale,
    )
    from workloads.serving.load import request as run

    _print(run(options))


@app.command()
def prepare(
    model: Model,
    data: Data = None,
    output: Annotated[
        Path | None,
        typer.Option(help="As of the job that is to come. [default: runs/<model>-<seed>]"),
    ] = None,
    checkpoint: Annotated[
        Path | None, typer.Option(help="Save the model there, with fresh weights.")
    ] = None,
    seed: Seed = JobOptions.seed,
    samples: Samples = None,
    dataset: DataSet = None,
    scale: Scale = None,
) -> None:
    """Make the data set of a model, before a job that is to be measured.

    Example: python -m workloads prepare lenet --output /tmp/lenet --scale 0.1
    """
    models.find(model)
    options = JobOptions(
        model=model,
        output=output or Path("runs") / f"{model}-{seed}",
        data=data,
        seed=seed,
        samples=samples,
        dataset=dataset,
        scale=scale,
        device=Device.CPU,
    )
    from workloads.prepare import prepare as run

    _print(run(options, checkpoint))


@app.command("versions")
def show_versions() -> None:
    """Say what a job would run on: Python, packages, and our own code."""
    from workloads.containers.versions import versions

    _print({**versions()})


def check(arguments: Sequence[str]) -> None:
    """Parse a command line, and run nothing. Raises JobError for a mistake in it."""
    name, *rest = arguments
    command = typer.main.get_command(app)
    assert isinstance(command, TyperGroup)
    try:
        command.commands[name].make_context(name, rest)
    except typer.TyperException as error:
        raise JobError(
            error.format_message().rstrip("."), f"see `{_PROGRAM} {name} --help`"
        ) from None


def main() -> int:
    """Run the command line; gives the exit status. The one place that prints errors."""
    try:
        status = app(prog_name=_PROGRAM, standalone_mode=False)
    except JobError as error:
        return _complain(str(error), error.exit_code)
    except typer.TyperException as error:
        message = error.format_message().rstrip(".")
        return _complain(f"{message}; see `{_PROGRAM} --help`", USAGE)
    except ModuleNotFoundError as error:
        if (error.name or "").startswith("workloads."):
            return _complain("this image only serves; take that for training", USAGE)
        missing = _PACKAGES.get(error.name or "")
        if missing is None:
            raise
        return _complain(f"{missing} is not installed; `pip install traintrace[workloads]`", USAGE)
    except OSError as error:
        about = f"{error.filename}: " if error.filename else ""
        return _complain(f"the system refused: {about}{error.strerror or error}", FAILURE)
    return status if isinstance(status, int) else 0


def _print(summary: dict[str, object]) -> None:
    typer.echo(json.dumps(summary, allow_nan=False))


def _complain(line: str, status: int) -> int:
    sys.stderr.write(f"error: {line}\n")
    return status
