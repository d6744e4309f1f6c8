"""Checkpoints: one file, cut to nothing and written again each time, as real jobs do."""

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

from workloads.data.sets import SampleShape
from workloads.errors import MEND_WRITE, JobError, explained
from workloads.files import open_unbuffered

NAME = "checkpoint.pt"
_MEND = "name a checkpoint.pt that `train` wrote for this model"

# A model is built by these numbers: one that a file makes up must not fill the memory.
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
    """What a file holds: the model's name, the weights, and the epochs and steps behind them.

    `sample` is the shape of the data that it was trained on; None: an older file, without it.
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
) -> None:
    """Write model and optimizer to `path`; `epoch` counts from 0, `step` steps were done.

    Without `sample`, what the model takes and gives, the file cannot be served.
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
        # torch writes the file itself, by a path: here by that of the open file.
        with open_unbuffered(path) as file:
            torch.save(state, f"/proc/self/fd/{file.fileno()}")
    except OSError as error:
        raise JobError(f"cannot write {path}: {error.strerror}", MEND_WRITE) from error
    except RuntimeError as error:
        # torch writes the file itself and reports the system's refusals so.
        reason = str(error).splitlines()[0]
        raise JobError(f"cannot write {path}: {reason}", MEND_WRITE) from error


def load(path: Path, device: torch.device) -> Checkpoint:
    """Read `path`, tensors and plain values only. Raises JobError where it is no checkpoint."""
    with explained(f"cannot read the checkpoint {path}", "name another file with --checkpoint"):
        if not path.is_file():
            raise JobError(f"there is no checkpoint file {path}", _MEND)
        try:
            # Anything else would go to torch's reader of files older than its zip format.
            if not zipfile.is_zipfile(path):
                raise JobError(f"{path} is not a file of torch.save, or not a whole one", _MEND)
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
            raise JobError(f"{path} is damaged, or holds more than tensors", _MEND) from error
    return _parse(state, path)


def restore(model: nn.Module, checkpoint: Checkpoint, path: Path) -> None:
    """Put the weights into `model`. Raises JobError where they are another model's."""
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
    return JobError(f"{path} is no checkpoint of these jobs", _MEND)
