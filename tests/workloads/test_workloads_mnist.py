"""The data folder of MNIST: made if it is empty, used if it holds the set, refused if damaged."""

from __future__ import annotations

import gzip
import hashlib
import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
import torch

from tracer.workloads.data import idx, mnist
from tracer.workloads.data.sets import DataRequest, DataSets
from tracer.workloads.errors import JobError

TRAIN_IMAGES = "train-images-idx3-ubyte"
TRAIN_LABELS = "train-labels-idx1-ubyte"
TEST_IMAGES = "t10k-images-idx3-ubyte"
TEST_LABELS = "t10k-labels-idx1-ubyte"
NAMES = (TRAIN_IMAGES, TRAIN_LABELS, TEST_IMAGES, TEST_LABELS)

Open = Callable[..., DataSets]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "mnist"


@pytest.fixture
def open_sets(tmp_path: Path, folder: Path) -> Open:
    def run(seed: int = 0, samples: int | None = None, data: Path | None = folder) -> DataSets:
        return mnist.open_sets(DataRequest(data, tmp_path / "output", seed, samples))

    return run


@pytest.fixture
def filled(folder: Path) -> Path:
    """Writes a user's own set: 6 training and 4 test images; image i has brightness i."""
    folder.mkdir()
    for images, labels, count in ((TRAIN_IMAGES, TRAIN_LABELS, 6), (TEST_IMAGES, TEST_LABELS, 4)):
        pixels = np.repeat(np.arange(count, dtype=np.uint8), 28 * 28)
        (folder / images).write_bytes(idx.pack_header((count, 28, 28)) + pixels.tobytes())
        (folder / labels).write_bytes(idx.pack_header((count,)) + bytes(range(count)))
    return folder


def contents(folder: Path) -> dict[str, str]:
    return {
        path.name: hashlib.sha256(path.read_bytes()).hexdigest()
        for path in folder.iterdir()
        if path.is_file()
    }


def gzip_all(folder: Path) -> None:
    for name in NAMES:
        data = (folder / name).read_bytes()
        (folder / name).unlink()
        (folder / f"{name}.gz").write_bytes(gzip.compress(data))


def test_an_absent_folder_receives_a_set(open_sets: Open, folder: Path):
    sets = open_sets(samples=40)
    assert sets.folder == folder
    assert (len(sets.train), len(sets.test)) == (40, 10)
    assert sorted(path.name for path in folder.iterdir()) == sorted(NAMES)
    assert (folder / TRAIN_IMAGES).stat().st_size == 16 + 40 * 28 * 28


def test_one_seed_writes_the_same_files_and_another_seed_others(open_sets: Open, tmp_path: Path):
    for name, seed in (("a", 7), ("b", 7), ("c", 8)):
        open_sets(seed=seed, samples=20, data=tmp_path / name)
    assert contents(tmp_path / "a") == contents(tmp_path / "b")
    assert not set(contents(tmp_path / "a").values()) & set(contents(tmp_path / "c").values())


def test_an_existing_set_is_used_and_not_drawn_again(open_sets: Open, filled: Path):
    before = contents(filled)
    sets = open_sets(seed=3)
    assert (len(sets.train), len(sets.test)) == (6, 4)
    assert contents(filled) == before


def test_a_sample_is_its_image_scaled_and_its_label(open_sets: Open, filled: Path):
    image, label = open_sets().train[5]
    assert label == 5
    assert image.shape == (1, 28, 28)
    torch.testing.assert_close(image, torch.full((1, 28, 28), (5 / 255 - 0.1307) / 0.3081))


def test_a_batch_is_its_samples_in_order(open_sets: Open, filled: Path):
    train = open_sets().train
    assert [label for _, label in train.__getitems__([4, 0, 2])] == [4, 0, 2]


def test_samples_takes_the_first_samples_of_an_existing_set(open_sets: Open, filled: Path):
    sets = open_sets(samples=2)
    assert [sets.train[i][1] for i in range(len(sets.train))] == [0, 1]
    assert len(sets.test) == 4


def test_more_samples_than_the_set_has_are_refused(open_sets: Open, filled: Path):
    with pytest.raises(JobError, match="holds 6 training samples, fewer than --samples 7"):
        open_sets(samples=7)


def test_the_default_folder_lies_beside_the_output(open_sets: Open, tmp_path: Path):
    assert open_sets(seed=3, samples=8, data=None).folder == tmp_path / "digits-seed3-8"


def test_gzipped_files_are_unpacked_into_the_output_and_left_alone(
    open_sets: Open, filled: Path, tmp_path: Path
):
    plain = contents(filled)
    gzip_all(filled)
    packed = contents(filled)
    assert open_sets().train[5][1] == 5
    assert contents(filled) == packed
    assert contents(tmp_path / "output" / "data") == plain


def test_a_set_half_drawn_by_a_killed_job_is_drawn_again(open_sets: Open, folder: Path):
    (folder / "lost+found").mkdir(parents=True)
    (folder / f"{TRAIN_IMAGES}.part").write_bytes(b"half")
    assert len(open_sets(samples=8).train) == 8
    assert sorted(path.name for path in folder.iterdir()) == sorted([*NAMES, "lost+found"])


