"""The folder of articles: made if it is empty, used if it holds texts, and prepared."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
import torch

from tracer.workloads.data import idx, wikipedia
from tracer.workloads.data.sets import DataRequest, DataSets
from tracer.workloads.errors import JobError

NAMES = ("test.jsonl", "train.jsonl")
PREPARED = (
    *("prepared.json", "test.labels", "test.tokens"),
    *("train.labels", "train.tokens", "vocabulary.txt"),
)
TRAIN = (
    ("Cats", "Cats walked. The cat walks, walking!", "animals"),
    ("Red", "A red _red_ 7", "colours"),
    ("Cat", "", "animals"),
)
TEST = (("Dogs", "The DOG", "animals"), ("", "...", "colours"))

Open = Callable[..., DataSets]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "articles"


@pytest.fixture
def prepared(tmp_path: Path) -> Path:
    return tmp_path / "output" / "data"


@pytest.fixture
def open_sets(tmp_path: Path, folder: Path) -> Open:
    def run(
        seed: int = 0,
        samples: int | None = None,
        data: Path | None = folder,
        output: str = "output",
    ) -> DataSets:
        return wikipedia.open_sets(DataRequest(data, tmp_path / output, seed, samples))

    return run


def write(path: Path, articles: tuple[tuple[str, str, str], ...]) -> None:
    keys = ("title", "text", "topic")
    path.write_text("".join(json.dumps(dict(zip(keys, a, strict=True))) + "\n" for a in articles))


@pytest.fixture
def filled(folder: Path) -> Path:
    """Writes a user's own set."""
    folder.mkdir()
    write(folder / "train.jsonl", TRAIN)
    write(folder / "test.jsonl", TEST)
    return folder


def contents(folder: Path) -> dict[str, str]:
    return {
        path.name: hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(folder.iterdir())
    }


def overwrite(path: Path, offset: int, content: bytes) -> None:
    """Overwrites bytes of a file without a change of its size."""
    with path.open("r+b") as file:
        file.seek(offset)
        file.write(content)


def rows(samples: list[list[int]]) -> bytes:
    padded = np.array([row + [0] * (128 - len(row)) for row in samples], dtype=">i4")
    return idx.pack_header(padded.shape, idx.INT) + padded.tobytes()


def test_an_absent_folder_receives_a_set(open_sets: Open, folder: Path, prepared: Path):
    sets = open_sets(samples=40)
    assert sets.folder == folder
    assert (len(sets.train), len(sets.test), sets.classes) == (40, 10, 10)
    assert sorted(path.name for path in folder.iterdir()) == sorted(NAMES)
    assert sorted(path.name for path in prepared.iterdir()) == sorted(PREPARED)
    assert (folder / "train.jsonl").read_bytes().count(b"\n") == 40
    assert (prepared / "train.tokens").stat().st_size == 12 + 40 * 128 * 4


def test_one_seed_writes_the_same_files_and_another_seed_others(open_sets: Open, tmp_path: Path):
    for name, seed in (("a", 7), ("b", 7), ("c", 8)):
        open_sets(seed=seed, samples=20, data=tmp_path / name, output=f"{name}-output")
        # This file holds the folder's name and modification time.
        (tmp_path / f"{name}-output" / "data" / "prepared.json").unlink()
    for written in ("{}", "{}-output/data"):
        a, b, c = (contents(tmp_path / written.format(name)) for name in "abc")
        assert a == b
        assert not set(a.values()) & set(c.values())


def test_an_existing_set_is_used_and_not_drawn_again(open_sets: Open, filled: Path):
    before = contents(filled)
    sets = open_sets(seed=3)
    assert (len(sets.train), len(sets.test), sets.classes) == (3, 2, 2)
    assert contents(filled) == before


def test_texts_are_split_numbered_and_padded(open_sets: Open, filled: Path, prepared: Path):
    assert open_sets().vocabulary == 11
    vocabulary = (prepared / "vocabulary.txt").read_text().split("\n")
    assert vocabulary == ["cat", "##s", "red", "walk", "##ed", "##ing", "7", "a", "the", ""]
    train = [[1, 2, 1, 2, 4, 5, 9, 1, 4, 2, 4, 6], [3, 8, 3, 3, 7], [1]]
    assert (prepared / "train.tokens").read_bytes() == rows(train)
    assert (prepared / "test.tokens").read_bytes() == rows([[10, 2, 9, 10], [10]])
    labels = idx.open_idx(prepared / "train.labels", dimensions=1, of=idx.INT)
    assert labels.read(0, 3).tolist() == [0, 1, 0]


