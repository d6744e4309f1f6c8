"""Training: epochs of steps, one log line per step, checkpoints, then inference.

The marks nest as `train` > `epoch` > `step` > `fetch`, `forward`, `backward`, `optimizer`, with
`checkpoint` beside the steps: after the last step of each epoch, or after any number of steps. A
step is longer than its four parts: it also reads back the loss and writes the log line. On CUDA the
parts are the times of the host's calls; reading back the loss waits for the device.
"""

from __future__ import annotations

import math
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from io import FileIO
from pathlib import Path

from torch import nn
from torch.optim import SGD, Optimizer

from tracer import phases
from tracer.workloads import checkpoint, models
from tracer.workloads.data.loader import Batch, Batches
from tracer.workloads.data.sets import DataShape, SampleShape
from tracer.workloads.errors import MEND_WRITE, explained
from tracer.workloads.files import open_unbuffered
from tracer.workloads.infer import predict_all
from tracer.workloads.interrupt import Interruptible
from tracer.workloads.job import (
    build_model,
    choose_device,
    make_batches,
    sample_shape,
    seed_torch,
)
from tracer.workloads.job_data import make_output, open_data
from tracer.workloads.models.workload import Workload
from tracer.workloads.options import AT_THE_END, EACH_EPOCH, CheckpointWay, TrainOptions
from tracer.workloads.progress import Progress

LOG_NAME = "train.log"
BY_STEPS, BY_AT_LEAST, BY_AT_MOST = "steps", "at_least", "at_most"
"""The causes of the end: all steps were made, or with one of the two times."""


@dataclass
class Trained:
    """The progress of a training. `epochs` includes a partial last one; losses are of one step."""

    steps: int = 0
    epochs: int = 0
    checkpoints: int = 0
    first_loss: float = math.nan
    last_loss: float = math.nan
    ended_by: str = BY_STEPS


def train(options: TrainOptions) -> dict[str, object]:
    """Runs the whole job and returns its summary of measured numbers. Raises JobError.

    Writes train.log, checkpoint.pt and predictions.csv to `options.output` and overwrites the files
    of an earlier job.
    """
    workload = models.load(options.model)
    output = make_output(options.output)
    device = choose_device(options.device)
    seed_torch(options)
    with _open_log(output / LOG_NAME) as log:
        with phases.phase("data_load"):
            sets = open_data(options)
            batches = make_batches(options, sets.train, device, shuffle=options.shuffle)
            test = make_batches(options, sets.test, device, shuffle=False)
        with phases.phase("model_load"):
            model = build_model(workload, sets, device)
            optimizer = SGD(
                model.parameters(),
                lr=workload.lr if options.lr is None else options.lr,
                momentum=workload.momentum,
            )
        steps = options.steps or options.epochs * len(batches)
        every = {EACH_EPOCH: len(batches), AT_THE_END: sys.maxsize}.get(options.checkpoint_every)
        loop = _Loop(
            workload,
            model,
            optimizer,
            sets,
            batches,
            log,
            output / checkpoint.NAME,
            every=every or int(options.checkpoint_every),
            way=options.checkpoint_way,
            at_least_s=options.at_least_s or 0.0,
            at_most_s=options.at_most_s or math.inf,
        )
        started = time.monotonic()
        trained = loop.run(steps)
        train_s = time.monotonic() - started
    inferred = predict_all(workload, model, test, output)
    return {
        "model": workload.name,
        "steps": trained.steps,
        "epochs": trained.epochs,
        "ended_by": trained.ended_by,
        "checkpoints": trained.checkpoints,
        "checkpoint_bytes": _size(output / checkpoint.NAME) if trained.checkpoints else None,
        "batch_size": options.batch_size,
        "workers": options.workers,
        "seed": options.seed,
        "samples": len(sets.train),
        "first_loss": _finite(trained.first_loss),
        "last_loss": _finite(trained.last_loss),
        "accuracy": inferred.accuracy,
        "train_s": train_s,
        "inference_s": inferred.seconds,
        "output": str(output),
        "data": str(sets.folder),
    }


