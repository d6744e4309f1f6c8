"""CIFAR-10's binary version: made if the folder is empty, read by offset, never unpickled."""

from __future__ import annotations

import hashlib
import os
import pickle
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
import torch

from tracer.workloads.data import cifar10
from tracer.workloads.data.sets import DataRequest, DataSets
from tracer.workloads.errors import JobError

TRAIN = [f"data_batch_{number}.bin" for number in range(1, 6)]
TEST = "test_batch.bin"
NAMES = [*TRAIN, TEST]

Open = Callable[..., DataSets]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "cifar10"


@pytest.fixture
def open_sets(tmp_path: Path, folder: Path) -> Open:
    def run(seed: int = 0, samples: int | None = None, data: Path | None = folder) -> DataSets:
        return cifar10.open_sets(DataRequest(data, tmp_path / "output", seed, samples))

    return run


def record(label: int) -> bytes:
    """Returns a record in plain colours: red is 10 times the label, green 20 times, blue 25."""
    red, green, blue = (bytes([share * label]) * 1024 for share in (10, 20, 25))
    return bytes([label]) + red + green + blue


@pytest.fixture
def filled(folder: Path) -> Path:
    """Writes a user's own set: sample i has label i, two per file; the test split has 3."""
    folder.mkdir()
    for number, name in enumerate(TRAIN):
        (folder / name).write_bytes(record(2 * number) + record(2 * number + 1))
    (folder / TEST).write_bytes(record(9) + record(4) + record(0))
    (folder / "readme.html").write_text("as it is handed out")
    return folder


def contents(folder: Path) -> dict[str, str]:
    return {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in folder.iterdir()}


def labels(split) -> list[int]:
    return [split[index][1] for index in range(len(split))]


def test_an_absent_folder_receives_a_set_in_the_usual_layout(open_sets: Open, folder: Path):
    sets = open_sets(samples=42)
    assert (len(sets.train), len(sets.test), sets.classes) == (42, 10, 10)
    assert {path.name for path in folder.iterdir()} == {*NAMES, "batches.meta.txt"}
    assert (folder / "batches.meta.txt").read_text().split() == list(cifar10.CLASSES)
    sizes = [(folder / name).stat().st_size for name in NAMES]
    assert sizes == [n * 3073 for n in (8, 8, 9, 8, 9, 10)]


def test_one_seed_writes_the_same_files_and_another_seed_others(open_sets: Open, tmp_path: Path):
    for name, seed in (("a", 7), ("b", 7), ("c", 8)):
        open_sets(seed=seed, samples=20, data=tmp_path / name)
    a, b, c = (contents(tmp_path / name) for name in "abc")
    assert a == b
    assert not {a[name] for name in NAMES} & {c[name] for name in NAMES}


def test_a_sample_does_not_depend_on_the_number_drawn(open_sets: Open, tmp_path: Path):
    # More images than one block, the number painted at once.
    few = open_sets(samples=11, data=tmp_path / "few")
    many = open_sets(samples=300, data=tmp_path / "many")
    for index in range(11):
        assert torch.equal(few.train[index][0], many.train[index][0])
    assert labels(few.train) == labels(many.train)[:11]
    assert labels(few.test) == labels(many.test)[:2]
    pixels = {image.numpy().tobytes() for image, _ in (many.train[i] for i in range(300))}
    assert len(pixels) == 300


def test_an_existing_set_is_used_and_not_drawn_again(open_sets: Open, filled: Path):
    before = contents(filled)
    sets = open_sets(seed=3)
    assert labels(sets.train) == list(range(10))
    assert labels(sets.test) == [9, 4, 0]
    assert contents(filled) == before


def test_a_set_is_found_in_the_folder_of_its_archive(open_sets: Open, filled: Path):
    inner = filled / "cifar-10-batches-bin"
    inner.mkdir()
    for name in NAMES:
        (filled / name).rename(inner / name)
    sets = open_sets()
    assert sets.folder == inner
    assert len(sets.train) == 10


def test_a_sample_is_its_image_scaled_plane_by_plane(open_sets: Open, filled: Path):
    image, label = open_sets().train[7]
    assert label == 7
    assert image.shape == (3, 32, 32)
    scaled = [(70 / 255 - 0.4914) / 0.2470, (140 / 255 - 0.4822) / 0.2435]
    scaled.append((175 / 255 - 0.4465) / 0.2616)
    expected = torch.tensor(scaled).view(3, 1, 1).expand(3, 32, 32)
    torch.testing.assert_close(image, expected)


def test_samples_takes_the_first_samples_of_an_existing_set(open_sets: Open, filled: Path):
    sets = open_sets(samples=3)
    assert labels(sets.train) == [0, 1, 2]
    with pytest.raises(JobError, match="holds 10 training samples, fewer than --samples 11"):
        open_sets(samples=11)


def test_a_copy_in_another_process_opens_the_files_again(open_sets: Open, filled: Path):
    file = cifar10.RecordFile(filled / TEST, 3)
    file.read(0)
    copy = pickle.loads(pickle.dumps(file))
    assert copy._fd is None
    assert copy.read(1)[1] == 4


