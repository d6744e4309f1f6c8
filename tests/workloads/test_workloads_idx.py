"""Reading of IDX files, and refusal of damaged ones."""

from __future__ import annotations

import os
import pickle
import random
from pathlib import Path

import numpy as np
import pytest

from tracer.workloads.data import idx
from tracer.workloads.data.folder import MEND
from tracer.workloads.errors import JobError

SHAPE = (5, 2, 3)
DATA = np.arange(30, dtype=np.uint8)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "images"
    path.write_bytes(idx.pack_header(SHAPE) + DATA.tobytes())
    return path


def test_the_header_has_the_layout_of_mnist():
    assert idx.pack_header((60000, 28, 28)).hex() == "000008030000ea600000001c0000001c"


def test_items_are_read_by_index(path: Path):
    file = idx.open_idx(path, dimensions=3)
    assert file.shape == SHAPE
    assert np.array_equal(file.read(3, 2), DATA[18:30].reshape(2, 2, 3))
    assert np.array_equal(file.read(0), DATA[:6].reshape(1, 2, 3))


def test_a_copy_in_another_process_opens_the_file_again(path: Path):
    file = idx.open_idx(path, dimensions=3)
    file.read(0)
    copy = pickle.loads(pickle.dumps(file))
    assert copy._fd is None
    assert np.array_equal(copy.read(4), file.read(4))


@pytest.mark.parametrize(
    ("content", "complaint"),
    [
        (b"", "ends inside its IDX header"),
        (idx.pack_header(SHAPE)[:15], "ends inside its IDX header, after 15 bytes"),
        (b"GIF89a" + bytes(40), "begins with 47494638, not 00000803"),
        (idx.pack_header((30,)) + bytes(30), "begins with 00000801, not 00000803"),
        (idx.pack_header(SHAPE) + bytes(29), r"has 45 bytes, .*5 x 2 x 3.* asks for 46"),
        (idx.pack_header(SHAPE) + bytes(31), "has 47 bytes"),
        (idx.pack_header((2**32 - 1,) * 3), "has 16 bytes"),
    ],
)
def test_a_damaged_file_is_refused(path: Path, content: bytes, complaint: str):
    path.write_bytes(content)
    with pytest.raises(JobError, match=complaint) as caught:
        idx.open_idx(path, dimensions=3)
    assert str(path) in str(caught.value)
    assert MEND in str(caught.value)


def test_integers_are_read_back_and_refused_as_bytes(path: Path):
    written = np.array([[0, 1, -1], [2**31 - 1, -(2**31), 7]], dtype=idx.INT)
    path.write_bytes(idx.pack_header(written.shape, idx.INT) + written.tobytes())
    file = idx.open_idx(path, dimensions=2, of=idx.INT)
    assert np.array_equal(file.read(1), written[1:])
    with pytest.raises(JobError, match="begins with 00000c02, not 00000802"):
        idx.open_idx(path, dimensions=2)


def test_random_bytes_are_refused_without_a_crash(path: Path):
    source = random.Random(23)
    for length in range(64):
        path.write_bytes(source.randbytes(length))
        with pytest.raises(JobError):
            idx.open_idx(path, dimensions=1)


def test_a_special_file_is_refused_without_waiting(tmp_path: Path):
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    for path in (pipe, tmp_path):
        with pytest.raises(JobError, match="not a regular file"):
            idx.open_idx(path, dimensions=1)


def test_an_absent_file_is_named(tmp_path: Path):
    with pytest.raises(JobError, match=r"cannot read .*/gone: No such file"):
        idx.open_idx(tmp_path / "gone", dimensions=1)


def test_a_file_that_shrinks_during_reading_is_an_error(path: Path):
    file = idx.open_idx(path, dimensions=3)
    os.truncate(path, 40)
    assert len(file.read(3)) == 1
    with pytest.raises(JobError, match="was cut short"):
        file.read(4)
