"""Trainings of a study leave checkpoints, and come before the servings that take them."""

import hashlib
import itertools
import os

import pytest

from tracer.workloads.studies.checkpoints import FOLDER, Checkpoints, serves
from tracer.workloads.studies.order import in_order
from tracer.workloads.studies.study import Factors, Run

LOAD = {"mode": "serve", "rate": 1, "requests": 1}
PLACES = ("host", "1", "4")
MODELS = ("lenet", "lstm")


def train(model="lenet", where="host", repeat=0, **more):
    return Run(Factors(model, where, **more), repeat)


def serve(model="lenet", where="host", repeat=0, **more):
    return Run(Factors(model, where, **LOAD, **more), repeat)


UNUSUAL = [
    {"memory": "250m"},
    {"memory": "250m", "swap": "1g", "page_cluster": 0},
    {"dirty_background_bytes": "230m"},
    *({"checkpoint_way": way} for way in ("overwrite", "rename", "new")),
    *({"checkpoint_every": every} for every in ("end", "10")),
]

RUNS = [
    make(model, where, repeat)
    for repeat in (0, 1)
    for make, model, where in itertools.product((train, serve), MODELS, PLACES)
]


@pytest.mark.parametrize("seed", range(50))
def test_a_model_is_trained_in_a_place_before_it_is_served_there(seed):
    order = in_order(RUNS, seed)
    assert sorted(run.id for run in order) == sorted(run.id for run in RUNS)
    assert [run.repeat for run in order] == sorted(run.repeat for run in RUNS)
    for at, run in enumerate(order):
        if run.factors.mode == "serve":
            needed = train(run.factors.model, run.factors.where, run.repeat)
            assert needed in order[:at]


def test_runs_that_wait_for_nothing_keep_the_order_of_the_seed():
    trainings = [run for run in RUNS if run.factors.mode == "train"]
    servings = [run for run in RUNS if run.factors.mode == "serve"]
    alone = [in_order(trainings, seed) for seed in range(3)]
    assert alone[0] == in_order(trainings, 0)
    assert alone[0] != alone[1] != alone[2]
    assert len({run.id for run in in_order(servings, 0)}) == len(servings)  # none waits forever


def test_a_serving_waits_for_all_trainings_if_none_is_in_its_place():
    runs = [serve(where="4"), train(where="1"), train(), train(where="1", batch_size=2)]
    assert all(in_order(runs, seed)[-1] == runs[0] for seed in range(20))
    other = [serve(), train("lstm"), train(dataset="digits")]
    assert {in_order(other, seed)[0] for seed in range(50)} == set(other)


class Kept:
    """A study's folder with trainings that have ended; each left its own id as checkpoint."""

    def __init__(self, folder, runs):
        self.folder = folder
        self.results = {}
        self.checkpoints = Checkpoints(folder, runs, lambda run: self.results.get(run.id))

    def end(self, run):
        output = self.folder / "output"
        left = output / "container-0" if run.factors.containers else output
        left.mkdir(parents=True, exist_ok=True)
        (left / "checkpoint.pt").write_text(run.id)
        self.results[run.id] = {"checkpoint": self.checkpoints.keep(run, output)}
        return self.results[run.id]["checkpoint"]

    def take(self, run):
        """Returns the id of the training, which is also the content of the copy."""
        copy = self.folder / "copy.pt"
        taken = self.checkpoints.take(run, copy)
        assert (copy.read_text() if copy.exists() else None) == taken
        copy.unlink(missing_ok=True)
        return taken

    def files(self):
        folder = self.folder / FOLDER
        return sorted(path.name for path in folder.iterdir()) if folder.exists() else []


@pytest.fixture
def kept(tmp_path):
    return Kept(tmp_path, RUNS)


def test_a_serving_takes_the_training_of_its_place_and_repeat(kept):
    wanted = serve("lenet", "4", 1)
    assert kept.take(wanted) is None
    for better in (train("lenet", "host", 0), train("lenet", "4", 0), train("lenet", "4", 1)):
        kept.end(train("lstm", "4", 1))
        kept.end(better)
        assert kept.take(wanted) == better.id
    kept.end(train("lenet", "1", 1))
    assert kept.take(wanted) == train("lenet", "4", 1).id


def test_a_serving_takes_the_usual_training_before_others_of_its_place(kept):
    usual = train("lenet", "1", 0)
    others = [train("lenet", "1", 0, **factor) for factor in UNUSUAL]
    kept.checkpoints = Checkpoints(
        kept.folder, [usual, *others, serve()], lambda run: kept.results.get(run.id)
    )
    for run in (*others, usual):
        kept.end(run)
    assert kept.take(serve("lenet", "1", 0)) == usual.id


def test_a_kept_checkpoint_has_its_size_and_hash_in_the_result(kept):
    run = train()
    assert kept.end(run) == {
        "bytes": len(run.id), "sha256": hashlib.sha256(run.id.encode()).hexdigest(),
    }  # fmt: skip
    assert kept.checkpoints.keep(train(dataset="digits"), kept.folder / "output") is None


def test_a_checkpoint_that_was_changed_is_not_taken(kept):
    second, first = train("lenet", "host", 0), train("lenet", "1", 0)
    kept.end(first)
    kept.end(second)
    path = kept.folder / FOLDER / f"{second.id}.pt"
    path.write_text(second.id.replace("lenet", "l3net"))  # of the same size
    assert kept.take(serve()) == first.id
    path.unlink()
    assert kept.take(serve()) == first.id
    path.symlink_to(kept.folder / FOLDER / f"{first.id}.pt")
    assert kept.take(serve()) == first.id
    (kept.folder / FOLDER / f"{first.id}.pt").unlink()
    assert kept.take(serve()) is None


@pytest.mark.parametrize("kind", ["link", "fifo", "folder", "nothing"])
def test_only_a_regular_file_of_a_container_is_kept(kept, kind):
    left = kept.folder / "output/container-0"
    left.mkdir(parents=True)
    (kept.folder / "secret").write_text("secret")
    match kind:
        case "link":
            (left / "checkpoint.pt").symlink_to(kept.folder / "secret")
        case "fifo":
            os.mkfifo(left / "checkpoint.pt")
        case "folder":
            (left / "checkpoint.pt").mkdir()
    told = kept.checkpoints.keep(train(where="1"), kept.folder / "output")
    assert told.keys() == {"why"}
    assert kept.files() == []


def test_only_checkpoints_that_a_run_to_come_would_take_stay(kept):
    order = in_order(RUNS, 0)
    for at, run in enumerate(order):
        if run.factors.mode == "train":
            kept.end(run)
        else:
            best = train(run.factors.model, run.factors.where, run.repeat)
            assert kept.take(run) == best.id
        kept.checkpoints.tidy(order[at + 1 :])
        waiting = [one for one in order[at + 1 :] if one.factors.mode == "serve"]
        for name in kept.files():
            (training,) = (one for one in RUNS if name == f"{one.id}.pt")
            assert any(serves(one, training) for one in waiting)
        assert len(kept.files()) <= len(waiting)
    assert not (kept.folder / FOLDER).exists()


def test_files_of_others_stay(kept):
    (kept.folder / FOLDER).mkdir()
    (kept.folder / FOLDER / "mine.pt").write_text("mine")
    kept.checkpoints.tidy([])
    assert kept.files() == ["mine.pt"]
