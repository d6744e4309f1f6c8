"""The DataLoader of the jobs: seeded, with errors of one line."""

from __future__ import annotations

import random
import traceback
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import cast

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import DataLoader, Dataset, RandomSampler

from tracer.workloads.data.sets import Sample, SampleSet
from tracer.workloads.errors import BrokenJobError, JobError

Batch = tuple[Tensor, Tensor]
"""Inputs and targets, each with the samples along its first dimension."""


class Batches:
    """The batches of `samples`, one iterator per epoch.

    With `shuffle`, `seed` determines a new order for each epoch.
    """

    def __init__(
        self,
        samples: SampleSet,
        *,
        batch_size: int,
        workers: int,
        seed: int,
        shuffle: bool,
        device: torch.device,
    ) -> None:
        self._device = device
        self._pinned = device.type == "cuda"
        # The order must not depend on the number of workers. It has a generator of its own, since
        # the loader uses its generator to seed workers. That generator is seeded anew each epoch,
        # since workers that run ahead draw from the sampler once more at its end.
        self._epochs = torch.Generator().manual_seed(seed)
        self._order = torch.Generator()
        with _quiet():
            self._loader: DataLoader[Sample] = DataLoader(
                cast(Dataset[Sample], samples),
                batch_size=batch_size,
                sampler=RandomSampler(samples, generator=self._order) if shuffle else None,
                num_workers=workers,
                generator=torch.Generator().manual_seed(seed),
                worker_init_fn=_seed_worker,
                pin_memory=self._pinned,
            )

    def __len__(self) -> int:
        return len(self._loader)

    def __iter__(self) -> Iterator[Batch]:
        """Starts the workers of an epoch, which end with the iterator. `next` raises JobError."""
        self._order.manual_seed(int(torch.randint(2**32, (), generator=self._epochs)))
        with _quiet():
            iterator = iter(self._loader)
        return self._batches(iterator)

    def _batches(self, iterator: Iterator[Batch]) -> Iterator[Batch]:
        while True:
            try:
                inputs, targets = next(iterator)
            except StopIteration:
                return
            except (JobError, RuntimeError) as error:
                # The frames of the error keep the iterator alive. If the garbage collector removed
                # it, that would wait 5 s in vain for its workers, at any later time.
                traceback.clear_frames(error.__traceback__)
                del iterator
                raise _told_in_a_line(error) from None
            yield (
                inputs.to(self._device, non_blocking=self._pinned),
                targets.to(self._device, non_blocking=self._pinned),
            )


def _told_in_a_line(error: JobError | RuntimeError) -> Exception:
    """Returns the error of a failed batch, without the traceback that a worker put into it."""
    if isinstance(error, JobError):
        line = str(error).splitlines()[-1]
        return JobError(line.split("JobError: ", 1)[-1])
    if str(error).startswith("DataLoader worker"):
        return BrokenJobError(
            f"a DataLoader worker died: {' '.join(str(error).split())}",
            "use fewer --workers, or give the job more memory and /dev/shm "
            "(docker run --shm-size=1g)",
        )
    return error


@contextmanager
def _quiet() -> Iterator[None]:
    """Hides torch's warning about more workers than CPUs, which is the user's choice."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="This DataLoader will create", append=False)
        yield


def _seed_worker(worker: int) -> None:
    seed = torch.initial_seed() % 2**32
    random.seed(seed)
    np.random.seed(seed)
