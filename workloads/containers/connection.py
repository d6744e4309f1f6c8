"""Connections to engines, through Docker's SDK."""

from __future__ import annotations

import contextlib
import os
import socket
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import docker
from docker.errors import APIError, BuildError, DockerException
from requests.exceptions import RequestException

from tracer.workloads import sessions
from tracer.workloads.containers.engines import DEFAULT_HOST, ENGINES, Engine, EngineName
from tracer.workloads.errors import BrokenJobError, JobError, MissingFeatureError, RefusedJobError
from tracer.workloads.run_folder import run_folder

_TIMEOUT_S = 120
_START_S = 30
_ROUND_S = 0.02
# The service ends with this process, however this process ends: PR_SET_PDEATHSIG, SIGTERM.
_TIED = (
    "import ctypes, os, sys; ctypes.CDLL(None).prctl(1, 15); os.execv(sys.argv[1], sys.argv[1:])"
)
_MOST_SAID = 64 << 10


class Client(docker.DockerClient):  # type: ignore[misc]  # the SDK has no types
    """A connection to an engine."""

    engine: Engine


@contextlib.contextmanager
def connected(name: EngineName, note: Path | None = None) -> Iterator[Client]:
    """Connects to an engine. Raises JobError, with the remedy, if it cannot be used.

    `note` is that of `sessions.begun`.
    """
    with contextlib.ExitStack() as stack:
        if name == EngineName.PODMAN:
            client = Client(stack.enter_context(_podman(note)), timeout=_TIMEOUT_S)
        else:
            client = _docker()
        client.engine = ENGINES[name]
        stack.callback(client.close)
        yield client


@contextlib.contextmanager
def told(engine: Engine, what: str) -> Iterator[None]:
    """Turns a refusal by an engine into a BrokenJobError: what it could not do, and why."""
    try:
        yield
    except (APIError, BuildError, DockerException, RequestException) as error:
        raise BrokenJobError(
            f"{engine.title} could not {what}: {one_line(error)}", engine.mend
        ) from error


def one_line(error: BaseException) -> str:
    """Returns the reason that an error of the SDK gives, as one line."""
    text = str(getattr(error, "explanation", None) or error)
    return " ".join(text.split())[:300]


def _docker() -> Client:
    scheme, _, path = (os.environ.get("DOCKER_HOST") or DEFAULT_HOST).partition("://")
    try:
        if scheme == "unix":  # the SDK leaves a socket open if nobody listens
            with socket.socket(socket.AF_UNIX) as asking:
                asking.connect(path)
        client: Client = Client.from_env(timeout=_TIMEOUT_S)
        client.ping()
    except (DockerException, OSError) as error:
        kind = RefusedJobError if isinstance(error, PermissionError) else MissingFeatureError
        raise kind(
            f"no Docker daemon answers at {os.environ.get('DOCKER_HOST', 'its usual socket')} "
            f"({one_line(error)})",
            "start it (systemctl start docker, or dockerd &), or set DOCKER_HOST",
        ) from None
    return client


@contextlib.contextmanager
def _podman(note: Path | None) -> Iterator[str]:
    """Runs podman's API service for the time of the block. Yields its address."""
    program = ENGINES[EngineName.PODMAN].program()
    if program is None:
        raise MissingFeatureError(
            "podman is not installed", "apt-get install podman, or --engine docker"
        )
    with run_folder() as folder, tempfile.TemporaryFile() as said:
        path = folder / "podman.sock"
        command = [sys.executable, "-S", "-E", "-c", _TIED]
        command += [program, "system", "service", "--time=0", f"unix://{path}"]
        with sessions.begun(command, note, said, said) as service:
            deadline = time.monotonic() + _START_S
            while not _listens(path):
                if service.poll() is not None or time.monotonic() > deadline:
                    said.seek(0)
                    words = said.read(_MOST_SAID).decode("utf-8", "replace").strip().splitlines()
                    raise JobError(
                        f"podman does not run ({words[-1].strip()[:300] if words else 'silent'})",
                        "`podman info` shows whether it works, and its configuration",
                    )
                time.sleep(_ROUND_S)
            yield f"unix://{path}"


def _listens(path: Path) -> bool:
    with socket.socket(socket.AF_UNIX) as asking:
        return asking.connect_ex(str(path)) == 0
