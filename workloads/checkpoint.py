"""Checkpoints: one file, truncated and rewritten each time, as in real jobs."""

from __future__ import annotations

import math
import pickle
import zipfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.optim import Optimizer

from tracer.workloads.data.sets import SampleShape
from tracer.workloads.errors import MEND_WRITE, JobError, explained
from tracer.workloads.files import open_in_place, open_unbuffered
from tracer.workloads.options import CHECKPOINT, CheckpointWay

NAME = CHECKPOINT
_MEND = "name a checkpoint.pt that `train` wrote for this model"

# A model is built from these numbers. The bounds keep a forged file from filling the memory.
_CLASSES = range(1, 300_001)
_VOCABULARY = range(1_000_001)
_SIDE = range(100_001)
_MAX_DIMENSIONS = 8
_MAX_NUMBERS = 10_000_000
_DTYPES = {
    str(dtype).removeprefix("torch."): dtype
    for dtype in (torch.float32, torch.float64, torch.int32, torch.int64)
}


@dataclass(frozen=True)
class Checkpoint:
    """The content of a checkpoint file: model name, weights, and the epoch and steps of training.

    `sample` is the shape of the training data. None: the file is of an older version without it.
    """

    model: str
    weights: dict[str, Any]
    epoch: int
    step: int
    sample: SampleShape | None = None


def save(
    path: Path,
    name: str,
    model: nn.Module,
    optimizer: Optimizer,
    *,
    epoch: int,
    step: int,
    sample: SampleShape | None = None,
    way: CheckpointWay = CheckpointWay.TRUNCATE,
) -> None:
    """Writes model and optimizer to `path`. `epoch` counts from 0; `step` steps were done.

    `sample` is the shape of the model's inputs and outputs; a file without it cannot be served. A
    checkpoint in the way NEW lies beside `path`, with its step in its name, until `keep_last`.
    """
    state: dict[str, object] = {
        "name": name,
        "epoch": epoch,
        "step": step,
        "model": model.state_dict(),
        "optimizer": optimizer.state_dict(),
    }
    if sample is not None:
        state["sample"] = {
            "classes": sample.classes,
            "vocabulary": sample.vocabulary,
            "side": sample.side,
            "dimensions": list(sample.dimensions),
            "dtype": str(sample.dtype).removeprefix("torch."),
        }
    try:
        match way:
            case CheckpointWay.TRUNCATE:
                _write(path, state)
            case CheckpointWay.OVERWRITE:
                with open_in_place(path) as file:
                    torch.save(state, file)
                    file.truncate()
            case CheckpointWay.RENAME:
                beside = path.with_name(f"{path.name}.tmp")
                _write(beside, state)
                beside.replace(path)
            case CheckpointWay.NEW:
                _write(_numbered(path, step), state)
    except OSError as error:
        raise JobError(f"cannot write {path}: {error.strerror}", MEND_WRITE) from error
    except RuntimeError as error:
        # torch reports a failed write as a RuntimeError.
        reason = str(error).splitlines()[0]
        raise JobError(f"cannot write {path}: {reason}", MEND_WRITE) from error


def keep_last(path: Path, step: int) -> None:
    """Renames the checkpoint that was written in the way NEW after `step` steps to `path`."""
    with explained(f"cannot write {path}", MEND_WRITE):
        _numbered(path, step).replace(path)


def _numbered(path: Path, step: int) -> Path:
    return path.with_name(f"{path.stem}-{step:08}{path.suffix}")


def _write(path: Path, state: dict[str, object]) -> None:
    # torch opens a path itself; this is the path of the file that is already open.
    with open_unbuffered(path) as file:
        torch.save(state, f"/proc/self/fd/{file.fileno()}")


def load(path: Path, device: torch.device) -> Checkpoint:
    """Reads `path`, tensors and plain values only. Raises JobError if it is no checkpoint."""
    with explained(f"cannot read the checkpoint {path}", "name another file with --checkpoint"):
        if not path.is_file():
            raise JobError(f"there is no checkpoint file {path}", _MEND)
        try:
            # torch would read any other file with its reader for formats older than zip.
            if not zipfile.is_zipfile(path):
                raise JobError(f"{path} is not a complete file of torch.save", _MEND)
            state = torch.load(path, map_location=device, weights_only=True)
        except (
            RuntimeError,
            zipfile.BadZipFile,
            pickle.UnpicklingError,
            EOFError,
            ValueError,
            TypeError,
            LookupError,
            AttributeError,
            AssertionError,
        ) as error:
            raise JobError(f"{path} is damaged, or contains more than tensors", _MEND) from error
    return _parse(state, path)


def restore(model: nn.Module, checkpoint: Checkpoint, path: Path) -> None:
    """Loads the weights into `model`. Raises JobError if they belong to another model."""
    try:
        model.load_state_dict(checkpoint.weights)
    except (RuntimeError, TypeError, AttributeError) as error:
        raise JobError(f"the weights in {path} do not fit the model", _MEND) from error


def _parse(state: object, path: Path) -> Checkpoint:
    match state:
        case {
            "name": str(name),
            "model": dict(weights),
            "epoch": int(epoch),
            "step": int(step),
            **others,
        }:
            sample = _parse_sample(others["sample"], path) if "sample" in others else None
            return Checkpoint(name, weights, epoch, step, sample)
        case _:
            raise _foreign(path)


def _parse_sample(sample: object, path: Path) -> SampleShape:
    match sample:
        case {
            "classes": int(classes),
            "vocabulary": int(vocabulary),
            "side": int(side),
            "dimensions": list(dimensions),
            "dtype": str(dtype),
        } if (
            classes in _CLASSES
            and vocabulary in _VOCABULARY
            and side in _SIDE
            and dtype in _DTYPES
            and len(dimensions) <= _MAX_DIMENSIONS
            and all(isinstance(n, int) and 1 <= n <= _MAX_NUMBERS for n in dimensions)
            and math.prod(dimensions) <= _MAX_NUMBERS
        ):
            return SampleShape(
                classes=classes,
                vocabulary=vocabulary,
                side=side,
                dimensions=tuple(dimensions),
                dtype=_DTYPES[dtype],
            )
        case _:
            raise _foreign(path)


def _foreign(path: Path) -> JobError:
    return JobError(f"{path} is not a checkpoint of these jobs", _MEND)