@pytest.mark.parametrize("renamed", [1, 2, 3])
def test_a_set_of_a_job_killed_between_its_renames_is_used(
    open_sets: Open, folder: Path, renamed: int
):
    open_sets(samples=8)
    before = contents(folder)
    for name in NAMES[renamed:]:
        (folder / name).rename(folder / f"{name}.part")
    assert len(open_sets(samples=8, seed=1).train) == 8
    assert contents(folder) == before


def test_a_half_loaded_file_does_not_become_one_of_the_set(open_sets: Open, filled: Path):
    (filled / TRAIN_LABELS).rename(filled / f"{TRAIN_LABELS}.part")
    with pytest.raises(JobError, match=f"lacks {TRAIN_LABELS}"):
        open_sets()


def test_jobs_that_start_together_draw_one_set(open_sets: Open, folder: Path):
    with ThreadPoolExecutor(4) as pool:
        jobs = [pool.submit(open_sets, samples=600) for _ in range(4)]
        assert [len(job.result().train) for job in jobs] == [600] * 4
    assert sorted(path.name for path in folder.iterdir()) == sorted(NAMES)


def test_a_folder_with_other_files_is_left_unchanged(open_sets: Open, folder: Path):
    folder.mkdir()
    (folder / "thesis.tex").write_text("mine")
    with pytest.raises(JobError, match=r"holds other files \(such as thesis.tex\)"):
        open_sets()
    assert [path.name for path in folder.iterdir()] == ["thesis.tex"]


def test_a_file_in_the_place_of_the_folder_is_refused(open_sets: Open, folder: Path):
    folder.write_text("no folder")
    with pytest.raises(JobError, match=f"cannot use the data folder {folder}: File exists"):
        open_sets()


@pytest.mark.parametrize("name", NAMES)
def test_a_missing_file_is_named(open_sets: Open, filled: Path, name: str):
    (filled / name).unlink()
    with pytest.raises(JobError, match=f"lacks {name}"):
        open_sets()


@pytest.mark.parametrize("name", NAMES)
def test_a_truncated_file_is_named(open_sets: Open, filled: Path, name: str):
    os.truncate(filled / name, (filled / name).stat().st_size - 1)
    with pytest.raises(JobError, match=f"{name} has .* asks for"):
        open_sets()


def test_a_label_above_nine_is_refused(open_sets: Open, filled: Path):
    (filled / TEST_LABELS).write_bytes(idx.pack_header((4,)) + bytes([0, 9, 10, 255]))
    with pytest.raises(JobError, match=f"{TEST_LABELS} gives sample 2 the label 10, above 9"):
        open_sets()


def test_images_and_labels_must_have_equal_numbers(open_sets: Open, filled: Path):
    (filled / TRAIN_LABELS).write_bytes(idx.pack_header((5,)) + bytes(5))
    with pytest.raises(JobError, match=r"holds 6 images, but .* 5 labels"):
        open_sets()


def test_an_empty_set_is_refused(open_sets: Open, filled: Path):
    (filled / TRAIN_IMAGES).write_bytes(idx.pack_header((0, 28, 28)))
    (filled / TRAIN_LABELS).write_bytes(idx.pack_header((0,)))
    with pytest.raises(JobError, match="holds no images"):
        open_sets()


def test_images_of_another_size_are_refused(open_sets: Open, filled: Path):
    (filled / TRAIN_IMAGES).write_bytes(idx.pack_header((6, 32, 32)) + bytes(6 * 32 * 32))
    with pytest.raises(JobError, match="images of 32 x 32 pixels, not 28 x 28"):
        open_sets()


@pytest.mark.parametrize(
    ("content", "complaint"),
    [
        (b"not gzip at all", "is not a complete gzip file"),
        (gzip.compress(idx.pack_header((6, 28, 28)) + bytes(4704))[:-9], "not a complete gzip"),
        (gzip.compress(idx.pack_header((6, 28, 28)) + bytes(4703)), "asks for 4720"),
        (gzip.compress(idx.pack_header((6, 28, 28)) + bytes(10**6)), "asks for 4720"),
        (gzip.compress(b"text"), "ends inside its IDX header"),
        (gzip.compress(idx.pack_header((2**32 - 1, 28, 28)) + bytes(9)), "unpacks to 33[0-9]{11}"),
    ],
    # A gzip holds its creation time, but test processes must agree on the names of parameters.
    ids=["not gzip", "cut off", "too short", "too long", "no IDX", "too many"],
)
def test_a_damaged_or_false_gzip_is_refused(
    open_sets: Open, filled: Path, tmp_path: Path, content: bytes, complaint: str
):
    gzip_all(filled)
    (filled / f"{TRAIN_IMAGES}.gz").write_bytes(content)
    with pytest.raises(JobError, match=complaint):
        open_sets()
    unpacked = tmp_path / "output" / "data" / TRAIN_IMAGES
    assert not unpacked.exists() or unpacked.stat().st_size <= 4721
