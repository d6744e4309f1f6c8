"""Runs a study: one run after the other, each with its trace; resumes where it was stopped.

A study's folder:

    study.json          what was declared: a folder is of one study for good
    scratch.img         the file system of its own
    runs/ID/run.json    how the run went; there once it has ended, done or failed
    runs/ID/run.trace   what was recorded of it
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import shutil
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from workloads.containers.limits import Limits, parse_bytes
from workloads.errors import JobError, explained
from workloads.launch import Job, Ran, prepare, run_in_containers, run_on_host
from workloads.sessions import end_left
from workloads.studies import media
from workloads.studies.scratch import Scratch, drop_caches, fill_cache, require_root
from workloads.studies.speeds import SpeedTest, require_as_fast, require_limited
from workloads.studies.study import Run, Study
from workloads.studies.throttle import Throttle

STUDY = "study.json"
RUN = "run.json"
TRACE = "run.trace"
RUNS = "runs"
NOTE = "running.json"


@dataclass(frozen=True)
class Progress:
    """How far a study is: the run that begins, or none once all have ended."""

    done: int
    failed: int
    total: int
    run: Run | None
    left_s: float | None


def run_study(
    study: Study, folder: Path, scratch_bytes: int, show: Callable[[Progress], None]
) -> dict[str, object]:
    """Make every run that has not ended yet; gives how many were done and failed.

    Raises JobError where the folder is another study's or another runner's.
    """
    folder = folder.absolute()
    with explained(f"cannot use the folder {folder}", "name another one with -o"):
        (folder / RUNS).mkdir(parents=True, exist_ok=True)
    with _alone(folder):
        _declare(study, folder)
        end_left(folder / NOTE)
        _sweep()
        took: list[float] = []
        waiting = [run for run in study.runs if read(folder, run) is None]
        if waiting:
            require_root()
        for number, run in enumerate(waiting):
            left = sum(took) / len(took) * (len(waiting) - number) if took else None
            show(_progress(study, folder, run, left))
            began = time.monotonic()
            _make(study, run, folder, scratch_bytes)
            took.append(time.monotonic() - began)
        for medium in {run.factors.medium for run in study.runs}:
            Scratch(folder, scratch_bytes, media.find(medium)).remove()
        show(_progress(study, folder, None, 0.0))
        ended = [read(folder, run) for run in study.runs]
    return {
        "study": study.name,
        "folder": str(folder),
        "runs": len(study.runs),
        "done": sum(1 for one in ended if one and one["state"] == "done"),
        "failed": sum(1 for one in ended if one and one["state"] == "failed"),
    }


def read(folder: Path, run: Run) -> dict[str, Any] | None:
    """How a run went; None where it has not ended."""
    path = folder / RUNS / run.id / RUN
    try:
        found = json.loads(path.read_text())
    except (FileNotFoundError, ValueError):
        return None
    return found if isinstance(found, dict) and found.get("state") in ("done", "failed") else None


def _make(study: Study, run: Run, folder: Path, scratch_bytes: int) -> None:
    """Make one run from the start; what goes wrong in it is its result."""
    place = folder / RUNS / run.id
    shutil.rmtree(place, ignore_errors=True)  # of a run that was interrupted
    place.mkdir()
    factors = run.factors
    scratch = Scratch(folder, scratch_bytes, media.find(factors.medium))
    output = scratch.mount / "output"
    seed = ["--seed", str(study.seed), "--scale", str(study.scale)]
    job = Job(
        factors.model,
        factors.mode,
        output,
        options=[*factors.options(), *seed],
        record=place / TRACE,
        record_options=study.record,
        note=folder / NOTE,
        longest_s=study.longest_s,
    )
    facts: dict[str, Any] = {
        "study": study.name,
        "factors": asdict(factors),
        "repeat": run.repeat,
        "scale": study.scale,
        "began": time.time(),
    }
    try:
        with scratch:
            facts["dev"] = scratch.device
            shutil.rmtree(output, ignore_errors=True)
            facts |= _on_medium(prepare(job), run, scratch, study.image)
            shutil.rmtree(output, ignore_errors=True)
    except JobError as error:
        facts |= {"state": "failed", "reason": str(error), "summaries": []}
    except OSError as error:
        about = f"{error.filename}: " if error.filename else ""
        facts |= {"state": "failed", "reason": f"{about}{error.strerror}", "summaries": []}
    facts["ended"] = time.time()
    _write(place / RUN, facts)


def _on_medium(job: Job, run: Run, scratch: Scratch, image: str | None) -> dict[str, Any]:
    """Make the run with the cache and the medium that it asks for; its result."""
    medium = scratch.medium
    facts: dict[str, Any] = {"medium": {"name": medium.name}}
    with contextlib.ExitStack() as stack:
        test = None
        if medium.speed is not None:
            test = stack.enter_context(SpeedTest(scratch.mount, medium.speed))
            drop_caches()
            beneath = test.measure()
            require_as_fast(beneath, medium.speed, "what the medium lies on")
        if run.factors.cache == "dropped":
            drop_caches()
        elif job.data is not None:
            fill_cache(job.data)
        if test is not None and medium.speed is not None:
            limit = stack.enter_context(
                Throttle(scratch.device, medium.speed, scratch.mount.parent)
            )
            found = test.measure()
            require_limited(found, medium.speed)
            facts["medium"] |= {
                "stands_for": medium.about,
                "source": medium.source,
                "limited_by": limit.about,
                "asked": asdict(medium.speed),
                "measured": asdict(found),
                "without_limit": asdict(beneath),
            }
        return facts | _result(_run(job, run, scratch, image))


def _run(job: Job, run: Run, scratch: Scratch, image: str | None) -> Ran:
    factors = run.factors
    if not factors.containers:
        return run_on_host(job)
    memory = None if factors.memory is None else parse_bytes(factors.memory)
    speed = scratch.medium.speed and scratch.medium.speed.shared(factors.containers)
    limits = Limits(factors.cpus, memory, factors.seccomp, device=scratch.node, speed=speed)
    return run_in_containers(job, factors.containers, limits, image)


def _result(ran: Ran) -> dict[str, Any]:
    return {
        "state": "failed" if ran.failures else "done",
        "reason": "; ".join(ran.failures) or None,
        "summaries": ran.summaries,
        "versions": ran.versions,
        "image": ran.image,
    }


def _progress(study: Study, folder: Path, run: Run | None, left_s: float | None) -> Progress:
    ended = [found for one in study.runs if (found := read(folder, one)) is not None]
    failed = sum(1 for one in ended if one["state"] == "failed")
    return Progress(len(ended) - failed, failed, len(study.runs), run, left_s)


def _declare(study: Study, folder: Path) -> None:
    path = folder / STUDY
    told = json.loads(json.dumps(asdict(study)))
    try:
        before = json.loads(path.read_text())
    except FileNotFoundError:
        _write(path, told)
        return
    except ValueError:
        before = None
    if before != told:
        raise JobError(
            f"{folder} is of another study, or of other settings of it",
            "name another folder with -o, or give the same --scale, --repeats and --seed",
        )


def _sweep() -> None:
    """Remove containers of runners that were killed, where a daemon is there."""
    from workloads.containers import image
    from workloads.containers.run import remove_leftovers

    with contextlib.suppress(JobError), image.daemon() as client, image.told("clean up"):
        remove_leftovers(client)


def _write(path: Path, facts: dict[str, Any]) -> None:
    """All of it or nothing."""
    part = path.with_suffix(".part")
    part.write_text(json.dumps(facts, indent=1) + "\n")
    part.rename(path)


@contextlib.contextmanager
def _alone(folder: Path) -> Iterator[None]:
    fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise JobError(f"{folder} is being run already", "wait for it to end") from None
        yield
    finally:
        os.close(fd)
