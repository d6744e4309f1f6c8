"""Inference over the test set: one prediction per sample, written to predictions.csv.

The marks nest as `inference` > `step` (one per batch) > `fetch`, `forward`.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import nn

from tracer import phases
from tracer.workloads import checkpoint, models
from tracer.workloads.data.loader import Batches
from tracer.workloads.errors import MEND_WRITE, explained
from tracer.workloads.files import open_unbuffered
from tracer.workloads.interrupt import Interruptible
from tracer.workloads.job import (
    build_model,
    choose_device,
    load_checkpoint,
    make_batches,
    seed_torch,
)
from tracer.workloads.job_data import make_output, open_data
from tracer.workloads.models.workload import Workload
from tracer.workloads.options import InferOptions
from tracer.workloads.progress import Progress

PREDICTIONS_NAME = "predictions.csv"


@dataclass(frozen=True)
class Inferred:
    """The result of an inference: batches, samples, correct ones, and wall time in seconds."""

    batches: int
    samples: int
    correct: int
    seconds: float

    @property
    def accuracy(self) -> float:
        return self.correct / self.samples


def infer(options: InferOptions) -> dict[str, object]:
    """Runs a trained model over the test set and returns a summary. Raises JobError.

    Writes predictions.csv to `options.output` and overwrites the file of an earlier job.
    """
    workload = models.load(options.model)
    output = make_output(options.output)
    device = choose_device(options.device)
    seed_torch(options)
    with phases.phase("data_load"):
        sets = open_data(options)
        batches = make_batches(options, sets.test, device, shuffle=False)
    with phases.phase("model_load"):
        model = build_model(workload, sets, device)
        state = load_checkpoint(workload, options.checkpoint, device)
        checkpoint.restore(model, state, options.checkpoint)
    inferred = predict_all(workload, model, batches, output, options.batches)
    return {
        "model": workload.name,
        "checkpoint": str(options.checkpoint.absolute()),
        "batch_size": options.batch_size,
        "workers": options.workers,
        "seed": options.seed,
        "batches": inferred.batches,
        "samples": inferred.samples,
        "accuracy": inferred.accuracy,
        "inference_s": inferred.seconds,
        "output": str(output),
        "data": str(sets.folder),
    }


def predict_all(
    workload: Workload,
    model: nn.Module,
    batches: Batches,
    output: Path,
    count: int | None = None,
) -> Inferred:
    """Predicts each sample of `batches`; writes index, label and prediction as CSV to `output`.

    `count`: the number of batches, over as many passes as that takes; None: those of one pass. The
    index of a sample begins at 0 again in each pass.
    """
    path = output / PREDICTIONS_NAME
    count = len(batches) if count is None else count
    correct = index = samples = 0
    model.eval()
    started = time.monotonic()
    with explained(f"cannot write {path}", MEND_WRITE):
        # Unbuffered, so that a write fails at once and not when the file is closed.
        file = open_unbuffered(path)
    with (
        file,
        phases.phase("inference"),
        torch.inference_mode(),
        Interruptible() as interruptible,
        Progress("inference", count) as progress,
    ):
        lines = ["index,label,prediction\n"]
        fetched = iter(batches)
        for step in range(count):
            if step and step % len(batches) == 0:
                fetched, index = iter(batches), 0
            with phases.phase("step", step=step):
                with phases.phase("fetch"):
                    inputs, targets = next(fetched)
                with phases.phase("forward"):
                    predictions = workload.predict(model(inputs)).tolist()
            for label, prediction in zip(targets.tolist(), predictions, strict=True):
                lines.append(f"{index},{label},{prediction}\n")
                index += 1
                samples += 1
                correct += label == prediction
            with explained(f"cannot write {path}", MEND_WRITE):
                file.write("".join(lines).encode())
            lines.clear()
            progress.show(step + 1)
            interruptible.check()
    return Inferred(count, samples, correct, time.monotonic() - started)
