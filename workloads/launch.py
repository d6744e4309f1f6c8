"""A whole job: its data is made first, then it runs on the host or in containers.

The job is recorded if asked. The tracer is a separate program here: the command `tracer` beside
the interpreter.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from tracer.workloads import sessions
from tracer.workloads.containers.engines import Engine, EngineName
from tracer.workloads.containers.limits import Limits
from tracer.workloads.containers.versions import (
    DEPLOYMENT,
    TRAINING,
    require_same,
    versions,
)
from tracer.workloads.errors import (
    REACHED,
    BrokenJobError,
    MissingFeatureError,
    kind_of,
    took_too_long,
)
from tracer.workloads.modes.cgroups import entering, out_of_memory
from tracer.workloads.run_folder import run_folder
from tracer.workloads.serving import unix
from tracer.workloads.serving.drive import SOCKET, Server, drive, left
from tracer.workloads.whole_job import WEIGHTS, Job, Ran

if TYPE_CHECKING:
    from tracer.workloads.containers.run import ContainerJob
    from tracer.workloads.containers.starter import Starter

_TRACING = "Tracing"


def prepare(job: Job) -> Job:
    """Makes the data set and, unless the job trains, a model, so that the measured run need not.

    Returns the job with its data folder and facts about the weights. Raises JobError for a wrong
    option, before anything is made, and with the last line of a failed preparation.
    """
    job.check()
    own = job.data_options()
    command = ["prepare", job.model, "--output", str(job.output), *own]
    if job.data is not None:
        command += ["--data", str(job.data)]
    if job.mode != "train":
        command += ["--checkpoint", str(job.output / WEIGHTS)]
    if job.checkpoint is not None:
        command += ["--trained", str(job.checkpoint)]
    made = sessions.run(_workloads(command), job.note)
    summary = _summary(made.stdout)
    if made.returncode or summary is None:
        raise kind_of(made.returncode)(_last_words(made.stderr))
    weights = summary["weights"]
    assert isinstance(weights, dict)  # our own process wrote it
    return replace(job, data=Path(str(summary["data"])), weights=weights)


def run_on_host(job: Job) -> Ran:
    """Runs a prepared job as a process of this machine. Returns its summary or its failure."""
    try:
        summary = _serve_on_host(job) if job.mode == "serve" else _run_on_host(job)
    except subprocess.TimeoutExpired:
        return Ran("host", [None], [took_too_long(job.longest_s)], versions())
    except _FailedError as failure:
        return Ran("host", [None], [str(failure)], versions())
    return Ran("host", [summary], [], versions())


class _FailedError(Exception):
    """A failed job; the text is the reason."""


def _run_on_host(job: Job) -> dict[str, object] | None:
    arguments = job.arguments(str(job.data), str(job.output), str(job.output))
    return _told(job, sessions.run(_command(job, arguments), job.note, job.longest_s))


def _serve_on_host(job: Job) -> dict[str, object]:
    until = _until(job)
    with run_folder() as folder:
        socket = folder / SOCKET
        command = _command(job, job.server_arguments(str(job.output), str(socket)))
        with sessions.started(command, job.note) as running:
            server = Server(socket, lambda: running.process.poll() is not None)
            try:
                (client,) = drive(job.model, [server], _client(job), job.note, until)
            except BrokenJobError as error:
                if running.process.poll() is not None:
                    _told(job, running.wait())
                raise _FailedError(str(error)) from None
            with contextlib.suppress(OSError):  # it has ended; its exit status is checked below
                os.kill(unix.listener(str(socket)), signal.SIGTERM)
            ended = running.wait(left(until))
    return _served(_told(job, ended), client)


def _command(job: Job, arguments: list[str]) -> list[str]:
    command = _workloads(arguments)
    if job.cgroups:
        command = entering(job.cgroups, command)
    if job.record is None:
        return command
    linger = ["--linger", f"{job.linger_s:g}"] if job.linger_s else []
    # Quiet: the last words of a job that fails are its own.
    return [*_recorder(job), "--quiet", *linger, "--", *command]


def _client(job: Job) -> list[str]:
    return _workloads(job.client_arguments())


def _until(job: Job) -> float | None:
    return None if job.longest_s is None else time.monotonic() + job.longest_s


def _told(job: Job, ended: subprocess.CompletedProcess[bytes]) -> dict[str, object] | None:
    """Returns the summary of a job that has ended. Raises _FailedError with the reason."""
    if ended.returncode and out_of_memory(job.cgroups):
        raise _FailedError(REACHED)
    # The recorder passes on the status of a shell: 128 and the signal's number.
    number = -ended.returncode if ended.returncode < 0 else ended.returncode - 128
    if number > 0:
        raise _FailedError(f"killed by signal {number}")
    if ended.returncode:
        raise _FailedError(_last_words(ended.stderr))
    return _summary(ended.stdout)


def _served(
    server: dict[str, object] | None, client: subprocess.CompletedProcess[bytes]
) -> dict[str, object]:
    """Returns the summaries of server and client. Raises _FailedError if nothing was answered."""
    if client.returncode:
        raise _FailedError(f"the client failed: {_last_words(client.stderr)}")
    summary = _summary(client.stdout) or {}
    if server is None:
        raise _FailedError("the server gave no summary")
    if not summary.get("answered"):
        raise _FailedError(f"no request was answered: {summary.get('failed')}")
    return {"server": server, "client": summary}


def check_engine(engine: EngineName, image: str | None) -> None:
    """Raises JobError if the engine cannot be used, or does not have the image that was named."""
    from tracer.workloads.containers import image as images
    from tracer.workloads.containers.connection import connected

    with connected(engine) as client:
        if image is not None:
            images.require_image(client, image)


def run_in_containers(
    job: Job,
    count: int,
    limits: Limits,
    image: str | None = None,
    engine: EngineName = EngineName.DOCKER,
) -> Ran:
    """Runs a prepared job `count` times at once, each in a container of its own.

    All share the data folder; each has an output folder of its own. Each server has a client
    outside the container. Raises JobError if the engine cannot be used, and BrokenJobError if it
    or the recorder refuses.
    """
    from tracer.workloads.containers import image as images
    from tracer.workloads.containers.connection import connected
    from tracer.workloads.containers.run import Containers, swept
    from tracer.workloads.containers.starter import starter

    kind = DEPLOYMENT if job.mode == "serve" else TRAINING
    with connected(engine, job.note) as client, swept(client), run_folder() as folder:
        name = image or images.ensure(client, kind)
        there = images.versions_in(client, name)
        require_same(versions(kind), there, f"the image {name}")
        gates = folder / "gates"
        gates.mkdir()
        sockets = [folder / str(number) / SOCKET for number in range(count)]
        jobs = [_in_container(job, number, socket) for number, socket in enumerate(sockets)]
        names = [one.name for one in jobs]
        clients: list[subprocess.CompletedProcess[bytes]] = []
        failures: list[str] = []
        with contextlib.ExitStack() as stack:
            cli = stack.enter_context(starter(client.engine, job.note))
            recording = _recording(job, names, client.engine, cli)
            if client.engine.awaited:
                stack.enter_context(recording)
            containers = stack.enter_context(Containers(client, name, jobs, limits, gates, cli))
            if not client.engine.awaited:
                stack.enter_context(recording)
            containers.go()
            if job.mode == "serve":
                servers = [
                    Server(socket, partial(containers.ended, number))
                    for number, socket in enumerate(sockets)
                ]
                try:
                    clients = drive(job.model, servers, _client(job), job.note, _until(job))
                except BrokenJobError as error:
                    failures.append(str(error))
                except subprocess.TimeoutExpired:
                    failures.append(took_too_long(job.longest_s))
                containers.terminate()
            ended = containers.wait(job.longest_s)
    # The server's own error explains more than the missing answer.
    failures = [f"{one.name}: {one.failure}" for one in ended if one.failure] or failures
    summaries = [one.summary for one in ended]
    for number, asked in enumerate(clients):
        if ended[number].failure:
            continue
        try:
            summaries[number] = _served(summaries[number], asked)
        except _FailedError as failure:
            failures.append(f"{names[number]}: {failure}")
            summaries[number] = None
    where = "container" if count == 1 else f"{count} containers"
    return Ran(where, summaries, failures, there, name)


def _in_container(job: Job, number: int, socket: Path) -> ContainerJob:
    """Makes the folders of one container's part of the job, and returns that part."""
    from tracer.workloads.containers.run import ContainerJob

    assert job.data is not None
    output = job.output / f"container-{number}"
    marks = output / "marks"
    marks.mkdir(parents=True, exist_ok=True)
    folders = {output: "/output", marks: "/marks", job.output: "/model"}
    if job.mode == "serve":
        socket.parent.mkdir()
        folders[socket.parent] = "/serve"
        arguments = job.server_arguments("/model", f"/serve/{SOCKET}")
    else:
        folders[job.data] = "/data"
        arguments = job.arguments("/data", "/output", "/model")
    name = f"traintrace-{job.model}-{os.getpid()}-{number}"
    return ContainerJob(name, arguments, folders, {"TRACER_MARKS": "/marks"})


