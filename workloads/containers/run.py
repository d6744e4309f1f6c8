"""Jobs in containers, one job in each. They start together and are always removed."""

from __future__ import annotations

import contextlib
import errno
import json
import os
import time
from collections.abc import Iterator
from concurrent import futures
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

from docker.errors import APIError, DockerException, NotFound

from tracer.workloads.containers.connection import Client, told
from tracer.workloads.containers.image import python_command
from tracer.workloads.containers.limits import Limits
from tracer.workloads.containers.starter import Starter
from tracer.workloads.errors import REACHED, BrokenJobError, took_too_long
from tracer.workloads.interrupt import held
from tracer.workloads.owner import OWNER, has_ended, myself

if TYPE_CHECKING:
    from docker.models.containers import Container

# The job itself begins with the exec, once the other end of the pipe is opened.
_GATE = "import os, sys; open(sys.argv[1]).close(); os.execv(sys.argv[2], sys.argv[2:])"
_ROUND_S = 0.02
_START_S = 60
_LOG_LINES = 40


@dataclass(frozen=True)
class ContainerJob:
    """One container.

    `arguments` are those of `python -m tracer.workloads`; `folders` are paths inside by path on the
    host.
    """

    name: str
    arguments: list[str]
    folders: dict[Path, str]
    environment: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Ended:
    """The end of a container's job: exit status, summary (None: it gave none), why it failed."""

    name: str
    status: int
    summary: dict[str, object] | None
    failure: str | None


class Containers:
    """The containers that run jobs. A context manager: its exit removes them."""

    def __init__(
        self,
        client: Client,
        image: str,
        jobs: list[ContainerJob],
        limits: Limits,
        gates: Path,
        cli: Starter | None = None,
    ) -> None:
        """`gates` is an empty folder for their gates.

        `cli` runs the engine's command to start and to remove them; without it, the SDK does.
        """
        self._client = client
        self._cli = cli
        self._image = image
        self._jobs = jobs
        self._limits = limits
        self._started: list[Container] = []
        self._gates = gates

    def __enter__(self) -> Containers:
        """Starts the containers. Each waits at its gate, a named pipe, until `go`.

        Raises BrokenJobError with the engine's reason.
        """
        try:
            with told(self._client.engine, "start the containers"):
                interpreter = python_command(self._client, self._image)
                for job in self._jobs:
                    self._start(job, interpreter)
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _start(self, job: ContainerJob, interpreter: list[str]) -> None:
        os.mkfifo(self._gates / job.name, 0o666)
        volumes = {str(here): {"bind": there, "mode": "rw"} for here, there in job.folders.items()}
        volumes[str(self._gates)] = {"bind": "/gate", "mode": "ro"}
        command = [*interpreter, "-m", "tracer.workloads", *job.arguments]
        command = [*interpreter, "-S", "-c", _GATE, f"/gate/{job.name}", *_absolute(command)]
        with held():  # a container that was made, but is not in `_started`, would stay
            if self._cli is not None:
                self._run(self._cli, job, volumes, command)
                return
            container = self._client.containers.create(
                self._image,
                command[1:],
                entrypoint=command[:1],  # podman's service takes "" for none given
                name=job.name,
                labels={OWNER: myself()},
                volumes=volumes,
                environment=job.environment,
                network_mode="none",
                **self._limits.options(),
                **self._client.engine.create,
            )
            self._started.append(container)
            container.start()

    def _run(
        self,
        cli: Starter,
        job: ContainerJob,
        volumes: dict[str, dict[str, str]],
        command: list[str],
    ) -> None:
        options = [f"--volume={here}:{at['bind']}:{at['mode']}" for here, at in volumes.items()]
        options += [f"--env={name}={value}" for name, value in job.environment.items()]
        options += [f"--name={job.name}", f"--label={OWNER}={myself()}", "--network=none"]
        options += [
            "--detach",
            f"--entrypoint={command[0]}",
            "--pull=never",
            *self._limits.arguments(),
        ]
        options += self._client.engine.run
        try:
            cli.run("run", *options, self._image, *command[1:])
        finally:
            with contextlib.suppress(NotFound):  # it was not even made
                self._started.append(self._client.containers.get(job.name))

    def go(self) -> None:
        """Lets all jobs begin. Raises BrokenJobError if a container does not reach its gate."""
        deadline = time.monotonic() + _START_S
        for job, container in zip(self._jobs, self._started, strict=True):
            while not _open_gate(self._gates / job.name):
                self._reload(job, container)
                if container.status == "exited" or time.monotonic() > deadline:
                    raise BrokenJobError(
                        f"container {job.name} did not start: {_last_words(container)}",
                        "check that the image runs `python -m tracer.workloads versions`",
                    )
                time.sleep(_ROUND_S)

    def _reload(self, job: ContainerJob, container: Container) -> None:
        with told(self._client.engine, "report the state of the containers"):
            try:
                container.reload()
            except NotFound:
                raise BrokenJobError(
                    f"container {job.name} was removed before its job began",
                    "find out who removes containers here, then run the job again",
                ) from None

    def wait(self, longest_s: float | None = None) -> list[Ended]:
        """Waits until all have ended, and returns how each ended.

        Kills the others once one has failed, since the run has failed then. Kills all that run
        longer than `longest_s` seconds.
        """
        containers = self._started
        with (
            told(self._client.engine, "report how the containers ended"),
            futures.ThreadPoolExecutor(max(1, len(containers))) as pool,
        ):
            try:
                ends = [pool.submit(_status, container) for container in containers]
                why = _wait(ends, longest_s)
                killed = [not end.done() for end in ends]
                for container, late in zip(containers, killed, strict=True):
                    if late:
                        with contextlib.suppress(APIError):  # it has ended just now
                            container.kill()
                found = []
                for job, container, end in zip(self._jobs, containers, ends, strict=True):
                    found.append(_ended(job.name, end.result(), container))
            except BaseException:
                self.close()  # otherwise the threads would wait for ever
                raise
        return [replace(e, failure=why) if k else e for e, k in zip(found, killed, strict=True)]

    def ended(self, number: int) -> bool:
        """Returns whether the container of this number has ended."""
        container = self._started[number]
        with told(self._client.engine, "report the state of the containers"):
            container.reload()
        return bool(container.status == "exited")

    def terminate(self) -> None:
        """Sends SIGTERM to the containers that still run."""
        for container in self._started:
            with contextlib.suppress(APIError):  # it has ended
                container.kill(signal="SIGTERM")

    def close(self) -> None:
        """Removes the containers, running or not. It may be called more than once.

        Ctrl-C waits until they are removed.
        """
        with held():
            for container in self._started:
                if self._cli is not None:
                    with contextlib.suppress(BrokenJobError):
                        self._cli.run("rm", "--force", "--volumes", str(container.id))
                with contextlib.suppress(DockerException):  # mostly, it is removed by now
                    container.remove(force=True, v=True)
            self._started = []


