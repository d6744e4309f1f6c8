"""The command line: `python -m tracer.workloads list|train|infer|serve|request`.

Results go to stdout, everything else to stderr. torch is imported only when a job starts.
"""

from __future__ import annotations

import atexit
import gc
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer
from typer.core import TyperGroup

from tracer.probes.errors import ExitCode, TracerError
from tracer.workloads import models
from tracer.workloads.arguments import (
    MANY,
    BatchSize,
    Data,
    DataSet,
    DeviceOption,
    Model,
    Samples,
    Scale,
    Seed,
    Threads,
    Workers,
    positive,
    when,
)
from tracer.workloads.data import catalogue
from tracer.workloads.errors import MEND_EXTRA, JobError
from tracer.workloads.options import (
    EACH_EPOCH,
    CheckpointWay,
    Device,
    InferOptions,
    JobOptions,
    TrainOptions,
)
from tracer.workloads.serving import commands as serving

_PROGRAM = "python -m tracer.workloads"
_PACKAGES = {
    "torch": "PyTorch",
    "torchvision": "torchvision",
    "PIL": "pillow",
    "transformers": "transformers",
    "urllib3": "urllib3",
    "waitress": "waitress",
}
app = typer.Typer(
    help="Training jobs to trace. Each run prints one JSON object on stdout when it ends.",
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
)


@app.command("list")
def list_models() -> None:
    """Name the models and the data sets."""
    typer.echo("models (ours: the settings that no paper gives for the model)")
    for entry in models.CATALOGUE.values():
        typer.echo(f"  {entry.name:12} {entry.about}")
        typer.echo(f"  {'':12} ours: {entry.ours}")
    typer.echo("data sets")
    for source in catalogue.CATALOGUE.values():
        typer.echo(f"  {source.name:12} {source.about}")


@app.command()
def train(
    model: Model,
    steps: Annotated[
        int | None,
        typer.Option(
            metavar="N",
            min=1,
            max=MANY,
            help="Stop after exactly this number of optimizer steps, over as many epochs as that "
            "takes; overrides --epochs.",
        ),
    ] = None,
    epochs: Annotated[
        int | None,
        typer.Option(
            metavar="N",
            min=1,
            max=MANY,
            help="Passes over the training samples. [default: 10, as in Park & Bahn 2023]",
        ),
    ] = None,
    at_least: Annotated[
        float | None,
        typer.Option(
            metavar="SECONDS",
            callback=positive,
            help="Train on after the last step until this time is over.",
        ),
    ] = None,
    at_most: Annotated[
        float | None,
        typer.Option(
            metavar="SECONDS",
            callback=positive,
            help="End after the step in which this time is over, even before the last step.",
        ),
    ] = None,
    batch_size: BatchSize = JobOptions.batch_size,
    workers: Workers = JobOptions.workers,
    seed: Seed = JobOptions.seed,
    data: Data = None,
    output: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR",
            help="Folder for train.log, checkpoint.pt and predictions.csv. Files of an earlier "
            "run are overwritten. [default: runs/<model>-<seed>]",
        ),
    ] = None,
    samples: Samples = None,
    dataset: DataSet = None,
    scale: Scale = None,
    lr: Annotated[
        float | None,
        typer.Option(
            metavar="F", callback=positive, help="Learning rate of SGD. [default: set by the model]"
        ),
    ] = None,
    shuffle: Annotated[
        bool,
        typer.Option(
            "--shuffle/--in-order",
            help="Read the samples in a new random order in each epoch, or always in their own.",
        ),
    ] = TrainOptions.shuffle,
    checkpoint_every: Annotated[
        str,
        typer.Option(
            metavar="WHEN",
            callback=when,
            help="Time of checkpoints: epoch, end, or a number of steps.",
        ),
    ] = EACH_EPOCH,
    checkpoint_way: Annotated[
        CheckpointWay,
        typer.Option(
            help="truncate the file and write it again, overwrite it in place, write a new one and "
            "rename it over the old one, or give each checkpoint a new name."
        ),
    ] = CheckpointWay.TRUNCATE,
    threads: Threads = None,
    device: DeviceOption = JobOptions.device,
) -> dict[str, object]:
    """Train a model with checkpoints, then test it.

    Example: python -m tracer.workloads train lenet --steps 200 --output /tmp/lenet
    """
    models.find_model(model)
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
        epochs=epochs or TrainOptions.epochs,
        at_least_s=at_least,
        at_most_s=at_most,
        lr=lr,
        shuffle=shuffle,
        checkpoint_every=checkpoint_every,
        checkpoint_way=checkpoint_way,
    )
    from tracer.workloads.train import train as run

    return run(options)


