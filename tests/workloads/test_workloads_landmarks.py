"""Folders of image files: made if empty, used if they hold train/ and val/, else refused."""

from __future__ import annotations

import hashlib
import io
import os
import random
import struct
import zlib
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from tracer.workloads.data import image_files, landmarks
from tracer.workloads.data.image_folder import Drawn
from tracer.workloads.data.sets import DataRequest, DataSets
from tracer.workloads.errors import JobError

Open = Callable[..., DataSets]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "landmarks"


@pytest.fixture
def open_sets(tmp_path: Path, folder: Path) -> Open:
    def run(seed: int = 0, samples: int | None = None, data: Path | None = folder) -> DataSets:
        return landmarks.open_sets(DataRequest(data, tmp_path / "output", seed, samples))

    return run


def save(path: Path, colour: tuple[int, int, int], size: tuple[int, int] = (40, 30)) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.new("RGB", size, colour).save(path)


@pytest.fixture
def filled(folder: Path) -> Path:
    """Writes a user's own set: two classes with three images each, and one each to test with."""
    for label, name in enumerate(("bridge", "tower")):
        for number in range(3):
            save(folder / "train" / name / f"{number}.JPEG", (100 * label, 50 * number, 0))
        save(folder / "val" / name / "one.png", (100 * label, 0, 200))
    (folder / "train" / "tower" / "notes.txt").write_text("no image")
    (folder / "train" / ".cache").mkdir()
    return folder


def size(path: Path) -> tuple[int, int]:
    with Image.open(path) as image:
        return image.size


def contents(folder: Path) -> dict[str, str]:
    return {
        str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in folder.rglob("*")
        if path.is_file()
    }


def labels(split) -> list[int]:
    return [split[index][1] for index in range(len(split))]


def png(width: int, height: int, data: bytes = b"") -> bytes:
    """Returns a PNG with this size in its header; `data` are its pixels."""

    def chunk(kind: bytes, body: bytes) -> bytes:
        return (
            struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))
        )

    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    packed = chunk(b"IDAT", zlib.compress(data))
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + packed + chunk(b"IEND", b"")


def test_an_absent_folder_receives_images_of_real_sizes(open_sets: Open, folder: Path):
    sets = open_sets(samples=12)
    assert (len(sets.train), len(sets.test), sets.classes) == (12, 3, 12)
    assert sets.folder == folder
    files = list(folder.rglob("*.jpg"))
    assert len(files) == 15
    sizes = [size(file) for file in files]
    assert {max(size) for size in sizes} == {1000}
    assert all(666 <= min(size) < 800 for size in sizes)
    assert len(set(sizes)) > 5
    # GLD-23k has 23,080 images of 2.82 GB in total.
    mean = sum(file.stat().st_size for file in files) / len(files)
    assert 0.7 < mean / (2.82e9 / 23_080) < 1.3


def test_one_seed_writes_the_same_files_and_another_seed_others(open_sets: Open, tmp_path: Path):
    for name, seed in (("a", 7), ("b", 7), ("c", 8)):
        open_sets(seed=seed, samples=4, data=tmp_path / name)
    assert contents(tmp_path / "a") == contents(tmp_path / "b")
    assert not set(contents(tmp_path / "a").values()) & set(contents(tmp_path / "c").values())


def test_a_sample_does_not_depend_on_the_number_drawn(open_sets: Open, tmp_path: Path):
    for name, samples in (("few", 4), ("many", 8)):
        open_sets(samples=samples, data=tmp_path / name)
    few, many = contents(tmp_path / "few"), contents(tmp_path / "many")
    assert few.items() < many.items()
    assert len(set(many.values())) == 10


