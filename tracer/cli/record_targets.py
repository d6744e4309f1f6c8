"""The options of `tracer record` that name targets, and the default name of a trace."""

from __future__ import annotations

import re
import time
from pathlib import Path
from typing import Annotated

import typer

_TARGETS = "Targets"
"""The group of these options on the help page."""
_MOST_OF_A_NAME = 100

Pids = Annotated[
    list[str] | None,
    typer.Option(
        "-p",
        "--pid",
        metavar="PID,..",
        help="Processes to record, with their children. Can be repeated.",
        rich_help_panel=_TARGETS,
    ),
]
Containers = Annotated[
    list[str] | None,
    typer.Option(
        "--container",
        metavar="NAME,..",
        help="Containers to record, by name or id; in Kubernetes POD/CONTAINER. Can be repeated.",
        rich_help_panel=_TARGETS,
    ),
]
Engine = Annotated[
    str,
    typer.Option(
        "--engine",
        metavar="NAME",
        help="Engine of the containers: {engines}.",
        rich_help_panel=_TARGETS,
    ),
]
Wait = Annotated[
    bool,
    typer.Option(
        "--wait",
        help="Await Docker containers that do not run yet; record them from their start.",
        rich_help_panel=_TARGETS,
    ),
]
Daemon = Annotated[
    bool,
    typer.Option(
        "--docker-daemon",
        help="Record dockerd, containerd and the shims.",
        rich_help_panel=_TARGETS,
    ),
]
DockerCli = Annotated[
    int | None,
    typer.Option(
        "--docker-cli",
        min=1,
        metavar="PID",
        help="Process that runs docker commands; it and its children get the role daemon.",
        rich_help_panel=_TARGETS,
    ),
]
Cgroups = Annotated[
    list[str] | None,
    typer.Option(
        "--cgroup",
        metavar="PATH",
        help="Cgroup to record, with the cgroups below it. Can be repeated.",
        rich_help_panel=_TARGETS,
    ),
]
Machine = Annotated[
    bool,
    typer.Option(
        "-a", "--all", help="Record every process of the machine.", rich_help_panel=_TARGETS
    ),
]
Baseload = Annotated[
    bool,
    typer.Option(
        "--baseload",
        help="Sample the idle machine without a target, for tracer report --baseload.",
        rich_help_panel=_TARGETS,
    ),
]


def trace_name(
    command: list[str] | None,
    pids: str | None,
    containers: list[str],
    daemon: bool,
    cgroups: list[str],
    baseload: bool,
) -> Path:
    """Returns the default name of a trace: the target and the time."""
    if command:
        what = Path(command[0]).name
    elif pids:
        what = f"pid-{pids.split(',')[0]}"
    elif containers:
        what = f"container-{containers[0]}"
    elif cgroups:
        what = f"cgroup-{Path(cgroups[0]).name}"
    elif baseload:
        what = "baseload"
    else:
        what = "docker-daemon" if daemon else "machine"
    what = re.sub(r"[^A-Za-z0-9_.-]+", "_", what)[:_MOST_OF_A_NAME]
    return Path(f"{what}-{time.strftime('%Y%m%d-%H%M%S')}.trace")