@app.command()
def infer(
    model: Model,
    checkpoint: Annotated[
        Path, typer.Option(metavar="FILE", help="A checkpoint.pt that `train` wrote.")
    ],
    batches: Annotated[
        int | None,
        typer.Option(
            metavar="N",
            min=1,
            max=MANY,
            help="Batches to predict, over as many passes as that takes. [default: one pass]",
        ),
    ] = None,
    batch_size: BatchSize = JobOptions.batch_size,
    workers: Workers = JobOptions.workers,
    seed: Seed = JobOptions.seed,
    data: Data = None,
    output: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR",
            help="Folder for predictions.csv. The file of an earlier run is overwritten. "
            "[default: runs/<model>-<seed>-infer]",
        ),
    ] = None,
    samples: Samples = None,
    dataset: DataSet = None,
    scale: Scale = None,
    threads: Threads = None,
    device: DeviceOption = JobOptions.device,
) -> dict[str, object]:
    """Run a trained model over the test set.

    Example: python -m tracer.workloads infer lenet --checkpoint runs/lenet-0/checkpoint.pt
    """
    models.find_model(model)
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
        batches=batches,
    )
    from tracer.workloads.infer import infer as run

    return run(options)


app.command()(serving.serve)
app.command()(serving.request)


@app.command()
def prepare(
    model: Model,
    data: Data = None,
    output: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR",
            help="The --output of the later job. [default: runs/<model>-<seed>]",
        ),
    ] = None,
    checkpoint: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="File in which to save the model, with fresh weights."),
    ] = None,
    trained: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Trained checkpoint to copy to --checkpoint, instead of fresh weights.",
        ),
    ] = None,
    seed: Seed = JobOptions.seed,
    samples: Samples = None,
    dataset: DataSet = None,
    scale: Scale = None,
) -> dict[str, object]:
    """Prepare the data set of a model, so that a later, measured job need not make it.

    Example: python -m tracer.workloads prepare lenet --output /tmp/lenet --scale 0.1
    """
    models.find_model(model)
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
    from tracer.workloads.prepare import prepare as run

    return run(options, checkpoint, trained)


@app.command("versions")
def show_versions() -> dict[str, object]:
    """Print the versions that a job would run on: Python, packages and our own code."""
    from tracer.workloads.containers.versions import versions

    return {**versions()}


def check(arguments: Sequence[str]) -> None:
    """Parses a command line without running it. Raises JobError for a mistake in it."""
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
    """Runs the command line and returns the exit status. Only this function prints errors."""
    # Before it ends, Python would look for garbage among all objects of PyTorch, for 0.3 s.
    atexit.register(gc.freeze)
    try:
        found = app(prog_name=_PROGRAM, standalone_mode=False)
        if isinstance(found, dict):
            typer.echo(json.dumps(found, allow_nan=False))
    except TracerError as error:
        return _complain(str(error), error.exit_code)
    except typer.TyperException as error:
        message = error.format_message().rstrip(".")
        return _complain(f"{message}; see `{_PROGRAM} --help`", ExitCode.USAGE)
    except ModuleNotFoundError as error:
        if (error.name or "").startswith("tracer.workloads."):
            return _complain("this image can only serve; use the training image", ExitCode.USAGE)
        missing = _PACKAGES.get(error.name or "")
        if missing is None:
            raise
        return _complain(f"{missing} is not installed; {MEND_EXTRA}", ExitCode.FEATURE_MISSING)
    except OSError as error:
        about = f"{error.filename}: " if error.filename else ""
        return _complain(f"the system refused: {about}{error.strerror or error}", ExitCode.FAILURE)
    return found if isinstance(found, int) else 0


def _complain(line: str, status: int) -> int:
    sys.stderr.write(f"error: {line}\n")
    return status
