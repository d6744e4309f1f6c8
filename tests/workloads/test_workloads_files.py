"""A job rewrites its files, but never through a link that another user has put in their place."""

from __future__ import annotations

import contextlib
import os

import pytest
import torch

from tracer.workloads import checkpoint
from tracer.workloads.errors import JobError
from tracer.workloads.files import open_in_place, open_unbuffered, write_anew
from tracer.workloads.modes.setting import PowerModes
from tracer.workloads.options import CheckpointWay
from tracer.workloads.train import _open_log

SECRET = b"root's own"


@pytest.fixture
def secret(tmp_path):
    path = tmp_path / "secret"
    path.write_bytes(SECRET)
    return path


@pytest.fixture
def place(tmp_path):
    """Returns a path in a folder that others may write into."""
    (tmp_path / "theirs").mkdir()
    return tmp_path / "theirs/file"


def test_a_file_is_truncated_and_keeps_its_inode(place):
    place.write_bytes(b"a long text")
    before = place.stat().st_ino
    write_anew(place, b"short")
    assert (place.read_bytes(), place.stat().st_ino) == (b"short", before)


def test_a_file_that_is_written_in_place_is_not_truncated(place):
    place.write_bytes(b"a long text")
    with open_in_place(place) as file:
        file.write(b"short")
        assert place.read_bytes() == b"short" + b"g text"


@pytest.mark.parametrize("way", CheckpointWay)
def test_no_way_to_write_a_checkpoint_follows_a_link(secret, place, way):
    model = torch.nn.Linear(2, 2)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for name in ("file", "file.tmp", "file-00000007"):
        place.with_name(name).symlink_to(secret)
    with contextlib.suppress(JobError):
        checkpoint.save(place, "m", model, optimizer, epoch=0, step=7, way=way)
    assert secret.read_bytes() == SECRET


@pytest.mark.parametrize("link", ["symlink_to", "hardlink_to"])
def test_nothing_is_written_through_a_link(secret, place, link):
    getattr(place, link)(secret)
    with pytest.raises(OSError):
        write_anew(place, b"x")
    with pytest.raises(OSError):
        open_unbuffered(place)
    with pytest.raises(OSError):
        open_in_place(place)
    assert secret.read_bytes() == SECRET


def test_a_pipe_is_refused_without_waiting_for_a_reader(place):
    os.mkfifo(place)
    with pytest.raises(OSError):
        write_anew(place, b"x")


def test_a_checkpoint_is_not_written_through_a_link(secret, place):
    place.symlink_to(secret)
    model = torch.nn.Linear(2, 2)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with pytest.raises(JobError, match=r"cannot write .*/file: "):
        checkpoint.save(place, "lenet", model, optimizer, epoch=0, step=1)
    assert secret.read_bytes() == SECRET


def test_a_log_is_not_written_through_a_link(secret, place):
    place.symlink_to(secret)
    with pytest.raises(JobError, match="cannot write"):
        _open_log(place)
    assert secret.read_bytes() == SECRET


def test_the_note_of_a_power_mode_is_not_written_through_a_link(secret, tmp_path):
    (tmp_path / "power_mode.part").symlink_to(secret)
    with pytest.raises(JobError, match="cannot write"):
        PowerModes(True, state=tmp_path)._write([{"by": "x", "before": {}}])
    assert secret.read_bytes() == SECRET
