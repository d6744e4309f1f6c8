"""List and run the papers' workloads, on the host and in containers."""

from __future__ import annotations

import json
import sys
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer

from tracer.cli.main import A_FOLDER, A_TRACE, named_path, written_path
from tracer.workloads import models
from tracer.workloads.cli import list_models
from tracer.workloads.containers.engines import EngineName
from tracer.workloads.containers.limits import Limits, parse_bytes
from tracer.workloads.errors import JobError, require_torch

workload = typer.Typer(help="List and run the papers' workloads, on the host and in containers.")

_EXTRA = {"allow_extra_args": True, "ignore_unknown_options": True}


class Mode(StrEnum):
    """The kind of job.

    `train`: data load, model load, training and inference. `infer`: the same without training.
    `serve`: a server of the model, to which a client sends requests at a fixed rate.
    """

    TRAIN = "train"
    INFER = "infer"
    SERVE = "serve"


workload.command("list")(list_models)


@workload.command("run", context_settings=_EXTRA)
def run(
    context: typer.Context,
    model: Annotated[str, typer.Argument(help="Model name; `list` shows them.", metavar="MODEL")],
    mode: Annotated[
        Mode,
        typer.Option(
            metavar="NAME",
            help="train: train and then infer; infer: only infer; serve: answer requests.",
        ),
    ] = Mode.TRAIN,
    rate: Annotated[
        float | None,
        typer.Option(metavar="N", help="With --mode serve: requests per second to each server."),
    ] = None,
    requests: Annotated[
        int | None,
        typer.Option(metavar="N", help="With --mode serve: requests to send; or give --seconds."),
    ] = None,
    seconds: Annotated[
        float | None,
        typer.Option(
            metavar="SECONDS", help="With --mode serve: time to send for; or give --requests."
        ),
    ] = None,
    checkpoint: Annotated[
        Path | None,
        typer.Option(
            parser=named_path,
            metavar="FILE",
            help="With --mode serve or infer: the checkpoint.pt of a training. Default: fresh "
            "weights.",
        ),
    ] = None,
    containers: Annotated[
        int,
        typer.Option(
            min=0, max=64, metavar="N", help="Number of containers at once; 0: run on the host."
        ),
    ] = 0,
    output: Annotated[
        Path | None,
        typer.Option(
            "-o",
            "--output",
            parser=written_path(A_FOLDER),
            metavar="DIR",
            help="Folder for the job's files. Default: runs/<model>.",
        ),
    ] = None,
    data: Annotated[
        Path | None,
        typer.Option(
            parser=written_path(A_FOLDER),
            metavar="DIR",
            help="Folder of the data set. Default: a folder beside --output.",
        ),
    ] = None,
    record: Annotated[
        Path | None,
        typer.Option(
            parser=written_path(A_TRACE),
            metavar="DIR.trace",
            help="Record the run to this trace (as root).",
        ),
    ] = None,
    image: Annotated[
        str | None,
        typer.Option(metavar="IMAGE", help="Container image. Default: one made from this Python."),
    ] = None,
    engine: Annotated[
        EngineName,
        typer.Option(metavar="NAME", help=f"Engine of the containers: {', '.join(EngineName)}."),
    ] = EngineName.DOCKER,
    cpus: Annotated[
        float | None,
        typer.Option(metavar="N", help="CPUs that each container may use. Default: all."),
    ] = None,
    memory: Annotated[
        str | None,
        typer.Option(
            metavar="SIZE", help="Memory limit of each container, e.g. 2g. Default: none."
        ),
    ] = None,
    seccomp: Annotated[
        bool,
        typer.Option(
            "--seccomp/--no-seccomp", help="Use the engine's filter of system calls in containers."
        ),
    ] = True,
) -> None:
    """Run a workload with the papers' settings; other options go to the job.

    `python -m tracer.workloads train --help` lists the options of the job
    (--scale, --batch-size, --workers, --epochs, --seed, ...). The data set is
    made before the run. The result is one JSON object.

    [bold]Examples[/bold]

      tracer workload run lenet --scale 0.01

      tracer workload run lenet --containers 4 --scale 0.01 --record x.trace

      tracer workload run lenet --mode infer --containers 1 --cpus 1

      tracer workload run lenet --engine podman --containers 1 --scale 0.01

    With --mode serve, a server of the model runs on the host or in containers of
    the deployment image, with the weights of --checkpoint. One client per server
    sends it samples of the test set at --rate over a Unix socket. The recording
    leaves out the client. --handlers, --threads, --device and --patience go to
    the server (see `python -m tracer.workloads serve --help`), all other options
    (--arrivals, --connections, --timeout, ...) to the client (`request --help`):

      tracer workload run lenet --mode serve --rate 50 --seconds 10
    """
    models.find_model(model)
    load = _load(mode, rate, requests, seconds)
    limits = Limits(cpus, None if memory is None else parse_bytes(memory), seccomp)
    if checkpoint is not None and mode is Mode.TRAIN:
        raise JobError("a training makes its checkpoint", "give --mode serve or --mode infer")
    if not containers and (image or limits != Limits() or engine is not EngineName.DOCKER):
        raise JobError("images, limits and engines are only for containers", "give --containers 1")
    from tracer.workloads.launch import check_engine, prepare, run_in_containers, run_on_host
    from tracer.workloads.whole_job import Job

    job = Job(
        model,
        mode.value,
        (output or Path("runs") / model).absolute(),
        None if data is None else data.absolute(),
        [*context.args, *load],
        record,
        checkpoint=None if checkpoint is None else checkpoint.absolute(),
    )
    if containers:
        require_torch()
        check_engine(engine, image)  # before the data is made, which takes a while
    job = prepare(job)
    if containers:
        ran = run_in_containers(job, containers, limits, image, engine)
    else:
        ran = run_on_host(job)
    result: dict[str, Any] = {
        "model": model,
        "mode": mode.value,
        "where": ran.where,
        "jobs": ran.summaries,
        "failures": ran.failures,
        "weights": job.weights or None,
        "image": ran.image,
        "versions": ran.versions,
        "trace": None if record is None else str(record.absolute()),
    }
    sys.stdout.write(json.dumps(result, allow_nan=False) + "\n")
    if ran.failures:
        raise JobError(f"the run failed: {'; '.join(ran.failures)}"[:1000])


def _load(mode: Mode, rate: float | None, requests: int | None, seconds: float | None) -> list[str]:
    """Returns the client's options. Raises JobError for a wrong combination."""
    given = {"--rate": rate, "--requests": requests, "--seconds": seconds}
    found = [word for name, v in given.items() if v is not None for word in (name, str(v))]
    if mode is not Mode.SERVE and found:
        raise JobError(f"{found[0]} applies only to servers", "give --mode serve")
    if mode is Mode.SERVE and (rate is None or (requests is None) == (seconds is None)):
        raise JobError(
            "--mode serve needs a rate and an end", "give --rate and one of --requests, --seconds"
        )
    return found
