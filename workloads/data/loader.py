"""The DataLoader as the jobs use it: seeded, and its failures put into a line."""

from __future__ import annotations

import random
import traceback
import warnings
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import DataLoader, RandomSampler

from workloads.data.sets import Sample, SampleSet
from workloads.errors import BrokenJobError, JobError

Batch = tuple[Tensor, Tensor]
"""Inputs and targets, each with the samples along its first dimension."""


class Batches:
    """The batches of `samples`, an iterator an epoch; `shuffle` by `seed`, anew each epoch."""

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
        # The order must not depend on the number of workers. So it has a generator to itself (the
        # loader draws from its own to seed workers), and that is seeded anew each epoch (a sampler
        # that workers run ahead of is drawn from once more at its end).
        self._epochs = torch.Generator().manual_seed(seed)
        self._order = torch.Generator()
        with _quiet():
            self._loader: DataLoader[Sample] = DataLoader(
                samples,
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
        """Start an epoch's workers; they end with the iterator. Its `next` raises JobError."""
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
                # The frames of the error hold the iterator. Left to the garbage collector, its
                # workers would be waited for in vain, for 5 s, at any later time.
                traceback.clear_frames(error.__traceback__)
                del iterator
                raise _told_in_a_line(error) from None
            yield (
                inputs.to(self._device, non_blocking=self._pinned),
                targets.to(self._device, non_blocking=self._pinned),
            )


def _told_in_a_line(error: JobError | RuntimeError) -> Exception:
    """The error that a batch failed with, without the traceback that a worker put into it."""
    if isinstance(error, JobError):
        line = str(error).splitlines()[-1]
        return JobError(line.split("JobError: ", 1)[-1])
    if str(error).startswith("DataLoader worker"):
        return BrokenJobError(
            f"a DataLoader worker died: {' '.join(str(error).split())}",
            "take fewer --workers, or give the job more memory and /dev/shm "
            "(docker run --shm-size=1g)",
        )
    return error


@contextmanager
def _quiet() -> Iterator[None]:
    """More workers than CPUs is the user's choice; torch's advice on it is not for the log."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="This DataLoader will create", append=False)
        yield


def _seed_worker(worker: int) -> None:
    seed = torch.initial_seed() % 2**32
    random.seed(seed)
    np.random.seed(seed)
