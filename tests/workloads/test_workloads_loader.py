"""Failing DataLoader workers give one line, not a traceback."""

from __future__ import annotations

import multiprocessing
import os
import signal
from pathlib import Path

import pytest
import torch

from tracer.probes.errors import ExitCode
from tracer.workloads.data import idx
from tracer.workloads.data.folder import MEND
from tracer.workloads.data.loader import Batches
from tracer.workloads.data.mnist import MnistSplit
from tracer.workloads.data.sets import Sample, SampleSet
from tracer.workloads.errors import BrokenJobError, JobError

# Python 3.12 and later warn of a fork while torch has threads; DataLoader forks nevertheless.
pytestmark = pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")


def batches(samples: SampleSet, workers: int) -> Batches:
    return Batches(
        samples,
        batch_size=2,
        workers=workers,
        seed=0,
        shuffle=False,
        device=torch.device("cpu"),
    )


class Numbers(SampleSet):
    def __len__(self) -> int:
        return 5

    def __getitem__(self, index: int) -> Sample:
        return torch.tensor([float(index)]), index


class Deadly(Numbers):
    def __getitem__(self, index: int) -> Sample:
        os.kill(os.getpid(), signal.SIGKILL)
        return super().__getitem__(index)


class Faulty(Numbers):
    def __getitem__(self, index: int) -> Sample:
        raise RuntimeError("a defect of the data set")


@pytest.mark.parametrize("workers", [0, 2])
def test_batches_come_in_order_with_the_last_one_short(workers: int):
    loader = batches(Numbers(), workers)
    assert len(loader) == 3
    for _ in range(2):
        assert [targets.tolist() for _, targets in loader] == [[0, 1], [2, 3], [4]]


def test_more_workers_than_cpus_give_no_warning():
    workers = len(os.sched_getaffinity(0)) + 1
    assert sum(1 for _ in batches(Numbers(), workers)) == 3


def test_a_killed_worker_is_reported_in_one_line():
    with pytest.raises(BrokenJobError, match=r"a DataLoader worker died: .*--workers") as caught:
        next(iter(batches(Deadly(), workers=1)))
    assert "\n" not in str(caught.value)
    assert caught.value.exit_code == ExitCode.FAILURE


@pytest.mark.parametrize("workers", [0, 1])
def test_a_truncated_file_is_reported_in_one_line(tmp_path: Path, workers: int):
    path = tmp_path / "images"
    path.write_bytes(idx.pack_header((4, 28, 28)) + bytes(4 * 28 * 28))
    split = MnistSplit(idx.open_idx(path, 3), torch.zeros(4, dtype=torch.uint8).numpy())
    os.truncate(path, 1000)
    before = set(multiprocessing.active_children())
    with pytest.raises(JobError) as caught:
        next(iter(batches(split, workers)))
    assert str(caught.value) == f"{path} was cut short while the job read it; {MEND}"
    assert caught.value.exit_code == ExitCode.USAGE
    # The test still holds the error, but the error holds no worker.
    assert set(multiprocessing.active_children()) <= before


@pytest.mark.parametrize("workers", [0, 1])
def test_a_defect_keeps_its_own_error(workers: int):
    with pytest.raises(RuntimeError, match="a defect of the data set"):
        next(iter(batches(Faulty(), workers)))
