"""Preparation of a job: makes its data set, and a model with fresh or with trained weights."""

from __future__ import annotations

from pathlib import Path

import torch
from torch.optim import SGD

from tracer.workloads import checkpoint, models
from tracer.workloads.errors import JobError
from tracer.workloads.job import (
    build_model,
    choose_device,
    load_checkpoint,
    make_output,
    open_data,
    sample_shape,
    seed_torch,
)
from tracer.workloads.models.workload import Workload
from tracer.workloads.options import JobOptions
from tracer.workloads.weights import copy_weights


def prepare(
    options: JobOptions, save_to: Path | None = None, trained: Path | None = None
) -> dict[str, object]:
    """Makes the data set if it does not exist, and returns a summary. Raises JobError.

    With `save_to`, writes a checkpoint to that path, for inference or serving: a copy of the
    checkpoint `trained`, which has to fit the model, or else the untrained model. The cost of
    inference does not depend on the weights.
    """
    workload = models.load(options.model)
    make_output(options.output)
    seed_torch(options)
    sets = open_data(options, workload)
    weights: dict[str, object] = {}
    if save_to is not None and trained is not None:
        weights = copy_weights(trained, save_to)
        try:
            weights |= _require_fit(workload, save_to)
        except JobError as error:
            raise error.replacing(str(save_to), str(trained)) from None
    elif save_to is not None:
        model = build_model(workload, sets, choose_device(options.device))
        optimizer = SGD(model.parameters(), lr=workload.lr, momentum=workload.momentum)
        sets.test.prepare()
        sample = sample_shape(sets, sets.test[0][0].unsqueeze(0))
        checkpoint.save(save_to, workload.name, model, optimizer, epoch=0, step=0, sample=sample)
    return {
        "model": workload.name,
        "data": str(sets.folder),
        "samples": len(sets.train),
        "test_samples": len(sets.test),
        "seed": options.seed,
        "checkpoint": None if save_to is None else str(save_to.absolute()),
        "weights": weights,
    }


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
