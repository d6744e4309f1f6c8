"""A job as a whole: on the host or in containers, its data made before, and recorded if asked.

The tracer is another program here, found beside the interpreter and told what to record.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path

from workloads import sessions
from workloads.containers.limits import Limits
from workloads.containers.versions import Versions, require_same, versions
from workloads.errors import BrokenJobError, JobError
from workloads.modes.cgroups import entering

_TRACING = "Tracing"
_FRESH = "fresh.pt"


@dataclass(frozen=True)
class Job:
    """What to run. `mode`: train (all four stages) or infer. `options`: of `python -m workloads`.

    `data` None: a folder beside the output, named for the set. `record` is the trace to make,
    `record_options` what else `tracer record` is told. `note`: where to say which session of
    processes runs it (`workloads.sessions`). `longest_s`: it is killed after so long. `cgroups`:
    joined before it begins on the host.
    """

    model: str
    mode: str
    output: Path
    data: Path | None = None
    options: list[str] = field(default_factory=list)
    record: Path | None = None
    record_options: list[str] = field(default_factory=list)
    note: Path | None = None
    longest_s: float | None = None
    cgroups: list[Path] = field(default_factory=list)

    def arguments(self, data: str, output: str, model: str) -> list[str]:
        """Of `python -m workloads`, with the folders as they are called where it runs."""
        found = [self.mode, self.model, "--data", data, "--output", output, *self.options]
        if self.mode == "infer":
            found += ["--checkpoint", f"{model}/{_FRESH}"]
        return found


@dataclass(frozen=True)
class Ran:
    """How it went: where, a summary for each job (None: it failed), failures, versions."""

    where: str
    summaries: list[dict[str, object] | None]
    failures: list[str]
    versions: Versions
    image: str | None = None


def prepare(job: Job) -> Job:
    """Make the data set and, for inference, a model: neither is to be paid by what is measured.

    Gives the job with its data folder. Raises JobError with the last words of what failed.
    """
    command = ["prepare", job.model, "--output", str(job.output), *_options_for_data(job.options)]
    if job.data is not None:
        command += ["--data", str(job.data)]
    if job.mode == "infer":
        command += ["--checkpoint", str(job.output / _FRESH)]
    made = sessions.run(_workloads(command), job.note)
    summary = _summary(made.stdout)
    if made.returncode or summary is None:
        raise JobError(_last_words(made.stderr))
    return replace(job, data=Path(str(summary["data"])))


def run_on_host(job: Job) -> Ran:
    """Run a prepared job as a process of this machine; its summary or why it failed."""
    command = _workloads(job.arguments(str(job.data), str(job.output), str(job.output)))
    if job.cgroups:
        command = entering(job.cgroups, command)
    if job.record is not None:
        command = [*_recorder(job), "--", *command]
    try:
        ended = sessions.run(command, job.note, job.longest_s)
    except subprocess.TimeoutExpired:
        from workloads.containers.run import took_too_long

        return Ran("host", [None], [took_too_long(job.longest_s)], versions())
    if ended.returncode:
        return Ran("host", [None], [_last_words(ended.stderr)], versions())
    return Ran("host", [_summary(ended.stdout)], [], versions())


def run_in_containers(job: Job, count: int, limits: Limits, image: str | None = None) -> Ran:
    """Run a prepared job `count` times at once, each in a container of its own.

    All share the data folder; the output of each is a folder of its own. Raises JobError where no
    daemon answers, BrokenJobError where the daemon refuses or the recorder does.
    """
    from workloads.containers import image as images
    from workloads.containers.run import ContainerJob, Containers, swept

    assert job.data is not None
    here = versions()
    with images.daemon() as client, swept(client):
        name = image or images.ensure(client, images.TRAINING)
        there = images.versions_in(client, name)
        require_same(here, there, f"the image {name}")
        jobs = []
        for number in range(count):
            called = f"traintrace-{job.model}-{os.getpid()}-{number}"
            output = job.output / f"container-{number}"
            marks = output / "marks"
            marks.mkdir(parents=True, exist_ok=True)
            jobs.append(
                ContainerJob(
                    called,
                    job.arguments("/data", "/output", "/model"),
                    {job.data: "/data", output: "/output", marks: "/marks", job.output: "/model"},
                    {"TRACER_MARKS": "/marks"},
                )
            )
        names = [one.name for one in jobs]
        with Containers(client, name, jobs, limits) as containers, _recording(job, names):
            containers.go()
            ended = containers.wait(job.longest_s)
    failures = [f"{one.name}: {one.failure}" for one in ended if one.failure]
    where = "container" if count == 1 else f"{count} containers"
    return Ran(where, [one.summary for one in ended], failures, there, name)


@contextlib.contextmanager
def _recording(job: Job, containers: list[str]) -> Iterator[None]:
    """Record the containers and the daemon while the block runs."""
    if job.record is None:
        yield
        return
    command = [*_recorder(job), "--docker-daemon"]
    for name in containers:
        command += ["--container", name]
    with subprocess.Popen(
        command, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, start_new_session=True
    ) as recorder:
        assert recorder.stderr is not None
        sessions.say(job.note, recorder.pid)
        said = recorder.stderr.readline()
        if not said.decode("utf-8", "replace").startswith(_TRACING):
            recorder.kill()
            raise BrokenJobError(f"the recording did not begin: {_last_words(said)}")
        try:
            yield
        finally:
            recorder.send_signal(signal.SIGINT)
            rest = recorder.stderr.read()
            status = recorder.wait()
        if status:
            raise BrokenJobError(f"the recording failed: {_last_words(rest)}")


def _recorder(job: Job) -> list[str]:
    beside = Path(sys.executable).with_name("tracer")
    found = str(beside) if beside.exists() else shutil.which("tracer")
    if found is None:
        raise JobError("there is no command `tracer`", "pip install traintrace")
    return [found, "record", "-o", str(job.record), "--force", *job.record_options]


def _workloads(arguments: list[str]) -> list[str]:
    return [sys.executable, "-m", "workloads", *arguments]


def _options_for_data(options: list[str]) -> list[str]:
    """Those that say which data set is meant."""
    wanted = ("--seed", "--samples", "--dataset", "--scale")
    found = []
    for number, option in enumerate(options):
        name = option.partition("=")[0]
        if name in wanted:
            found.append(option)
            if "=" not in option:
                found += options[number + 1 : number + 2]
    return found


def _summary(said: bytes) -> dict[str, object] | None:
    lines = said.decode("utf-8", "replace").strip().splitlines()
    with contextlib.suppress(ValueError):
        found = json.loads(lines[-1]) if lines else None
        return found if isinstance(found, dict) else None
    return None


def _last_words(said: bytes) -> str:
    lines = [line.strip() for line in said.decode("utf-8", "replace").splitlines() if line.strip()]
    words = lines[-1] if lines else "it said nothing"
    return words.removeprefix("error: ").removeprefix("tracer: ")[:300]