@contextlib.contextmanager
def _recording(
    job: Job, containers: list[str], engine: Engine, cli: Starter | None
) -> Iterator[None]:
    """Records the containers of a job.

    If the engine's containers can be awaited, the block starts and removes them, and its daemon
    and the commands that do this are recorded, too. Otherwise they wait at their gates.
    """
    if job.record is None:
        yield
        return
    command = [*_recorder(job), "--engine", engine.name]
    if engine.awaited:
        command += ["--docker-daemon", "--wait"]
        command += [] if cli is None else ["--docker-cli", str(cli.pid)]
    for name in containers:
        command += ["--container", name]
    with sessions.begun(command, job.note, subprocess.DEVNULL, subprocess.PIPE) as recorder:
        assert recorder.stderr is not None
        with recorder.stderr as words:
            said = words.readline()
            if not said.decode("utf-8", "replace").startswith(_TRACING):
                recorder.kill()
                raise BrokenJobError(f"the recording did not begin: {_last_words(said)}")
            try:
                yield
                time.sleep(job.linger_s)  # the recorder would wait for the daemon's end
            finally:
                recorder.send_signal(signal.SIGTERM)  # a background job may ignore SIGINT
                rest = words.read()
                status = recorder.wait()
        if status:
            raise BrokenJobError(f"the recording failed: {_last_words(rest)}")


def _recorder(job: Job) -> list[str]:
    beside = Path(sys.executable).with_name("tracer")
    found = str(beside) if beside.exists() else shutil.which("tracer")
    if found is None:
        raise MissingFeatureError("the command `tracer` is not installed", "pip install traintrace")
    return [found, "record", "-o", str(job.record), "--force", *job.record_options]


def _workloads(arguments: list[str]) -> list[str]:
    # -P: import installed modules, not modules of the working directory.
    return [sys.executable, "-P", "-m", "tracer.workloads", *arguments]


def _summary(said: bytes) -> dict[str, object] | None:
    lines = said.decode("utf-8", "replace").strip().splitlines()
    with contextlib.suppress(ValueError):
        found = json.loads(lines[-1]) if lines else None
        return found if isinstance(found, dict) else None
    return None


def _last_words(said: bytes) -> str:
    lines = [line.strip() for line in said.decode("utf-8", "replace").splitlines() if line.strip()]
    words = lines[-1] if lines else "it printed nothing"
    return words.removeprefix("error: ").removeprefix("tracer: ")[:300]
