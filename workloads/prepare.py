"""What can be done before a job: its data set made, a model saved with fresh weights."""

from __future__ import annotations

from pathlib import Path

from torch.optim import SGD

from workloads import checkpoint, models
from workloads.job import (
    build_model,
    choose_device,
    make_output,
    open_data,
    sample_shape,
    seed_torch,
)
from workloads.options import JobOptions


def prepare(options: JobOptions, save_to: Path | None = None) -> dict[str, object]:
    """Make the data set where it is not there; gives a summary. Raises JobError.

    With `save_to`, a checkpoint of the untrained model is written there, to infer with or to serve:
    what an inference costs does not hang on what was learned.
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