def test_a_sample_is_its_row_and_its_label(open_sets: Open, filled: Path):
    tokens, label = open_sets().train[1]
    assert (tokens.dtype, tokens.shape, label) == (torch.int64, (128,), 1)
    assert tokens[:6].tolist() == [3, 8, 3, 3, 7, 0]


def test_a_batch_is_its_samples_in_order(open_sets: Open, filled: Path):
    train = open_sets().train
    assert [int(tokens[0]) for tokens, _ in train.__getitems__([2, 0, 1])] == [1, 1, 3]


def test_a_long_text_is_cut(open_sets: Open, filled: Path):
    write(filled / "test.jsonl", (("Red", "the cats " * 100, "colours"),))
    tokens, _ = open_sets().test[0]
    assert tokens.tolist() == [3, *[9, 1, 2] * 43][:128]


def test_token_numbers_do_not_depend_on_the_number_of_samples(
    open_sets: Open, filled: Path, tmp_path: Path
):
    whole, first = open_sets(), open_sets(samples=1, output="few")
    assert (len(first.train), len(first.test)) == (1, 2)
    assert (first.vocabulary, first.classes) == (whole.vocabulary, whole.classes)
    assert torch.equal(first.train[0][0], whole.train[0][0])
    vocabularies = [tmp_path / name / "data" / "vocabulary.txt" for name in ("output", "few")]
    assert vocabularies[0].read_bytes() == vocabularies[1].read_bytes()


def test_more_samples_than_the_set_has_are_refused(open_sets: Open, filled: Path):
    with pytest.raises(JobError, match="holds 3 training samples, fewer than --samples 4"):
        open_sets(samples=4)


def test_the_default_folder_lies_beside_the_output(open_sets: Open, tmp_path: Path):
    assert open_sets(seed=3, samples=8, data=None).folder == tmp_path / "articles-seed3-8"


def test_prepared_files_are_used_until_their_source_changes(
    open_sets: Open, filled: Path, prepared: Path
):
    assert open_sets().train[0][1] == 0
    # A label that only the prepared file has shows its use.
    overwrite(prepared / "train.labels", 8, bytes([0, 0, 0, 1]))
    assert open_sets().train[0][1] == 1
    os.utime(filled / "train.jsonl", ns=(23, 23))
    assert open_sets().train[0][1] == 0


@pytest.mark.parametrize("samples", [2, None])
def test_other_samples_are_prepared_anew(open_sets: Open, filled: Path, samples: int | None):
    assert len(open_sets(samples=1).train) == 1
    assert len(open_sets(samples=samples).train) == (samples or 3)


@pytest.mark.parametrize("name", PREPARED)
def test_files_half_prepared_by_a_killed_job_are_prepared_again(
    open_sets: Open, filled: Path, prepared: Path, name: str
):
    open_sets()
    before = contents(prepared)
    os.truncate(prepared / name, 3)
    assert len(open_sets().train) == 3
    assert contents(prepared) == before


@pytest.mark.parametrize(
    "content",
    [b"", b"[]", b"{}", b"\xff", b"[" * 60_000, b'{"asked": {}, "sizes": {}, "classes": 1}'],
)
def test_a_foreign_mark_of_prepared_files_is_ignored(
    open_sets: Open, filled: Path, prepared: Path, content: bytes
):
    open_sets()
    (prepared / "prepared.json").write_bytes(content)
    overwrite(prepared / "train.labels", 8, bytes([0, 0, 0, 1]))
    assert open_sets().train[0][1] == 0


@pytest.mark.parametrize("count", [0, -1, 1001, 10**30])
def test_a_mark_with_an_impossible_count_is_ignored(
    open_sets: Open, filled: Path, prepared: Path, count: int
):
    open_sets()
    for key in ("classes", "vocabulary"):
        mark = json.loads((prepared / "prepared.json").read_text())
        (prepared / "prepared.json").write_text(json.dumps(mark | {key: count * 1000}))
        sets = open_sets()
        assert (sets.classes, sets.vocabulary) == (2, 11)


