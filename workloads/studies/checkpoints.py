"""The checkpoints that a study's trainings leave for its servings, in the study's folder.

    checkpoints/ID.pt    the last checkpoint of the training run ID

A serving takes the checkpoint of the training of the same model, data set, place and repeat; if
that training left none, that of another repeat or place. Of several, it takes the one that has the
most factors in common with it, thus not one with a limit or another habit. Only files that a run to
come would take are kept. A file may have been written in a container, or replaced by the folder's
owner: links are not followed, the file is read with the owner's rights, and a copy is used only if
its bytes are those that the training's result names.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from tracer.store.files import as_invoking_user, create, open_regular
from tracer.workloads.errors import JobError
from tracer.workloads.options import CHECKPOINT
from tracer.workloads.studies.study import Run
from tracer.workloads.weights import copied

FOLDER = "checkpoints"
NO_TRAINING = "no training of this model in this study has left a checkpoint"


class Checkpoints:
    """The kept checkpoints of a study. `read` returns the result of a run; None: not ended."""

    def __init__(
        self, folder: Path, runs: Sequence[Run], read: Callable[[Run], dict[str, Any] | None]
    ) -> None:
        self._folder = folder / FOLDER
        self._trainings = {f"{run.id}.pt": run for run in runs if run.factors.mode == "train"}
        self._servings = [run for run in runs if run.factors.mode == "serve"]
        self._read = read

    def keep(self, run: Run, output: Path) -> dict[str, object] | None:
        """Copies what a training left in its output folder, if a serving may take it.

        Of several containers, the first one's. Returns bytes and sha256, or the reason why nothing
        was kept; None if no serving may take it.
        """
        if not any(serves(one, run) for one in self._servings):
            return None
        source = (output / "container-0" if run.factors.containers else output) / CHECKPOINT
        part = self._folder / f".{run.id}.part"
        try:
            with open_regular(source) as file, as_invoking_user():
                self._folder.mkdir(mode=0o700, exist_ok=True)
                part.unlink(missing_ok=True)
                with create(part) as out:
                    kept = copied(file, out)
                part.replace(self._path(run))
        except (OSError, ValueError, JobError) as error:
            with contextlib.suppress(OSError):
                part.unlink(missing_ok=True)
            said = error.strerror if isinstance(error, OSError) else str(error)
            return {"why": f"its checkpoint was not kept: {said}"}
        return kept

    def take(self, serving: Run, target: Path) -> str | None:
        """Copies the checkpoint for a serving to `target`, and returns the id of its training.

        None if no training has left a whole one. Raises OSError if `target` cannot be written.
        """
        for run in _candidates(serving, self._kept()):
            try:
                with as_invoking_user():
                    file = open_regular(self._path(run))
            except (OSError, ValueError):
                continue
            target.unlink(missing_ok=True)
            with file, create(target) as out:
                found = copied(file, out)
            if found == (self._read(run) or {}).get("checkpoint"):
                return run.id
            target.unlink()
        return None

    def tidy(self, waiting: Iterable[Run]) -> None:
        """Removes the checkpoints that no serving of the runs to come would take."""
        kept = self._kept()
        wanted = {
            best[0].id
            for run in waiting
            if run.factors.mode == "serve" and (best := _candidates(run, kept))
        }
        with contextlib.suppress(OSError), as_invoking_user():
            for run in kept:
                if run.id not in wanted:
                    self._path(run).unlink()
            if not wanted:
                self._folder.rmdir()

    def _kept(self) -> list[Run]:
        """Returns the trainings that have a file in the folder."""
        try:
            names = os.listdir(self._folder)
        except OSError:
            return []
        return [self._trainings[name] for name in names if name in self._trainings]

    def _path(self, run: Run) -> Path:
        return self._folder / f"{run.id}.pt"


def serves(serving: Run, training: Run) -> bool:
    """Returns whether a serving can take the weights of a training."""
    own, other = serving.factors, training.factors
    return (own.model, own.dataset) == (other.model, other.dataset)


def _candidates(serving: Run, kept: Iterable[Run]) -> list[Run]:
    """Returns the trainings whose checkpoint a serving can take, the best one first."""
    found = [run for run in kept if serves(serving, run)]
    return sorted(found, key=lambda run: (*_distance(serving, run), run.id))


def _distance(serving: Run, training: Run) -> tuple[int, bool, int]:
    repeats = abs(serving.repeat - training.repeat)
    own, other = asdict(serving.factors), asdict(training.factors)
    other_factors = sum(own[name] != other[name] for name in own)
    return repeats, own["where"] != other["where"], other_factors