def test_the_test_split_has_no_classes_of_its_own():
    drawn = Drawn("a", 1, classes=60, block=100, longer=9, grain=2, quality=85, file_bytes=1)
    for samples in range(1, 700):
        train = {drawn.label(0, index) for index in range(samples)}
        test = {drawn.label(1, index) for index in range(max(1, samples // 4))}
        assert train == set(range(len(train)))
        assert test <= train
    assert len({drawn.label(0, index) for index in range(100)}) == 20
    assert len(train) == 60


def test_a_set_that_is_there_is_used_by_class_and_name(open_sets: Open, filled: Path):
    before = contents(filled)
    sets = open_sets(seed=3)
    assert labels(sets.train) == [0, 0, 0, 1, 1, 1]
    assert labels(sets.test) == [0, 1]
    assert sets.classes == 2
    assert contents(filled) == before


def test_a_sample_is_its_image_scaled(open_sets: Open, filled: Path):
    image, label = open_sets().test[1]
    assert label == 1
    assert (image.shape, image.dtype) == ((3, 224, 224), torch.float32)
    scaled = [(100 / 255 - 0.485) / 0.229, -0.456 / 0.224, (200 / 255 - 0.406) / 0.225]
    torch.testing.assert_close(image, torch.tensor(scaled).view(3, 1, 1).expand(3, 224, 224))


def test_the_middle_square_is_taken(tmp_path: Path):
    image = Image.new("RGB", (30, 10), (255, 0, 0))
    image.paste((0, 0, 255), (10, 0, 20, 10))
    for name, turned in (("wide.png", image), ("high.png", image.rotate(90, expand=True))):
        turned.save(tmp_path / name)
        pixels = np.array(image_files.read_square(tmp_path / name, 8))
        # The outermost pixels have a little of the red around the square.
        assert (pixels[2:-2, 2:-2] == (0, 0, 255)).all()
        assert pixels[..., 2].min() > 200


@pytest.mark.parametrize("mode", ["L", "CMYK", "RGB"])
def test_grey_and_print_colours_become_rgb(tmp_path: Path, mode: str):
    Image.new(mode, (20, 20)).save(tmp_path / "image.jpg")
    assert image_files.read_square(tmp_path / "image.jpg", 8).mode == "RGB"


def test_samples_are_taken_evenly_from_all_classes(open_sets: Open, filled: Path):
    sets = open_sets(samples=2)
    assert labels(sets.train) == [0, 1]
    assert len(sets.test) == 2
    with pytest.raises(JobError, match="holds 6 training samples, fewer than --samples 7"):
        open_sets(samples=7)


def test_the_default_folder_lies_beside_the_output(open_sets: Open, tmp_path: Path):
    assert open_sets(seed=3, samples=1, data=None).folder == tmp_path / "landmarks-seed3-1"


def test_a_set_half_drawn_by_a_killed_job_is_drawn_again(open_sets: Open, folder: Path):
    save(folder / "train.part" / "class0000" / "00000099.jpg", (0, 0, 0))
    assert len(open_sets(samples=2).train) == 2
    assert sorted(path.name for path in folder.iterdir()) == ["train", "val"]


def test_the_renames_of_a_killed_job_are_finished(open_sets: Open, folder: Path):
    open_sets(samples=2)
    before = contents(folder)
    (folder / "train").rename(folder / "train.part")
    assert len(open_sets(seed=9).train) == 2
    assert contents(folder) == before


def test_jobs_that_start_together_draw_one_set(open_sets: Open, folder: Path):
    with ThreadPoolExecutor(3) as pool:
        jobs = [pool.submit(open_sets, samples=5) for _ in range(3)]
        assert [len(job.result().train) for job in jobs] == [5] * 3
    assert sorted(path.name for path in folder.iterdir()) == ["train", "val"]


def test_a_folder_with_other_files_is_left_unchanged(open_sets: Open, folder: Path):
    folder.mkdir()
    (folder / "thesis.tex").write_text("mine")
    with pytest.raises(JobError, match=r"holds other files \(such as 'thesis.tex'\)"):
        open_sets()
    assert [path.name for path in folder.iterdir()] == ["thesis.tex"]


@pytest.mark.parametrize("split", ["train", "val"])
def test_a_missing_split_is_named(open_sets: Open, filled: Path, split: str):
    (filled / split).rename(filled.parent / "elsewhere")
    with pytest.raises(JobError, match=f"lacks {split}/"):
        open_sets()


def test_splits_without_classes_or_images_are_refused(open_sets: Open, folder: Path):
    (folder / "train").mkdir(parents=True)
    (folder / "val").mkdir()
    with pytest.raises(JobError, match="train holds no class folder"):
        open_sets()
    (folder / "train" / "tower").mkdir()
    with pytest.raises(JobError, match="train holds no images"):
        open_sets()


def test_a_class_of_only_the_test_split_is_refused(open_sets: Open, filled: Path):
    save(filled / "val" / "arch" / "1.jpg", (0, 0, 0))
    with pytest.raises(JobError, match="val/arch is a class that train/ lacks"):
        open_sets()


@pytest.mark.parametrize("name", ["two\nlines.jpg", "\x1b[2J.jpg", b"\xff.jpg"])
def test_a_name_that_would_garble_an_error_is_refused(
    open_sets: Open, filled: Path, name: str | bytes
):
    save(filled / "train" / "tower" / os.fsdecode(name), (0, 0, 0))
    with pytest.raises(JobError, match="holds the unprintable name") as caught:
        open_sets()
    assert str(caught.value).isprintable()


def test_a_failed_write_is_reported(open_sets: Open, folder: Path, no_large_files):
    with no_large_files(50_000), pytest.raises(JobError) as caught:
        open_sets(samples=2)
    assert str(caught.value) == (
        f"cannot use the data folder {folder}: File too large; name another folder with --data"
    )
    assert len(open_sets(samples=2).train) == 2


def test_a_set_larger_than_the_disk_is_refused_before_drawing(open_sets: Open, folder: Path):
    with pytest.raises(JobError, match=r"the set needs [0-9]{15} bytes in"):
        open_sets(samples=10**9)
    assert not list(folder.iterdir())


@pytest.mark.parametrize(
    ("content", "complaint"),
    [
        (b"", "is not a complete JPEG or PNG image"),
        (b"text", "is not a complete JPEG or PNG image"),
        (b"GIF89a\x01\x00\x01\x00\x80\x00\x00\x00\x00\x00", "is not a complete JPEG or PNG image"),
        (png(8, 8), "is not a complete JPEG or PNG image"),
        (png(8, 8, bytes(30)), "is not a complete JPEG or PNG image"),
        (png(2**31 - 1, 2**31 - 1), "is not a complete JPEG or PNG image"),
        (png(10_000, 10_000), "states 10000 x 10000 pixels, more than"),
        (bytes(image_files.MOST_BYTES + 1), "has 67108865 bytes, more than"),
    ],
)
def test_a_damaged_or_false_file_is_named(tmp_path: Path, content: bytes, complaint: str):
    path = tmp_path / "image.jpg"
    path.write_bytes(content)
    with pytest.raises(JobError, match=f"{path} {complaint}") as caught:
        image_files.read_square(path, 8)
    assert "\n" not in str(caught.value)


def test_a_complete_generated_png_is_read(tmp_path: Path):
    (tmp_path / "image.png").write_bytes(png(8, 8, bytes(8 * 25)))
    assert image_files.read_square(tmp_path / "image.png", 8).getcolors() == [(64, (0, 0, 0))]


def test_an_image_of_one_line_is_not_enlarged(tmp_path: Path):
    # If its shorter side became 256 pixels, the other would have 15 million.
    save(tmp_path / "line.jpg", (0, 0, 0), (60_000, 1))
    assert image_files.read_square(tmp_path / "line.jpg", 256).size == (256, 256)


def test_a_file_truncated_anywhere_is_refused(tmp_path: Path):
    whole = io.BytesIO()
    Image.effect_noise((48, 48), 80).save(whole, "JPEG")
    path = tmp_path / "image.jpg"
    for size in range(0, len(whole.getvalue()) - 40, 23):
        path.write_bytes(whole.getvalue()[:size])
        with pytest.raises(JobError, match="not a complete"):
            image_files.read_square(path, 8)


@pytest.mark.parametrize("kind", ["JPEG", "PNG"])
def test_flipped_bytes_never_crash_the_reader(tmp_path: Path, kind: str):
    whole = io.BytesIO()
    Image.effect_noise((48, 48), 80).save(whole, kind)
    path = tmp_path / "image"
    source = random.Random(23)
    refused = 0
    for _ in range(300):
        damaged = bytearray(whole.getvalue())
        # Headers and tables are at the beginning.
        damaged[source.randrange(0, 700)] = source.randrange(256)
        path.write_bytes(damaged)
        try:
            assert image_files.read_square(path, 8).size == (8, 8)
        except JobError:
            refused += 1
    assert 0 < refused <= 300


def test_a_special_file_is_refused_without_waiting(tmp_path: Path):
    os.mkfifo(tmp_path / "pipe.jpg")
    with pytest.raises(JobError, match="not a regular file"):
        image_files.read_square(tmp_path / "pipe.jpg", 8)


def test_an_absent_file_is_named(open_sets: Open, filled: Path):
    test = open_sets().test
    (filled / "val" / "bridge" / "one.png").unlink()
    with pytest.raises(JobError, match=r"cannot read .*/val/bridge/one.png: No such file"):
        test[0]
