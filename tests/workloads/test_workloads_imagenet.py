"""ImageNet's prepared copy: written once by the job, and again if the set changes."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from PIL import Image

from tracer.workloads.data import imagenet
from tracer.workloads.data.sets import DataRequest, DataSets
from tracer.workloads.errors import JobError

Open = Callable[..., DataSets]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "imagenet"


@pytest.fixture
def prepared(tmp_path: Path) -> Path:
    return tmp_path / "output" / "data" / "imagenet-256"


@pytest.fixture
def open_sets(tmp_path: Path, folder: Path) -> Open:
    def run(seed: int = 0, samples: int | None = None, data: Path | None = folder) -> DataSets:
        return imagenet.open_sets(DataRequest(data, tmp_path / "output", seed, samples))

    return run


@pytest.fixture
def filled(folder: Path) -> Path:
    """Writes a user's own set of three images of two classes; two differ only in their suffix."""
    colours = {"cat/1.JPEG": (200, 0, 0), "dog/1.jpg": (0, 200, 0), "dog/1.png": (0, 0, 200)}
    for split in ("train", "val"):
        for name, colour in colours.items():
            path = folder / split / name
            path.parent.mkdir(parents=True, exist_ok=True)
            Image.new("RGB", (300, 400), colour).save(path)
    return folder


def size(path: Path) -> tuple[int, int]:
    with Image.open(path) as image:
        return image.size


def times(folder: Path) -> dict[str, int]:
    files = (path for path in folder.rglob("*") if path.is_file())
    return {str(path.relative_to(folder)): path.stat().st_mtime_ns for path in files}


def age(folder: Path) -> None:
    """Sets old times on all files, so that files written from now on are newer."""
    for path in folder.rglob("*"):
        os.utime(path, ns=(0, 0))


def test_a_drawn_set_has_images_of_real_sizes(open_sets: Open, folder: Path):
    sets = open_sets(samples=12)
    assert (len(sets.train), len(sets.test), sets.classes) == (12, 3, 12)
    files = list(folder.rglob("*.jpg"))
    assert {max(size(file)) for file in files} == {500}
    # The papers' subset has 50,000 images of 6.74 GB in total.
    mean = sum(file.stat().st_size for file in files) / len(files)
    assert 0.7 < mean / (6.74e9 / 50_000) < 1.3


def test_only_the_used_split_is_prepared(open_sets: Open, prepared: Path):
    sets = open_sets(samples=8)
    assert not prepared.exists()
    sets.test.prepare()
    assert [path.name for path in prepared.iterdir()] == ["val"]
    sizes = {size(path) for path in prepared.rglob("*.jpg")}
    assert sizes == {(256, 256)}
    assert len(list(prepared.rglob("*.jpg"))) == 2


def test_one_seed_prepares_the_same_files(tmp_path: Path):
    for name in "ab":
        request = DataRequest(tmp_path / name, tmp_path / f"output-{name}", 5, 3)
        imagenet.open_sets(request).train.prepare()
    a, b = (
        sorted(
            (path.name, path.read_bytes()) for path in (tmp_path / f"output-{name}").rglob("*.jpg")
        )
        for name in "ab"
    )
    assert a == b
    assert len(a) == 3


def test_a_sample_is_the_prepared_image_scaled(open_sets: Open, filled: Path):
    train = open_sets().train
    train.prepare()
    assert [train[index][1] for index in range(3)] == [0, 1, 1]
    blue, _ = train[2]
    assert (blue.shape, blue.dtype) == ((3, 256, 256), torch.float32)
    scaled = [-0.485 / 0.229, -0.456 / 0.224, (200 / 255 - 0.406) / 0.225]
    # JPEG changes colours by a few of 255 values.
    torch.testing.assert_close(
        blue, torch.tensor(scaled).view(3, 1, 1).expand(3, 256, 256), rtol=0, atol=0.05
    )


def test_a_complete_copy_is_used_again(open_sets: Open, filled: Path, prepared: Path):
    open_sets().train.prepare()
    age(prepared)
    train = open_sets().train
    train.prepare()
    assert set(times(prepared).values()) == {0}
    assert train[1][1] == 1


def change_an_image(filled: Path, prepared: Path) -> None:
    Image.new("RGB", (300, 300), (9, 9, 9)).save(filled / "train" / "cat" / "1.JPEG")


def add_an_image(filled: Path, prepared: Path) -> None:
    Image.new("RGB", (300, 300), (9, 9, 9)).save(filled / "train" / "cat" / "2.jpg")


def clear_a_prepared_image(filled: Path, prepared: Path) -> None:
    (prepared / "train" / "1" / "00000002.jpg").unlink()


def damage_the_source(filled: Path, prepared: Path) -> None:
    (prepared / "train" / "source.sha256").write_bytes(bytes(10**6))


def leave_half_of_it(filled: Path, prepared: Path) -> None:
    (prepared / "train").rename(prepared / "train.part")


@pytest.mark.parametrize(
    "change",
    [
        change_an_image,
        add_an_image,
        clear_a_prepared_image,
        damage_the_source,
        leave_half_of_it,
    ],
)
def test_an_outdated_or_incomplete_copy_is_rewritten(
    open_sets: Open, filled: Path, prepared: Path, change: Callable[[Path, Path], None]
):
    open_sets().train.prepare()
    age(prepared)
    change(filled, prepared)
    train = open_sets().train
    train.prepare()
    written = times(prepared)
    assert len(written) == len(train) + 1
    assert 0 not in written.values()


def test_a_damaged_image_is_named_and_its_copy_stays_incomplete(
    open_sets: Open, filled: Path, prepared: Path
):
    victim = filled / "train" / "dog" / "1.png"
    victim.write_bytes(victim.read_bytes()[:99])
    with pytest.raises(JobError, match=f"{victim} is not a complete JPEG or PNG image"):
        open_sets().train.prepare()
    assert not (prepared / "train").exists()


def test_a_failed_write_is_reported(open_sets: Open, filled: Path, prepared: Path, no_large_files):
    train = open_sets().train
    with no_large_files(100), pytest.raises(JobError) as caught:
        train.prepare()
    assert str(caught.value).startswith(f"cannot prepare images in {prepared}/train: File too")
    train.prepare()
    assert train[0][1] == 0


def test_a_link_to_nowhere_is_named(open_sets: Open, filled: Path):
    (filled / "val" / "cat" / "2.jpg").symlink_to("nowhere")
    with pytest.raises(JobError, match=r"cannot read .*/val/cat/2.jpg: No such file"):
        open_sets().test.prepare()


def test_a_prepared_file_damaged_during_use_is_named(open_sets: Open, filled: Path, prepared: Path):
    train = open_sets().train
    train.prepare()
    victim = prepared / "train" / "0" / "00000000.jpg"
    os.truncate(victim, 50)
    with pytest.raises(JobError, match=f"{victim} is not a complete .*; remove {prepared}/train"):
        train[0]


def test_a_file_in_the_place_of_the_copy_is_reported(open_sets: Open, filled: Path, prepared: Path):
    prepared.parent.mkdir(parents=True)
    prepared.write_text("in the way")
    with pytest.raises(JobError, match=f"cannot prepare images in {prepared}/train: File exists"):
        open_sets().train.prepare()
