"""Preparation of a job: makes its data set, and a model with fresh or with trained weights.

Only a model needs torch, whose import takes longer than to draw a small set.
"""

from __future__ import annotations

from pathlib import Path

from tracer.workloads.errors import require_torch
from tracer.workloads.job_data import make_output, open_data
from tracer.workloads.options import JobOptions


def prepare(
    options: JobOptions, save_to: Path | None = None, trained: Path | None = None
) -> dict[str, object]:
    """Makes the data set if it does not exist, and returns a summary. Raises JobError.

    With `save_to`, writes a checkpoint to that path, for inference or serving: a copy of the
    checkpoint `trained`, which has to fit the model, or else the untrained model. The cost of
    inference does not depend on the weights.
    """
    require_torch()  # the later job imports it; the data may take a while
    make_output(options.output)
    sets = open_data(options)
    weights: dict[str, object] = {}
    if save_to is not None:
        from tracer.workloads.prepared_model import save_fresh, save_trained

        if trained is None:
            save_fresh(options, sets, save_to)
        else:
            weights = save_trained(options, trained, save_to)
    return {
        "model": options.model,
        "data": str(sets.folder),
        "samples": len(sets.train),
        "test_samples": len(sets.test),
        "seed": options.seed,
        "checkpoint": None if save_to is None else str(save_to.absolute()),
        "weights": weights,
    }
