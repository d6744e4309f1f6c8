"""Preparation of a job: makes its data set and saves a model with fresh weights."""

from __future__ import annotations

from pathlib import Path

from torch.optim import SGD

from tracer.workloads import checkpoint, models
from tracer.workloads.job import (
    build_model,
    choose_device,
    make_output,
    open_data,
    sample_shape,
    seed_torch,
)
from tracer.workloads.options import JobOptions


def prepare(options: JobOptions, save_to: Path | None = None) -> dict[str, object]:
    """Makes the data set if it does not exist, and returns a summary. Raises JobError.

    With `save_to`, writes a checkpoint of the untrained model to that path, for inference or
    serving. The cost of inference does not depend on the weights.
    """
    workload = models.load(options.model)
    make_output(options.output)
    seed_torch(options)
    sets = open_data(options, workload)
    if save_to is not None:
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
    }
