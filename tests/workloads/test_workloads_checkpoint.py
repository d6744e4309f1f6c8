"""Damaged, hostile and foreign checkpoints."""

from __future__ import annotations

import random
import zipfile
from pathlib import Path

import pytest
import torch
from torch import nn

from tracer.workloads import checkpoint
from tracer.workloads.errors import JobError
from tracer.workloads.models.lenet import LeNet5

CPU = torch.device("cpu")


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "checkpoint.pt"


def save(path: Path, model: nn.Module) -> None:
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    checkpoint.save(path, "lenet", model, optimizer, epoch=3, step=23)


def test_a_saved_checkpoint_is_read_back(path: Path):
    model = LeNet5(10)
    save(path, model)
    loaded = checkpoint.load(path, CPU)
    assert (loaded.model, loaded.epoch, loaded.step) == ("lenet", 3, 23)
    other = LeNet5(10)
    checkpoint.restore(other, loaded, path)
    for name, weight in model.state_dict().items():
        assert torch.equal(weight, other.state_dict()[name])


class Attack:
    def __init__(self, victim: Path) -> None:
        self.victim = victim

    def __reduce__(self) -> object:
        return (Path.touch, (self.victim,))


def test_code_in_a_checkpoint_is_not_run(path: Path, tmp_path: Path):
    victim = tmp_path / "attacked"
    torch.save({"name": "lenet", "model": Attack(victim)}, path)
    with pytest.raises(JobError, match="contains more than tensors"):
        checkpoint.load(path, CPU)
    assert not victim.exists()


@pytest.mark.parametrize("content", [b"", b"not torch's", b"PK\x03\x04", b"\x80\x02}q\x00."])
def test_a_file_not_saved_by_torch_is_refused(path: Path, content: bytes):
    path.write_bytes(content)
    with pytest.raises(JobError, match=r"not a complete file of torch\.save"):
        checkpoint.load(path, CPU)


def test_a_zip_without_a_checkpoint_is_refused(path: Path):
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("readme", "hello")
    with pytest.raises(JobError, match="is damaged"):
        checkpoint.load(path, CPU)


@pytest.mark.parametrize("state", [[], {}, {"name": "lenet", "model": 3, "epoch": 0, "step": 1}])
def test_another_programs_tensors_are_refused(path: Path, state: object):
    torch.save(state, path)
    with pytest.raises(JobError, match="not a checkpoint of these jobs"):
        checkpoint.load(path, CPU)


def test_an_absent_file_is_named(path: Path):
    with pytest.raises(JobError, match=f"there is no checkpoint file {path}"):
        checkpoint.load(path, CPU)


def test_the_weights_of_another_model_are_refused(path: Path):
    save(path, nn.Linear(2, 2))
    with pytest.raises(JobError, match="do not fit the model"):
        checkpoint.restore(LeNet5(10), checkpoint.load(path, CPU), path)


def test_a_truncated_checkpoint_is_refused(path: Path):
    save(path, LeNet5(10))
    whole = path.read_bytes()
    for size in range(0, len(whole), len(whole) // 20):
        path.write_bytes(whole[:size])
        with pytest.raises(JobError):
            checkpoint.load(path, CPU)


@pytest.mark.filterwarnings("ignore::UserWarning")
def test_flipped_bytes_never_crash_the_reader(path: Path):
    save(path, LeNet5(10))
    whole = path.read_bytes()
    source = random.Random(23)
    refused = 0
    # The zip's directory is at its end, the pickle near its beginning.
    for low, high in [(0, 2500), (len(whole) - 3000, len(whole))] * 40:
        damaged = bytearray(whole)
        damaged[source.randrange(low, high)] = source.randrange(256)
        path.write_bytes(damaged)
        try:
            checkpoint.restore(LeNet5(10), checkpoint.load(path, CPU), path)
        except JobError:
            refused += 1
    assert 0 < refused < 80


def test_a_file_size_limit_is_reported_in_one_line(tmp_path: Path, no_large_files):
    path = tmp_path / "checkpoint.pt"
    told = rf"cannot write {path}: .*; free some space"
    with pytest.raises(JobError, match=told) as caught, no_large_files(1000):
        save(path, LeNet5(10))
    assert "\n" not in str(caught.value)