def _status(container: Container) -> int:
    return int(container.wait(timeout=None)["StatusCode"])


def _wait(ends: list[futures.Future[int]], longest_s: float | None) -> str | None:
    """Waits until all have ended, or returns the reason for which it stops waiting."""
    until = None if longest_s is None else time.monotonic() + longest_s
    running = set(ends)
    while running:
        left = None if until is None else max(0.0, until - time.monotonic())
        done, running = futures.wait(running, left, futures.FIRST_COMPLETED)
        if not done:
            return took_too_long(longest_s)
        if any(end.result() for end in done):
            return "killed because another container of the run failed"
    return None


def remove_leftovers(client: Client) -> list[str]:
    """Removes the containers of runs whose own process was killed; returns their names.

    A container that runs survives no boot of its machine: with a label of another boot, it belongs
    to a run on another machine that uses the same daemon.
    """
    removed = []
    for container in client.containers.list(
        all=True, ignore_removed=True, filters={"label": OWNER}
    ):
        here = container.status in ("exited", "dead")
        if has_ended(container.labels.get(OWNER, ""), here):
            with contextlib.suppress(NotFound):
                container.remove(force=True, v=True)
                removed.append(str(container.name))
    return removed


def _absolute(command: list[str]) -> list[str]:
    """Returns the command with an absolute path. execv does not search PATH; env(1) does."""
    return command if command[0].startswith("/") else ["/usr/bin/env", *command]


def _open_gate(gate: Path) -> bool:
    try:
        os.close(os.open(gate, os.O_WRONLY | os.O_NONBLOCK))
    except OSError as error:
        if error.errno != errno.ENXIO:  # nobody waits there yet
            raise
        return False
    return True


def _ended(name: str, status: int, container: Container) -> Ended:
    try:
        container.reload()
    except NotFound:
        return Ended(name, status, None, "the container was removed from outside")
    state = container.attrs.get("State", {})
    failure = None
    if state.get("OOMKilled"):
        failure = REACHED
    elif status > 128:
        failure = f"killed by signal {status - 128}"
    elif status:
        failure = _last_words(container)
    summary = None
    lines = container.logs(stdout=True, stderr=False, tail=1).decode("utf-8", "replace")
    with contextlib.suppress(ValueError):
        said = json.loads(lines)
        summary = said if isinstance(said, dict) else None
    if failure is None and summary is None:
        failure = "it gave no summary"
    return Ended(name, status, summary, failure)


def _last_words(container: Container) -> str:
    said = container.logs(stdout=False, stderr=True, tail=_LOG_LINES).decode("utf-8", "replace")
    lines = [line for line in said.splitlines() if line.strip()]
    return lines[-1].strip()[:300] if lines else "it printed nothing"


@contextlib.contextmanager
def swept(client: Client) -> Iterator[None]:
    """Removes the containers that killed runs have left, then runs the block."""
    with told(client.engine, "remove the containers of an earlier run"):
        remove_leftovers(client)
    yield
