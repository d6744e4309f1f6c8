"""List and run the papers' workloads, on the host and in containers."""

from __future__ import annotations

import json
import sys
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer

from workloads import models
from workloads.cli import list_models
from workloads.containers.limits import Limits, parse_bytes
from workloads.errors import JobError

workload = typer.Typer(help="List and run the papers' workloads, on the host and in containers.")

_EXTRA = {"allow_extra_args": True, "ignore_unknown_options": True}


class Mode(StrEnum):
    """`train`: data load, model load, training and inference. `infer`: without the training.

    `serve`: a server of the model, asked by a client at a rate.
    """

    TRAIN = "train"
    INFER = "infer"
    SERVE = "serve"


workload.command("list")(list_models)


@workload.command("run", context_settings=_EXTRA)
def run(
    context: typer.Context,
    model: Annotated[str, typer.Argument(help="A model that `list` names.", metavar="MODEL")],
    mode: Annotated[
        Mode, typer.Option(help="train ends with inference, too; serve: see below.")
    ] = Mode.TRAIN,
    rate: Annotated[
        float | None, typer.Option(help="serve: requests a second, to each server.")
    ] = None,
    requests: Annotated[int | None, typer.Option(help="serve: send so many requests.")] = None,
    seconds: Annotated[float | None, typer.Option(help="serve: or send them for so long.")] = None,
    containers: Annotated[
        int, typer.Option(min=0, max=64, help="So many containers at once; 0: on the host.")
    ] = 0,
    output: Annotated[
        Path | None,
        typer.Option(
            "-o", "--output", help="Folder for what the job writes. [default: runs/<model>]"
        ),
    ] = None,
    data: Annotated[
        Path | None,
        typer.Option(help="Folder of the data set. [default: beside --output]"),
    ] = None,
    record: Annotated[
        Path | None, typer.Option(metavar="T.trace", help="Record the run (as root).")
    ] = None,
    image: Annotated[
        str | None, typer.Option(help="An image of yours. [default: made of this Python]")
    ] = None,
    cpus: Annotated[float | None, typer.Option(help="CPUs that a container may use.")] = None,
    memory: Annotated[
        str | None, typer.Option(metavar="SIZE", help="Memory of a container, such as 2g.")
    ] = None,
    seccomp: Annotated[
        bool, typer.Option("--seccomp/--no-seccomp", help="Docker's filter of system calls.")
    ] = True,
) -> None:
    """Run a workload with the papers' settings; other options go to the job.

    What the job takes (--scale 0.01, --batch-size, --workers, --epochs,
    --seed, ...) is told by `python -m workloads train --help`. The data set is
    made before the run. One JSON object at the end. Examples:

      tracer workload run lenet --scale 0.01

      tracer workload run lenet --containers 4 --scale 0.01 --record x.trace

      tracer workload run lenet --mode infer --containers 1 --cpus 1

    With --mode serve a server of the model, with fresh weights, runs on the
    host or in containers of the deployment image. A client for each, outside
    of what is recorded, sends it samples of the test set at --rate, over a
    Unix socket. --handlers, --threads and --device go to the server, all
    else (--arrivals, --connections, --timeout, ...) to the client, as
    `python -m workloads serve --help` and `request --help` tell:

      tracer workload run lenet --mode serve --rate 50 --seconds 10
    """
    models.find(model)
    load = _load(mode, rate, requests, seconds)
    limits = Limits(cpus, None if memory is None else parse_bytes(memory), seccomp)
    if not containers and (image or limits != Limits()):
        raise JobError("only containers have images and limits", "give --containers 1")
    from workloads.interrupt import terminable
    from workloads.launch import Job, prepare, run_in_containers, run_on_host

    job = Job(
        model,
        mode.value,
        (output or Path("runs") / model).absolute(),
        None if data is None else data.absolute(),
        [*context.args, *load],
        record,
    )
    with terminable():
        job = prepare(job)
        ran = run_in_containers(job, containers, limits, image) if containers else run_on_host(job)
    result: dict[str, Any] = {
        "model": model,
        "mode": mode.value,
        "where": ran.where,
        "jobs": ran.summaries,
        "failures": ran.failures,
        "image": ran.image,
        "versions": ran.versions,
        "trace": None if record is None else str(record.absolute()),
    }
    sys.stdout.write(json.dumps(result, allow_nan=False) + "\n")
    if ran.failures:
        raise JobError(f"the run failed: {'; '.join(ran.failures)}"[:1000])


def _load(mode: Mode, rate: float | None, requests: int | None, seconds: float | None) -> list[str]:
    """The client's options."""
    given = {"--rate": rate, "--requests": requests, "--seconds": seconds}
    found = [word for name, v in given.items() if v is not None for word in (name, str(v))]
    if mode is not Mode.SERVE and found:
        raise JobError(f"{found[0]} is of servers", "give --mode serve")
    if mode is Mode.SERVE and (rate is None or (requests is None) == (seconds is None)):
        raise JobError(
            "a server is driven at a rate", "give --rate, and either --requests or --seconds"
        )
    return found