@pytest.mark.parametrize("token", [11, 2**31 - 1, -1])
def test_a_token_outside_the_vocabulary_is_refused(
    open_sets: Open, filled: Path, prepared: Path, token: int
):
    open_sets()
    overwrite(prepared / "train.tokens", 12 + 512, token.to_bytes(4, "big", signed=True))
    train = open_sets().train
    assert train[0][1] == 0
    with pytest.raises(JobError, match=f"sample 1 a token .*; remove {prepared} to have"):
        train[1]


@pytest.mark.parametrize("label", [2, 2**31 - 1, -1])
def test_a_label_without_a_class_is_refused(
    open_sets: Open, filled: Path, prepared: Path, label: int
):
    open_sets()
    overwrite(prepared / "test.labels", 12, label.to_bytes(4, "big", signed=True))
    with pytest.raises(JobError, match=r"test.labels holds no labels, or a label that is no class"):
        open_sets()


@pytest.mark.parametrize("name", ["train.tokens", "test.labels"])
def test_another_header_is_refused(open_sets: Open, filled: Path, prepared: Path, name: str):
    open_sets()
    overwrite(prepared / name, 4, b"\xff\xff\xff\xff")
    with pytest.raises(JobError, match=f"{name} has .* bytes, but its header"):
        open_sets()


def test_rows_truncated_during_reading_are_reported(open_sets: Open, filled: Path, prepared: Path):
    train = open_sets().train
    os.truncate(prepared / "train.tokens", 1000)
    assert train[0][1] == 0
    with pytest.raises(JobError, match=f"tokens was cut short .*; remove {prepared} to have"):
        train[1]


def test_a_topic_of_only_the_test_split_is_a_class(open_sets: Open, filled: Path):
    write(filled / "test.jsonl", (*TEST, ("A", "b", "birds")))
    sets = open_sets()
    assert sets.classes == 3
    assert [sets.train[i][1] for i in range(3)] == [0, 2, 0]
    assert [sets.test[i][1] for i in range(3)] == [0, 2, 1]


def test_topics_that_cannot_be_classes_are_refused(open_sets: Open, filled: Path):
    write(filled / "train.jsonl", tuple(("A", "b", str(i)) for i in range(1001)))
    with pytest.raises(JobError, match=r"has more than 1000 different topics"):
        open_sets()


def test_a_damaged_line_is_reported(open_sets: Open, filled: Path, prepared: Path):
    with (filled / "test.jsonl").open("ab") as file:
        file.write(b'{"title": "cut')
    with pytest.raises(
        JobError, match=f"line 3 of {filled}/test.jsonl is not a complete JSON object"
    ):
        open_sets()
    assert not (prepared / "prepared.json").exists()


def test_lone_surrogates_are_prepared_nevertheless(open_sets: Open, filled: Path):
    write(filled / "train.jsonl", (("\ud800", "cat\udfff", "\udabc"),))
    write(filled / "test.jsonl", (("\x00", "", "\udabc"),))
    sets = open_sets()
    assert (sets.vocabulary, sets.classes) == (3, 1)
    assert int(sets.train[0][0][0]) == 1


def test_a_file_size_limit_is_reported(
    open_sets: Open, filled: Path, prepared: Path, no_large_files
):
    with (
        pytest.raises(JobError, match=f"cannot prepare the texts in {prepared}: File too large"),
        no_large_files(100),
    ):
        open_sets()


def test_a_set_half_drawn_by_a_killed_job_is_drawn_again(open_sets: Open, folder: Path):
    (folder / "lost+found").mkdir(parents=True)
    (folder / "train.jsonl.part").write_bytes(b"half")
    assert len(open_sets(samples=8).train) == 8
    assert sorted(path.name for path in folder.iterdir()) == ["lost+found", *NAMES]


def test_a_set_of_a_job_killed_between_its_renames_is_used(open_sets: Open, folder: Path):
    open_sets(samples=8)
    before = contents(folder)
    (folder / "test.jsonl").rename(folder / "test.jsonl.part")
    assert len(open_sets(samples=8, seed=1).train) == 8
    assert contents(folder) == before


def test_jobs_that_start_together_draw_one_set(open_sets: Open, folder: Path):
    with ThreadPoolExecutor(4) as pool:
        jobs = [pool.submit(open_sets, samples=300, output=str(i % 2)) for i in range(4)]
        assert [len(job.result().train) for job in jobs] == [300] * 4
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
def test_a_special_file_is_named(open_sets: Open, filled: Path, name: str):
    (filled / name).unlink()
    os.mkfifo(filled / name)
    with pytest.raises(JobError, match=f"{name} is not a regular file"):
        open_sets()
