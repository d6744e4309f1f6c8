"""The checkpoint of a job that infers or serves: fresh weights, or a copy of trained ones."""

from __future__ import annotations

from pathlib import Path

import torch
from torch.optim import SGD

from tracer.workloads import checkpoint, models
from tracer.workloads.data.sets import DataSets
from tracer.workloads.errors import JobError
from tracer.workloads.job import (
    build_model,
    choose_device,
    load_checkpoint,
    sample_shape,
    seed_torch,
)
from tracer.workloads.models.workload import Workload
from tracer.workloads.options import JobOptions
from tracer.workloads.weights import copy_weights


def save_fresh(options: JobOptions, sets: DataSets, path: Path) -> None:
    """Writes the untrained model for the data `sets` to `path`. Raises JobError."""
    workload = models.load(options.model)
    seed_torch(options)
    model = build_model(workload, sets, choose_device(options.device))
    optimizer = SGD(model.parameters(), lr=workload.lr, momentum=workload.momentum)
    sets.test.prepare()
    sample = sample_shape(sets, sets.test[0][0].unsqueeze(0))
    checkpoint.save(path, workload.name, model, optimizer, epoch=0, step=0, sample=sample)


def save_trained(options: JobOptions, trained: Path, path: Path) -> dict[str, object]:
    """Copies the checkpoint `trained` to `path`. Returns its bytes, sha256, epoch and step.

    Raises JobError if it does not fit the model.
    """
    workload = models.load(options.model)
    weights = copy_weights(trained, path)
    try:
        return weights | _require_fit(workload, path)
    except JobError as error:
        raise error.replacing(str(path), str(trained)) from None


def _require_fit(workload: Workload, path: Path) -> dict[str, object]:
    """Loads a checkpoint into its model. Returns its epoch and step. Raises JobError."""
    device = torch.device("cpu")
    state = load_checkpoint(workload, path, device)
    if state.sample is None:
        raise JobError(
            f"{path} lacks the shape of its training data", "an older version wrote it; train again"
        )
    checkpoint.restore(build_model(workload, state.sample, device), state, path)
    return {"epoch": state.epoch, "step": state.step}