@dataclass
class _Loop:
    workload: Workload
    model: nn.Module
    optimizer: Optimizer
    data: DataShape
    batches: Batches
    log: FileIO
    checkpoint: Path
    every: int
    """Steps from one checkpoint to the next."""
    way: CheckpointWay
    at_least_s: float
    at_most_s: float
    sample: SampleShape | None = None
    began: float = 0.0

    def run(self, steps: int) -> Trained:
        """Trains for `steps` steps, over as many epochs as that takes, if the times allow it."""
        trained = Trained()
        self.began = time.monotonic()
        self.model.train()
        with (
            phases.phase("train"),
            Interruptible() as interruptible,
            Progress("train", steps) as progress,
        ):
            ended = False
            while not ended:
                with phases.phase("epoch", epoch=trained.epochs):
                    ended = self._epoch(trained, steps, progress, interruptible)
                trained.epochs += 1
        if self.way is CheckpointWay.NEW:
            checkpoint.keep_last(self.checkpoint, trained.steps)
        return trained

    def _epoch(
        self, trained: Trained, steps: int, progress: Progress, interruptible: Interruptible
    ) -> bool:
        """Trains for one epoch, or for its part before the end. Returns whether that was the end.

        `steps`: the number of all steps, if the times allow it.
        """
        # A counted loop: a fetch that only finds the end would be marked as another step.
        batches = iter(self.batches)
        ended = False
        for _ in range(len(self.batches)):
            with phases.phase("step", epoch=trained.epochs, step=trained.steps):
                loss = self._step(batches)
                self._write_log(trained, loss)
            if trained.steps == 0:
                trained.first_loss = loss
            trained.last_loss = loss
            trained.steps += 1
            progress.show(trained.steps, f"loss {loss:.4f}")
            ended = self._ends(trained, steps)
            if trained.steps % self.every == 0 or ended:
                with phases.phase("checkpoint", epoch=trained.epochs):
                    self._save(trained)
                trained.checkpoints += 1
            interruptible.check()
            if ended:
                break
        return ended

    def _ends(self, trained: Trained, steps: int) -> bool:
        """Returns whether the training ends after this step, and notes the cause."""
        took_s = time.monotonic() - self.began
        if trained.steps >= steps and took_s >= self.at_least_s:
            return True
        if took_s >= self.at_most_s:
            trained.ended_by = BY_AT_MOST
            return True
        if trained.steps >= steps:
            trained.ended_by = BY_AT_LEAST
        return False

    def _step(self, batches: Iterator[Batch]) -> float:
        with phases.phase("fetch"):
            inputs, targets = next(batches)
        self.sample = self.sample or sample_shape(self.data, inputs)
        with phases.phase("forward"):
            loss = self.workload.loss(self.model(inputs), targets)
        with phases.phase("backward"):
            loss.backward()  # type: ignore[no-untyped-call]
        with phases.phase("optimizer"):
            self.optimizer.step()
            self.optimizer.zero_grad()
        return loss.item()

    def _write_log(self, trained: Trained, loss: float) -> None:
        line = f"epoch={trained.epochs} step={trained.steps} loss={loss!r}\n"
        with explained(f"cannot write {self.log.name!s}", MEND_WRITE):
            self.log.write(line.encode())

    def _save(self, trained: Trained) -> None:
        checkpoint.save(
            self.checkpoint,
            self.workload.name,
            self.model,
            self.optimizer,
            sample=self.sample,
            epoch=trained.epochs,
            step=trained.steps,
            way=self.way,
        )


def _size(path: Path) -> int:
    with explained(f"cannot read {path}", MEND_WRITE):
        return path.stat().st_size


def _open_log(path: Path) -> FileIO:
    """Opens the log unbuffered: each line reaches the kernel at once, as in jobs that flush it."""
    with explained(f"cannot write {path}", MEND_WRITE):
        return open_unbuffered(path)


def _finite(loss: float) -> float | None:
    """Returns the loss, or None if it is not finite, since JSON has no NaN."""
    return loss if math.isfinite(loss) else None