def test_the_error_for_the_python_version_names_the_remedy(open_sets: Open, folder: Path):
    (folder / "cifar-10-batches-py").mkdir(parents=True)
    with pytest.raises(JobError, match=r"pickled and could run code; get .*cifar-10-binary.tar.gz"):
        open_sets()
    (folder / "cifar-10-batches-py").rmdir()
    for name in ("data_batch_1", "test_batch"):
        (folder / name).write_bytes(pickle.dumps({"data": [1]}))
    with pytest.raises(JobError, match="pickled and could run code"):
        open_sets()


def test_a_packed_archive_is_refused(open_sets: Open, folder: Path):
    folder.mkdir()
    (folder / "cifar-10-binary.tar.gz").write_bytes(b"packed")
    with pytest.raises(JobError, match=r"holds cifar-10-binary.tar.gz; unpack it there"):
        open_sets()


def test_a_set_half_drawn_by_a_killed_job_is_drawn_again(open_sets: Open, folder: Path):
    (folder / "lost+found").mkdir(parents=True)
    (folder / f"{TRAIN[0]}.part").write_bytes(b"half")
    assert len(open_sets(samples=8).train) == 8
    assert not list(folder.glob("*.part"))


def test_the_renames_of_a_killed_job_are_finished(open_sets: Open, folder: Path):
    open_sets(samples=8)
    before = contents(folder)
    for name in NAMES[3:]:
        (folder / name).rename(folder / f"{name}.part")
    assert len(open_sets(seed=9).train) == 8
    assert contents(folder) == before


def test_jobs_that_start_together_draw_one_set(open_sets: Open, folder: Path):
    with ThreadPoolExecutor(4) as pool:
        jobs = [pool.submit(open_sets, samples=600) for _ in range(4)]
        assert [len(job.result().train) for job in jobs] == [600] * 4
    assert not list(folder.glob("*.part"))


def test_a_folder_with_other_files_is_left_unchanged(open_sets: Open, folder: Path):
    folder.mkdir()
    (folder / "thesis.tex").write_text("mine")
    with pytest.raises(JobError, match=r"holds other files \(such as 'thesis.tex'\)"):
        open_sets()
    assert [path.name for path in folder.iterdir()] == ["thesis.tex"]


@pytest.mark.parametrize("name", NAMES)
def test_a_missing_file_is_named(open_sets: Open, filled: Path, name: str):
    (filled / name).unlink()
    with pytest.raises(JobError, match=f"lacks {name}"):
        open_sets()


@pytest.mark.parametrize("name", NAMES)
def test_a_truncated_file_is_named(open_sets: Open, filled: Path, name: str):
    os.truncate(filled / name, (filled / name).stat().st_size - 1)
    with pytest.raises(
        JobError, match=f"{name} has .* bytes, not a multiple of the record size 3073"
    ):
        open_sets()


def test_an_empty_set_is_refused(open_sets: Open, filled: Path):
    os.truncate(filled / TEST, 0)
    with pytest.raises(JobError, match=f"{TEST} holds no records"):
        open_sets()


def test_a_special_file_is_refused_without_waiting(open_sets: Open, filled: Path):
    (filled / TEST).unlink()
    os.mkfifo(filled / TEST)
    with pytest.raises(JobError, match=f"{TEST} is not a regular file"):
        open_sets()


def test_a_label_above_nine_is_refused_when_it_is_read(open_sets: Open, filled: Path):
    (filled / TEST).write_bytes(record(9) + bytes([10]) + bytes(3072))
    test = open_sets().test
    assert test[0][1] == 9
    with pytest.raises(JobError, match=f"{TEST} gives record 1 the label 10, above 9"):
        test[1]


def test_a_file_that_shrinks_during_reading_is_an_error(open_sets: Open, filled: Path):
    test = open_sets().test
    os.truncate(filled / TEST, 2 * 3073)
    assert test[1][1] == 4
    with pytest.raises(JobError, match="was cut short while the job read it"):
        test[2]


def test_a_failed_write_is_reported(open_sets: Open, folder: Path, no_large_files):
    with no_large_files(50_000), pytest.raises(JobError) as caught:
        open_sets(samples=300)
    assert str(caught.value) == (
        f"cannot use the data folder {folder}: File too large; name another folder with --data"
    )
    assert len(open_sets(samples=300).train) == 300


def test_a_set_larger_than_the_disk_is_refused_before_drawing(open_sets: Open, folder: Path):
    with pytest.raises(JobError, match=r"the set needs [0-9]{19} bytes in"):
        open_sets(samples=10**15)
    assert not list(folder.iterdir())


def test_drawn_pictures_fill_their_three_planes(open_sets: Open, folder: Path):
    open_sets(samples=5)
    data = np.frombuffer((folder / TRAIN[0]).read_bytes(), dtype=np.uint8)
    planes = data[1:].reshape(3, 32, 32).astype(int)
    # Grain is below 24, and colours change little from a pixel to the next.
    assert np.abs(np.diff(planes, axis=2)).max() < 24 + 48
