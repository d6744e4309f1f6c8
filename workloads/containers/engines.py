"""The engines that can run jobs in containers, Docker and podman, and where they differ.

Both are used through Docker's SDK and their own commands, `docker` and `podman`, whose options are
the same. Docker's daemon serves the SDK. podman has no daemon: its API service runs for the time of
the run only.
"""

from __future__ import annotations

import os
import shutil
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

DEFAULT_HOST = "unix:///var/run/docker.sock"


class EngineName(StrEnum):
    """The names of the engines."""

    DOCKER = "docker"
    PODMAN = "podman"


@dataclass(frozen=True)
class Engine:
    """An engine.

    `title`: its name in an error. `mend`: a remedy when it refuses. `images`: prefix of the names
    of the images that are made here. `run`: options of its `run` command, and `create`: the same
    for the SDK. `awaited`: True if the recorder can await its containers and record its daemon.
    """

    name: EngineName
    title: str
    mend: str
    images: str = ""
    run: tuple[str, ...] = ()
    create: dict[str, Any] = field(default_factory=dict)
    awaited: bool = False

    def program(self) -> str | None:
        """Returns the path of its command; None if it is not installed."""
        return shutil.which(self.name)

    def command(self, program: str) -> list[str]:
        """Returns the beginning of a command line of `program`."""
        if self.name == EngineName.PODMAN:
            return [program]
        host = os.environ.get("DOCKER_HOST") or DEFAULT_HOST  # not that of Docker's context
        return [program, "--host", host]


_LOGS = "k8s-file"
"""podman's log driver that keeps stdout and stderr apart and needs no journal."""
ENGINES = {
    EngineName.DOCKER: Engine(
        EngineName.DOCKER,
        "the Docker daemon",
        "look at its log, and at the space on its disk (docker system df)",
        awaited=True,
    ),
    EngineName.PODMAN: Engine(
        EngineName.PODMAN,
        "podman",
        "look at `podman info`, and at the space on its disk (podman system df)",
        # A short name would be one of docker.io, and SELinux would deny the folders of the run.
        "localhost/",
        # podman waits 10 s for a container that is to be removed to end by SIGTERM.
        (f"--log-driver={_LOGS}", "--security-opt=label=disable", "--stop-signal=SIGKILL"),
        {"log_config": {"Type": _LOGS}, "stop_signal": "SIGKILL"},
    ),
}
