"""Arguments that several commands of the workloads' command line take, and their checks."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Annotated

import typer

from tracer.workloads.options import CHECKPOINT_TIMES, Device

MANY = 1_000_000_000


def positive(value: float | None) -> float | None:
    """Checks an option: a finite number above 0, or none."""
    if value is not None and not (math.isfinite(value) and value > 0):
        raise typer.BadParameter("give a finite number above 0")
    return value


def when(value: str) -> str:
    """Checks an option that says when checkpoints are written."""
    if not CHECKPOINT_TIMES.fullmatch(value):
        raise typer.BadParameter("give epoch, end, or a number of steps")
    return value


Model = Annotated[str, typer.Argument(help="Model name; `list` shows them.", metavar="MODEL")]
Data = Annotated[
    Path | None,
    typer.Option(
        metavar="DIR",
        help="Folder of the data set. Existing files of the set are used unchanged. If the folder "
        "is absent or empty, a synthetic set is generated from the seed. "
        "[default: beside the output folder, named for the set, seed and samples]",
    ),
]
Samples = Annotated[
    int | None,
    typer.Option(
        metavar="N",
        min=1,
        max=10_000_000,
        help="Training samples to use; a generated set also gets a quarter as many for testing. "
        "[default: all of an existing set; 4096 generated ones, or 1024 JPEGs]",
    ),
]
DataSet = Annotated[
    str | None,
    typer.Option(
        metavar="SET", help="Data set name; `list` shows them. [default: the papers' choice]"
    ),
]
Scale = Annotated[
    float | None,
    typer.Option(
        metavar="SHARE",
        callback=positive,
        help="Share of the papers' training samples to use, such as 0.01.",
    ),
]
BatchSize = Annotated[int, typer.Option(metavar="N", min=1, max=MANY, help="Samples per step.")]
Workers = Annotated[
    int,
    typer.Option(
        metavar="N",
        min=0,
        max=256,
        help="DataLoader workers; 0: the job fetches the batches.",
    ),
]
Seed = Annotated[
    int,
    typer.Option(
        metavar="N",
        min=0,
        max=2**32 - 1,
        help="Seed of a generated set, the weights and the sample order.",
    ),
]
Threads = Annotated[
    int | None,
    typer.Option(metavar="N", min=1, max=1024, help="Threads of torch. [default: torch's choice]"),
]
DeviceOption = Annotated[
    Device, typer.Option("--device", help="Device to run on; auto uses CUDA if available.")
]
