"""Training and inference: exact step counts, nested marks, files, and reproducibility by seed."""

from __future__ import annotations

import csv
import hashlib
import os
import re
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch

from tracer.workloads.infer import infer
from tracer.workloads.options import CheckpointWay, InferOptions, TrainOptions
from tracer.workloads.train import train

pytestmark = pytest.mark.slow

Train = Callable[..., dict[str, object]]


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    """Trains in one thread, because several wait long for each other on a busy machine."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@pytest.fixture
def run(tmp_path: Path) -> Train:
    """Trains LeNet on a small set in this process; returns the summary."""

    def run(output: str = "output", samples: int = 48, **options: object) -> dict[str, object]:
        defaults = {"workers": 0, "data": tmp_path / f"data-{samples}-{options.get('seed', 0)}"}
        return train(
            TrainOptions(
                model="lenet", output=tmp_path / output, samples=samples, **(defaults | options)
            )
        )

    return run


def logged(output: Path) -> list[tuple[int, int, float]]:
    lines = (output / "train.log").read_text().splitlines()
    found = [re.fullmatch(r"epoch=(\d+) step=(\d+) loss=(\S+)", line) for line in lines]
    return [(int(m[1]), int(m[2]), float(m[3])) for m in found]


@pytest.mark.parametrize(
    ("options", "steps_of_epochs"),
    [
        ({"steps": 2}, [2]),
        ({"steps": 3}, [3]),
        ({"steps": 7}, [3, 3, 1]),
        ({"steps": 6, "epochs": 1}, [3, 3]),
        ({"epochs": 2}, [3, 3]),
        ({"epochs": 2, "samples": 40}, [3, 3]),
        ({"steps": 4, "samples": 5}, [1, 1, 1, 1]),
        ({"steps": 2, "batch_size": 1000}, [1, 1]),
    ],
)
def test_a_job_makes_the_given_number_of_steps_and_marks_each(
    run: Train, marks, tmp_path: Path, options: dict[str, int], steps_of_epochs: list[int]
):
    summary = run(**options)
    expected = [
        (epoch, sum(steps_of_epochs[:epoch]) + i)
        for epoch, steps in enumerate(steps_of_epochs)
        for i in range(steps)
    ]
    spans = marks()
    assert (summary["steps"], summary["epochs"]) == (len(expected), len(steps_of_epochs))
    steps = [span for span in spans if span.name == "step" and span.inside == ("train", "epoch")]
    assert [(span.epoch, span.step) for span in steps] == expected
    assert [(epoch, step) for epoch, step, _ in logged(tmp_path / "output")] == expected
    for once_an_epoch in ("epoch", "checkpoint"):
        found = [span.epoch for span in spans if span.name == once_an_epoch]
        assert found == list(range(len(steps_of_epochs)))


def test_the_marks_nest_and_each_step_has_its_four_parts(run: Train, marks):
    run(steps=5, samples=64)
    counted = Counter((span.inside, span.name) for span in marks())
    epoch, step = ("train", "epoch"), ("train", "epoch", "step")
    assert counted == {
        ((), "data_load"): 1,
        ((), "model_load"): 1,
        ((), "train"): 1,
        (("train",), "epoch"): 2,
        (epoch, "step"): 5,
        (step, "fetch"): 5,
        (step, "forward"): 5,
        (step, "backward"): 5,
        (step, "optimizer"): 5,
        (epoch, "checkpoint"): 2,
        ((), "inference"): 1,
        # A quarter of 64 samples is one test batch.
        (("inference",), "step"): 1,
        (("inference", "step"), "fetch"): 1,
        (("inference", "step"), "forward"): 1,
    }


def test_inference_numbers_its_batches(run: Train, marks):
    run(steps=1, samples=200)
    steps = [span.step for span in marks() if span.inside == ("inference",)]
    assert steps == [0, 1, 2, 3]


@pytest.mark.parametrize("shuffle", [True, False])
def test_the_epochs_read_in_one_order_unless_shuffled(run: Train, tmp_path: Path, shuffle: bool):
    run(epochs=2, samples=64, lr=1e-30, shuffle=shuffle)  # so that the weights stay
    losses = [loss for _, _, loss in logged(tmp_path / "output")]
    assert len(losses) == 8 and (losses[:4] == losses[4:]) != shuffle


def test_the_loss_falls(run: Train, tmp_path: Path):
    summary = run(steps=200, samples=1024)
    losses = [loss for _, _, loss in logged(tmp_path / "output")]
    assert (summary["first_loss"], summary["last_loss"]) == (losses[0], losses[-1])
    assert sum(losses[-20:]) < 0.5 * sum(losses[:20])
    assert summary["accuracy"] > 0.6


def test_the_same_seed_gives_the_same_files_and_losses(run: Train, tmp_path: Path):
    for name in ("a", "b"):
        run(output=name, steps=8, seed=5, data=tmp_path / f"data-{name}")
    for file in ("train.log", "predictions.csv"):
        assert (tmp_path / "a" / file).read_bytes() == (tmp_path / "b" / file).read_bytes()
    for file in (tmp_path / "data-a").iterdir():
        assert file.read_bytes() == (tmp_path / "data-b" / file.name).read_bytes()


def test_another_seed_gives_other_losses_on_the_same_data(run: Train, tmp_path: Path):
    for seed in (0, 1):
        run(output=str(seed), steps=3, seed=seed, data=tmp_path / "data")
    losses = [[loss for *_, loss in logged(tmp_path / str(seed))] for seed in (0, 1)]
    assert not set(losses[0]) & set(losses[1])


def test_every_epoch_sees_every_sample_in_an_order_of_its_own(run: Train, tmp_path: Path):
    # With so small a learning rate the weights do not change, so a loss identifies its batch.
    run(epochs=2, batch_size=1, samples=12, lr=1e-12)
    losses = [loss for *_, loss in logged(tmp_path / "output")]
    first, second = losses[:12], losses[12:]
    assert first != second
    assert sorted(first) == pytest.approx(sorted(second), abs=1e-4)


def test_the_checkpoint_holds_the_state_after_the_last_step(run: Train, tmp_path: Path):
    run(steps=5)
    path = tmp_path / "output" / "checkpoint.pt"
    state = torch.load(path, weights_only=True)
    assert (state["name"], state["epoch"], state["step"]) == ("lenet", 1, 5)
    assert sum(weight.numel() for weight in state["model"].values()) == 61_706
    assert len(state["optimizer"]["state"]) == len(state["model"])


@pytest.mark.parametrize(
    ("every", "after"),
    [("epoch", [3, 6, 7]), ("end", [7]), ("2", [2, 4, 6, 7]), ("7", [7]), ("100", [7])],
)
def test_checkpoints_come_when_they_are_asked_for(run: Train, tmp_path: Path, every, after):
    told = run(steps=7, checkpoint_every=every, checkpoint_way=CheckpointWay.NEW)
    names = sorted(path.name for path in (tmp_path / "output").glob("checkpoint*"))
    assert names == [*(f"checkpoint-{step:08}.pt" for step in after[:-1]), "checkpoint.pt"]
    states = [torch.load(tmp_path / "output" / name, weights_only=True) for name in names]
    assert [state["step"] for state in states] == after
    size = (tmp_path / "output" / "checkpoint.pt").stat().st_size
    assert (told["checkpoints"], told["checkpoint_bytes"]) == (len(after), size)


@pytest.mark.parametrize(
    ("way", "same_file"),
    [
        (CheckpointWay.TRUNCATE, True),
        (CheckpointWay.OVERWRITE, True),
        (CheckpointWay.RENAME, False),
        (CheckpointWay.NEW, False),
    ],
)
def test_a_checkpoint_keeps_its_file_or_takes_its_place(run: Train, tmp_path: Path, way, same_file):
    path = tmp_path / "output" / "checkpoint.pt"
    path.parent.mkdir()
    path.write_bytes(b"long before" * 100_000)  # longer than the checkpoint
    with path.open("rb") as before:
        run(steps=2, checkpoint_way=way)
        assert os.path.samestat(os.fstat(before.fileno()), path.stat()) is same_file
    assert torch.load(path, weights_only=True)["step"] == 2
    assert path.stat().st_size < 1_000_000
    assert [other.name for other in path.parent.glob("checkpoint*")] == [path.name]


def test_predictions_have_a_row_per_sample_and_give_the_accuracy(run: Train, tmp_path: Path):
    summary = run(steps=60, samples=160)
    with (tmp_path / "output" / "predictions.csv").open() as file:
        rows = list(csv.DictReader(file))
    labels = (tmp_path / "data-160-0" / "t10k-labels-idx1-ubyte").read_bytes()[8:]
    assert [int(row["index"]) for row in rows] == list(range(40))
    assert bytes(int(row["label"]) for row in rows) == labels
    right = sum(row["label"] == row["prediction"] for row in rows)
    assert summary["accuracy"] == right / 40


def test_inference_from_the_checkpoint_predicts_the_same(run: Train, marks, tmp_path: Path):
    trained = run(steps=30, samples=160)
    before = len(marks())
    summary = infer(
        InferOptions(
            model="lenet",
            output=tmp_path / "infer",
            data=tmp_path / "data-160-0",
            workers=0,
            seed=9,
            checkpoint=tmp_path / "output" / "checkpoint.pt",
        )
    )
    written = [tmp_path / folder / "predictions.csv" for folder in ("output", "infer")]
    assert written[0].read_bytes() == written[1].read_bytes()
    assert (summary["samples"], summary["accuracy"]) == (40, trained["accuracy"])
    names = [span.name for span in marks()[before:]]
    assert names == ["data_load", "model_load", "inference", *["step", "fetch", "forward"] * 3]


def test_a_later_job_overwrites_the_files_of_an_earlier_one(run: Train, tmp_path: Path):
    run(steps=6)
    run(steps=2)
    assert len(logged(tmp_path / "output")) == 2


def test_a_diverging_training_reports_null_and_goes_on(run: Train):
    summary = run(steps=6, lr=1e38)
    assert summary["steps"] == 6
    assert summary["first_loss"] == pytest.approx(2.3, abs=0.2)
    assert summary["last_loss"] is None


def test_threads_are_set(run: Train):
    before = torch.get_num_threads()
    try:
        for threads in (1, 2):
            run(steps=1, threads=threads)
            assert torch.get_num_threads() == threads
    finally:
        torch.set_num_threads(before)


def test_workers_change_no_number_and_mark_their_own_fetches(start, command, spans, tmp_path: Path):
    train = ("train", "lenet", "--steps", 6, "--samples", 48, "--threads", 1)
    train += ("--data", tmp_path / "data")
    alone = command(*train, "--workers", 0, "--output", tmp_path / "alone")
    assert (alone.status, alone.err) == (0, "")
    (tmp_path / "marks").mkdir()
    three = ("--workers", 3, "--output", tmp_path / "three")
    job = start(*train, *three, TRACER_MARKS=str(tmp_path / "marks"))
    out, err = job.communicate(timeout=60)
    assert (job.returncode, err) == (0, "")
    assert len(out.splitlines()) == len(alone.out.splitlines()) == 1
    digests = {
        hashlib.sha256((tmp_path / output / "train.log").read_bytes()).hexdigest()
        for output in ("alone", "three")
    }
    assert len(digests) == 1

    found = spans(tmp_path / "marks")
    steps = [span.inside for span in found if span.name == "step"]
    assert Counter(steps) == {("train", "epoch"): 6, ("inference",): 1}
    by_workers = [span for span in found if span.pid != job.pid]
    assert {span.name for span in by_workers} == {"fetch"}
    # Two epochs of three batches, and one test batch.
    assert len(by_workers) == 2 * 3 + 1
    assert len({span.pid for span in by_workers}) == 2 * 3 + 1


def test_a_training_ends_in_the_step_in_which_its_time_is_over(run: Train, tmp_path: Path):
    # A time that is over in the first step ends the training there, whatever else is given.
    for number, more in enumerate(({}, {"steps": 40}, {"at_least_s": 100.0})):
        ended = run(f"short-{number}", at_most_s=1e-9, checkpoint_every="end", **more)
        assert (ended["steps"], ended["epochs"], ended["ended_by"]) == (1, 1, "at_most")
        assert len(logged(tmp_path / f"short-{number}")) == 1
        assert (tmp_path / f"short-{number}" / "checkpoint.pt").exists()
        assert (tmp_path / f"short-{number}" / "predictions.csv").exists()


def test_a_training_goes_on_until_its_least_time_is_over(run: Train, tmp_path: Path):
    ended = run("long", steps=1, at_least_s=1.0, checkpoint_every="end")
    assert ended["train_s"] >= 1.0
    assert ended["steps"] > 1 and ended["ended_by"] == "at_least"
    assert len(logged(tmp_path / "long")) == ended["steps"]
    assert ended["epochs"] == -(-ended["steps"] // 3)
    # The time is not the cause if the steps alone take longer.
    assert run("steps", steps=4, at_least_s=1e-9, at_most_s=1e9)["ended_by"] == "steps"


def test_an_inference_makes_the_given_number_of_batches_in_several_passes(
    run: Train, marks, tmp_path: Path
):
    trained = run("output", steps=1)
    found = infer(
        InferOptions(
            model="lenet",
            output=tmp_path / "infer",
            data=Path(str(trained["data"])),
            workers=0,
            samples=48,
            batch_size=5,
            checkpoint=tmp_path / "output" / "checkpoint.pt",
            batches=7,
        )
    )
    # The test set has 12 samples: passes of 5, 5 and 2, and then one more batch of 5.
    assert (found["batches"], found["samples"]) == (7, 2 * 12 + 5)
    with (tmp_path / "infer" / "predictions.csv").open() as file:
        rows = list(csv.reader(file))[1:]
    assert [int(row[0]) for row in rows] == [*range(12), *range(12), *range(5)]
    assert rows[:12] == rows[12:24] and rows[:5] == rows[24:]
    correct = sum(row[1] == row[2] for row in rows)
    assert found["accuracy"] == correct / len(rows)
