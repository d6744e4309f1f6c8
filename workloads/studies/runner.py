"""Runs a study: one run after the other, each with its trace. Resumes a study that was stopped.

The folder of a study:

    study.json          the declaration; only --repeats may grow, all else is another study
    scratch.img         the study's own file system
    runs/ID/run.json    the result of the run, written when it has ended, done or failed
    runs/ID/run.trace   the recording of the run
    checkpoints/ID.pt   the last checkpoint of a training, while servings wait for it
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import stat
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

from tracer.store.checked import read_json
from tracer.store.files import as_invoking_user, invoking_user
from tracer.workloads.containers.engines import EngineName
from tracer.workloads.errors import JobError, explained, require_torch
from tracer.workloads.modes.setting import PowerModes
from tracer.workloads.sessions import end_left
from tracer.workloads.studies import media
from tracer.workloads.studies.checkpoints import Checkpoints
from tracer.workloads.studies.one_run import NOTE, RUNS, make, read, write
from tracer.workloads.studies.scratch import Scratch, require_root
from tracer.workloads.studies.study import Run, Study

STUDY = "study.json"
_MAX_BYTES = 16 << 20


@dataclass(frozen=True)
class Progress:
    """The progress of a study. `run`: the run that begins, None once all have ended."""

    done: int
    failed: int
    total: int
    run: Run | None
    left_s: float | None


def run_study(
    study: Study, folder: Path, scratch_bytes: int, show: Callable[[Progress], None]
) -> dict[str, object]:
    """Makes every run that has not ended yet. Returns the numbers of runs done and failed.

    Raises JobError if the folder belongs to another study, if another runner uses it, or without
    PyTorch, which makes the data of each run.
    """
    require_torch()
    folder = folder.absolute()
    mend = "name another folder with -o"
    with explained(f"cannot use the folder {folder}", mend), as_invoking_user():
        (folder / RUNS).mkdir(parents=True, exist_ok=True)
    with _alone(folder):
        _declare(study, folder)
        end_left(folder / NOTE)
        _sweep(study.engine, folder / NOTE)
        took: list[float] = []
        waiting = [run for run in study.runs if read(folder, run) is None]
        checkpoints = Checkpoints(folder, study.runs, partial(read, folder))
        sets = any(run.factors.sets_machine for run in waiting)
        modes = PowerModes(study.time_scale != 1 or sets)
        if waiting:
            require_root()
            with modes:
                for number, run in enumerate(waiting):
                    left = sum(took) / len(took) * (len(waiting) - number) if took else None
                    show(_progress(study, folder, run, left))
                    began = time.monotonic()
                    make(study, run, folder, scratch_bytes, modes, checkpoints)
                    checkpoints.tidy(waiting[number + 1 :])
                    took.append(time.monotonic() - began)
        for medium in {run.factors.medium for run in study.runs}:
            Scratch(folder, scratch_bytes, media.find_medium(medium)).remove()
        show(_progress(study, folder, None, 0.0))
        ended = [read(folder, run) for run in study.runs]
    return {
        "study": study.name,
        "folder": str(folder),
        "runs": len(study.runs),
        "done": sum(1 for one in ended if one and one["state"] == "done"),
        "failed": sum(1 for one in ended if one and one["state"] == "failed"),
    }


def _progress(study: Study, folder: Path, run: Run | None, left_s: float | None) -> Progress:
    ended = [found for one in study.runs if (found := read(folder, one)) is not None]
    failed = sum(1 for one in ended if one["state"] == "failed")
    return Progress(len(ended) - failed, failed, len(study.runs), run, left_s)


def _declare(study: Study, folder: Path) -> None:
    path = folder / STUDY
    told = json.loads(json.dumps(asdict(study)))
    try:
        before = read_json(path, dict[str, Any], _MAX_BYTES)
    except FileNotFoundError:
        write(path, told)
        return
    except (OSError, ValueError):
        before = None
    if before is not None:
        before.setdefault("engine", EngineName.DOCKER)  # folders of earlier versions
    if before == told:
        return
    if before is None or not _is_extended(before, told):
        raise JobError(
            f"{folder} belongs to another study, or to this study with other settings",
            "name another folder with -o, or give the same --scale, --time-scale and --seed, and as"
            " many --repeats or more",
        )
    write(path, told)


def _is_extended(before: dict[str, Any], told: dict[str, Any]) -> bool:
    """Returns whether a declaration is another one with more repeats, and the same otherwise."""
    grown = ("repeats", "runs")
    runs = before.get("runs")
    return (
        {key: value for key, value in before.items() if key not in grown}
        == {key: value for key, value in told.items() if key not in grown}
        and isinstance(runs, list)
        # The order is by repeat, and the seed draws the same order for the first ones.
        and runs == told["runs"][: len(runs)]
    )


def _sweep(engine: EngineName, note: Path) -> None:
    """Removes containers of killed runners if their engine can be used."""
    from tracer.workloads.containers.connection import connected
    from tracer.workloads.containers.run import swept

    with contextlib.suppress(JobError), connected(engine, note) as client, swept(client):
        pass


def _require_own(fd: int, folder: Path) -> None:
    """Raises JobError if another user could redirect the files written into the folder."""
    user = invoking_user()
    owner = user[0] if user else os.geteuid()
    for path, status in (
        (folder, os.fstat(fd)),
        (folder / RUNS, os.stat(RUNS, dir_fd=fd, follow_symlinks=False)),
    ):
        if not stat.S_ISDIR(status.st_mode):
            raise JobError(f"{path} is not a folder", "name another folder with -o")
        if status.st_uid not in (owner, os.geteuid()) or status.st_mode & 0o002:
            raise JobError(
                f"{path} belongs to another user, or other users may write to it",
                "name a folder of your own with -o",
            )


@contextlib.contextmanager
def _alone(folder: Path) -> Iterator[None]:
    fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise JobError(
                f"another process runs the study in {folder}", "wait for it to end"
            ) from None
        _require_own(fd, folder)
        yield
    finally:
        os.close(fd)
