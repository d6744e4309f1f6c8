"""List and run the papers' studies: whole experiments, one trace per run."""

from __future__ import annotations

import json
import os
import sys
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from tracer.cli.main import A_FOLDER, written_path
from tracer.probes.errors import ExitCode
from tracer.workloads.containers.engines import EngineName
from tracer.workloads.containers.limits import parse_bytes
from tracer.workloads.errors import JobError
from tracer.workloads.modes.setting import PowerModes
from tracer.workloads.studies import study as studies

if TYPE_CHECKING:
    from tracer.workloads.studies.runner import Progress

study = typer.Typer(help="List and run the papers' studies: whole experiments, one trace per run.")


@study.command("list")
def list_studies() -> None:
    """List the studies with the number of runs of each."""
    for name, path in studies.shipped().items():
        loaded = studies.load(str(path))
        runs = f"{len(loaded.runs)} runs"
        typer.echo(f"{name:16} {runs:>9}  {loaded.about}")


@study.command("run")
def run(
    name: Annotated[
        str, typer.Argument(metavar="STUDY", help="Name that `list` shows, or a TOML file.")
    ],
    output: Annotated[
        Path | None,
        typer.Option(
            "-o",
            "--output",
            parser=written_path(A_FOLDER),
            metavar="DIR",
            help="Folder of the study. Default: STUDY.study.",
        ),
    ] = None,
    scale: Annotated[
        float | None,
        typer.Option(metavar="SHARE", help="Share of the papers' samples. Default: the study's."),
    ] = None,
    time_scale: Annotated[
        float | None,
        typer.Option(
            metavar="FACTOR",
            help="Factor for the timers of the kernel's flusher and of the journal, set for each "
            "run. Default: the study's, or 1.",
        ),
    ] = None,
    repeats: Annotated[
        int | None,
        typer.Option(min=1, metavar="N", help="Repeats of each run. Default: the study's."),
    ] = None,
    seed: Annotated[
        int, typer.Option(min=0, metavar="N", help="Seed of data, weights and the order of runs.")
    ] = 0,
    engine: Annotated[
        EngineName | None,
        typer.Option(
            metavar="NAME",
            help=f"Engine of the containers: {', '.join(EngineName)}. Default: the study's, or "
            f"{EngineName.DOCKER}.",
        ),
    ] = None,
    scratch: Annotated[
        str,
        typer.Option(
            metavar="SIZE",
            help="Size of the study's own file system; less if the disk has no room.",
        ),
    ] = "20g",
) -> None:
    """Run a study. The same command resumes a study that was stopped.

    Each run is recorded. It uses a file system of the study's own and starts
    with a dropped page cache. The seed determines the order of the runs. A
    failed run is kept with its reason, and the study goes on; to try it again,
    remove its folder runs/ID first. With more --repeats than before, the new
    repeats are added to the folder. The exit status is 1 if no run is done.

    [bold]Examples[/bold]

      sudo tracer study run quick

      sudo tracer study run park2023 --scale 0.01 --time-scale 0.1 -o park.study
    """
    if os.geteuid() == 0:
        # A killed study's power mode may lack CPUs that `threads` counts.
        with suppress(JobError), PowerModes(needed=False):
            pass
    loaded = studies.load(name, scale, repeats, seed, time_scale, engine)
    folder = output or Path(f"{loaded.name}.study")
    from tracer.workloads.studies.runner import run_study

    result = run_study(loaded, folder, parse_bytes(scratch), _show)
    typer.echo(json.dumps(result))
    if not result["done"]:
        raise typer.Exit(ExitCode.FAILURE)


def _show(progress: Progress) -> None:
    ended = progress.done + progress.failed
    failed = f", {progress.failed} failed" if progress.failed else ""
    if progress.run is None:
        sys.stderr.write(f"{ended} of {progress.total} runs ended{failed}\n")
        return
    left = "" if progress.left_s is None else f", about {_time(progress.left_s)} left"
    sys.stderr.write(f"[{ended + 1}/{progress.total}] {progress.run.id}{failed}{left}\n")


def _time(seconds: float) -> str:
    if seconds < 90:
        return f"{seconds:.0f} s"
    minutes = round(seconds / 60)
    return f"{minutes} min" if minutes < 120 else f"{minutes / 60:.1f} h"
