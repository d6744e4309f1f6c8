"""Steps, epochs and evaluations inferred from marks are those of the scripts that made the marks.

docs/phases.md leaves open where some phases end: the drawn scripts take any end within its words.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import TypeVar

import pytest

from tests.oracles.drawing import rows_of_view, seeds
from tests.oracles.drawn_trainings import LAST, Line, Row, Script, Worker
from tests.support.in_memory import PLACE
from tests.support.phases import read_phases
from tracer.analysis.views.waiting.steps import STEPS
from tracer.phases.format import BEGIN, END

pytestmark = pytest.mark.slow

T = TypeVar("T")


def phases_of(*scripts: Script, start_ns: int = 0) -> list[Row]:
    """The phases of the processes that made these marks."""
    with tempfile.TemporaryDirectory(dir=PLACE) as folder:
        for script in scripts:
            script.write(Path(folder))
        return read_phases(Path(folder), start_ns)


def together(draw: Callable[[Random, int], T], start_ns: int = 0) -> list[tuple[int, T, list[Row]]]:
    """The drawn cases, with the rows of each: a recording has the processes of many."""
    found = []
    numbers = seeds(50)
    for at in range(0, len(numbers), 25):
        drawn = {
            pid: (seed, draw(Random(seed), pid))
            for pid, seed in enumerate(numbers[at : at + 25], start=1000 + at)
        }
        scripts = [one[0] if isinstance(one, tuple) else one for _, one in drawn.values()]
        rows = phases_of(*scripts, start_ns=start_ns)
        for pid, (seed, one) in drawn.items():
            found.append((seed, one, [row for row in rows if row["pid"] == pid]))
    return found


def of(rows: list[Row], name: str, *columns: str) -> list[tuple]:
    return [tuple(row[c] for c in columns) for row in rows if row["name"] == name]


def crossing(rows: list[Row]) -> list[tuple[str, str]]:
    """The names of phases of a thread that do not nest; `train` may begin with the first fetch."""
    found, around = [], list[Row]()
    kept = [row for row in rows if row["name"] != "train"]
    for row in sorted(kept, key=lambda row: (row["start"], -(row["end"] or LAST))):
        while around and (around[-1]["end"] or LAST) <= row["start"]:
            around.pop()
        if around and (around[-1]["end"] or LAST) < (row["end"] or LAST):
            found.append((around[-1]["name"], row["name"]))
        around.append(row)
    return found


def signs(script: Script) -> str:
    """The marks of a script, with the times at which they begin."""
    return " ".join(
        f"{name.decode()[:5]}{step if name == b'forward' else ''}@{ts}"
        for ts, kind, _, _, name, _, step in script.marks
        if kind & 0x7F == BEGIN
    )


def assert_same(script: Script, rows: list[Row], marked: bool = False) -> None:
    """The steps, their parts, the evaluations and checkpoints are those of the script."""
    found = [row for row in rows if row["name"] == "step"]
    assert [(r["epoch"], r["step"]) for r in found] == [(s.epoch, s.number) for s in script.steps]
    for step, row, after in zip(script.steps, found, [*found[1:], None], strict=True):
        assert row["start"] in (step.start, step.second), step
        assert row["end"] == (step.until or step.least), step
        assert step.least <= row["end"] <= (after["start"] if after else LAST), step
        for name, part in step.parts:
            around = [
                (one["epoch"], one["step"])
                for one in rows
                if one["name"] == name and one["start"] <= part.start and part.end <= one["end"]
            ]
            assert around == [(step.epoch, step.number)], (name, part)
    evaluated = [row for row in rows if row["name"] == "eval"]
    assert [row["epoch"] for row in evaluated] == [one.epoch for one in script.evaluations]
    for one, row in zip(script.evaluations, evaluated, strict=True):
        assert row["start"] in (one.start, one.inner[0]), one
        assert one.inner[1] <= row["end"] <= one.end, one
    saved = of(rows, "checkpoint", "start", "end", "step")
    assert [times[:2] for times in saved] == [(one.start, one.end) for one in script.saved]
    for start, end, number in saved:
        inside = [r["step"] for r in found if r["start"] <= start and end <= r["end"]]
        assert [number] == (inside or [None])
    assert of(rows, "inference", "start") == []
    assert len(of(rows, "train", "start")) == (0 if marked else 1)
    assert crossing(rows) == []


# Without a DataLoader


def by_hand(numbers: Random, pid: int) -> Script:
    script = Script(numbers, pid)
    script.learn(None)
    script.by_hand()
    return script


def test_a_loop_without_a_loader_is_cut_at_the_forward_after_an_optimizer():
    for seed, script, rows in together(by_hand):
        try:
            assert_same(script, rows)
            ((start, end),) = of(rows, "train", "start", "end")
            assert start == script.steps[0].start and end >= script.steps[-1].least
            assert of(rows, "epoch", "epoch") == []
        except AssertionError as error:
            raise AssertionError(f"case {seed}: {signs(script)}") from error


def test_a_loop_without_a_loader_that_is_killed_has_the_steps_before_and_an_open_one():
    def killed(numbers: Random, pid: int) -> Script:
        script = by_hand(numbers, pid)
        del script.marks[numbers.randrange(1, len(script.marks)) :]
        return script

    for seed, script, rows in together(killed):
        cut, told = script.marks[-1], f"case {seed}: {signs(script)}"
        assert crossing(rows) == [], told
        learns = (b"backward", b"optimizer")
        begins = [mark[0] for mark in script.marks if mark[4] in learns and mark[1] & 0x7F == BEGIN]
        expected = [
            (step.start, step.number)
            for step in script.steps
            if any(step.parts[0][1].end <= begin < step.least for begin in begins)
        ]
        # The last one may be a forward with gradients, in which the job was killed.
        found = of(rows, "step", "start", "step")
        if expected or found:
            assert found[: len(expected)] == expected, told
        assert len(found) - len(expected) <= 1, told
        if cut[1] & 0x7F == BEGIN and cut[4] in learns:
            assert of(rows, "step", "end")[-1:] == of(rows, "train", "end") == [(None,)], told


@pytest.mark.parametrize(
    ("text", "steps"),
    [
        ("CNBO CNBO", [0, 4]),  # a teacher, or a target network, after the model that learns
        ("CBO CNBO CBO", [0, 3, 7]),
        ("CB CB CNBO CBO", [0, 8]),
        ("NCNBO", [0]),
    ],
)
def test_a_forward_without_gradients_after_one_with_them_is_a_part_of_the_step(text, steps):
    script = Line(text)
    rows = phases_of(script)
    assert of(rows, "step", "start") == [(script.begins[n],) for n in steps]
    assert of(rows, "eval", "start") == []


# Epochs that the script marks


def marked_epochs(
    numbers: Random, pid: int, loader: bool
) -> tuple[Script, list[tuple[int, int, int]]]:
    """A script that marks its epochs, of several folds perhaps; evaluations lie between them."""
    script, epochs = Script(numbers, pid), []
    first = numbers.choice((0, 0, 3))
    for n in range(numbers.randrange(1, 5)):
        number = first + n if numbers.random() < 0.8 else first
        script.wait(1)
        begun, script.open = script.now, None
        script.mark(BEGIN, "epoch", number, automatic=False)
        script.around = number
        if loader:
            script.epoch(number)
        else:
            script.learn(number)
            script.by_hand(number, numbers.randrange(4))
        script.wait(1)
        script.mark(END, "epoch", automatic=False)
        epochs.append((begun, script.now, number))
        if loader and not script.evaluated and numbers.random() < 0.5:
            script.validate(epoch=n)  # its number is that of PyTorch's pass over the data
        script.wait(1)
    return script, epochs


@pytest.mark.parametrize("loader", [True, False], ids=["loader", "by hand"])
def test_steps_inferred_within_marked_epochs_have_their_numbers(loader):
    drawn = together(lambda numbers, pid: marked_epochs(numbers, pid, loader))
    for seed, (script, epochs), rows in drawn:
        try:
            assert_same(script, rows, marked=True)
            assert of(rows, "epoch", "start", "end", "epoch") == epochs
            for name in ("step", "backward", "optimizer", "forward"):
                for start, end, number in of(rows, name, "start", "end", "epoch"):
                    around = [n for begin, stop, n in epochs if begin <= start and end <= stop]
                    assert around == [number], name
        except AssertionError as error:
            raise AssertionError(f"case {seed}: {signs(script)}") from error


# Loaders


def loops(numbers: Random, pid: int) -> Script:
    """Epochs, each a pass over a loader, with evaluations before, in and after them."""
    script = Script(numbers, pid)
    for number in range(numbers.randrange(1, 4)):
        script.epoch(number, numbers.choice(("", "", "before", "after")))
        if not script.evaluated and numbers.random() < 0.4:
            script.validate()
        if numbers.random() < 0.3:
            script.saved.append(script.fact("checkpoint"))
    return script


def test_passes_over_loaders_are_the_epochs_steps_and_evaluations_of_the_script():
    drawn = together(loops)
    stalls = rows_of_view(STEPS, {"phases": [row for *_, rows in drawn for row in rows]})
    for seed, script, rows in drawn:
        try:
            assert_same(script, rows)
            found = of(rows, "epoch", "start", "end", "epoch")
            assert [epoch for *_, epoch in found] == [number for number, _ in script.epochs]
            for (start, end, _), (_, steps) in zip(found, script.epochs, strict=True):
                assert start <= max(steps[0].second or 0, steps[0].start)
                assert steps[-1].least <= end
            fetches = {s: (e, n) for s, e, n in of(rows, "fetch", "start", "epoch", "step")}
            for start, numbers in script.fetched:
                assert fetches[start] == numbers
            waited = {row["step"]: row for row in stalls if row["pid"] == script.pid}
            for step in script.steps:
                assert waited[step.number]["fetch_stall_ns"] == step.stall_ns
        except AssertionError as error:
            raise AssertionError(f"case {seed}: {signs(script)}") from error


def test_a_recording_that_begins_later_has_the_later_phases_of_the_whole_one():
    begin = 300
    late = together(loops, start_ns=begin)
    for (_, _, whole), (seed, script, rows) in zip(together(loops), late, strict=True):
        later = [row for row in whole if row["end"] > begin]
        found = [row for row in rows if row["end"] > begin]
        assert found == later, f"case {seed}: {signs(script)}"


def test_two_evaluations_of_which_an_epoch_begins_between_are_two():
    """The second one lies between an epoch's first fetch and its first step: in that epoch."""
    for marked in (False, True):
        script = Script(Random(3))
        for number in (0, 1):
            script.wait(1)
            if marked:
                script.mark(BEGIN, "epoch", number, automatic=False)
            script.load("T")
            first = script.fetch("T")
            if number:
                script.validate()
            script.wait(1)
            step = script.learn(number, -1, simple=True)
            script.fetch("T", "X")
            script.wait(1)
            if not number:
                script.validate()
            if marked:
                script.mark(END, "epoch", automatic=False)
        rows = phases_of(script)
        assert crossing(rows) == [], signs(script)
        early = [start for start, end in of(rows, "eval", "start", "end") if start > first.end]
        assert len(early) == 1 and early[0] < step.parts[0][1].start, signs(script)


def test_a_step_before_an_evaluation_ends_with_it_also_if_the_pass_then_only_ends():
    """A loop validates in its last step: it then looks for another batch in the same pass."""
    script = Script(Random(3))
    script.load("T")
    for _ in range(2):
        step = script.learn(0, script.fetch("T").start, simple=True)
    script.wait(1)
    saved = script.fact("checkpoint")
    evaluated = script.validate()
    script.fetch("T", "X")
    rows = phases_of(script)
    assert of(rows, "checkpoint", "start", "step") == [(saved.start, 1)]
    assert of(rows, "step", "start", "end")[1] == (step.start, evaluated)


@pytest.mark.parametrize(
    ("text", "steps", "evaluations"),
    [
        ("L F lfNx CBO X L FCBO X", [(0, 0), (1, 1)], 1),  # of a batch
        ("L FCBO lfNx X L FCBO X", [(0, 0), (1, 1)], 1),
        ("L FCBO X lfNx L F lfNx CBO FCBO X", [(0, 0), (1, 1), (1, 2)], 2),
        ("L FlfCBO FxlfCBO X L FlfCBO X", [(0, 0), (0, 1), (1, 2)], 0),  # of a batch, for ever
        ("L FlfCBO FfC FfCBO X", [(0, 0), (0, 1), (0, 2)], 0),  # skipped
        ("lL FfCBO FxlfC FfCBO X", [(0, 0), (0, 1), (0, 2)], 0),
    ],
)
def test_epochs_of_two_loaders_have_their_steps_and_evaluations(text, steps, evaluations):
    """An evaluation after an epoch's first fetch lies in it; alternating passes form one epoch."""
    rows = phases_of(Line(text))
    assert of(rows, "step", "epoch", "step") == steps
    assert of(rows, "epoch", "epoch") == [(n,) for n in range(steps[-1][0] + 1)]
    assert len(of(rows, "eval", "start")) == evaluations


def test_a_fetch_before_a_second_loader_is_opened_is_a_stall_of_its_step():
    rows = phases_of(Line("L FlfCBO X"))
    fetched = sum(end - start for start, end in of(rows, "fetch", "start", "end"))
    (step,) = rows_of_view(STEPS, {"phases": rows})
    assert step["fetch_stall_ns"] == fetched


def test_the_step_that_opens_a_second_loader_lasts_until_the_next_fetch():
    """The step before a fetch of the same pass lasts until that fetch, and has what was saved."""
    script = Script(Random(3))
    script.load("T")
    script.fetch("T")
    script.load("U")  # as a generator does that begins a loader anew for ever
    script.fetch("U")
    script.learn(0, -1, simple=True)
    saved = script.fact("checkpoint")
    second = script.fetch("T")
    script.fetch("U")
    script.learn(0, second.start, simple=True)
    script.fetch("T", "X")
    rows = phases_of(script)
    assert of(rows, "checkpoint", "start", "epoch", "step") == [(saved.start, 0, 0)]
    assert of(rows, "step", "end")[0] == (second.start,)


# Workers


def with_workers(numbers: Random, pid: int) -> tuple[Script, list[Worker]]:
    """A job whose batches are made by workers: of each pass, or of all passes of a loader."""
    script, workers = Script(numbers, pid), []
    for number in range(numbers.randrange(1, 4)):
        script.epoch(number, numbers.choice(("", "before", "after")))
        if not script.evaluated and numbers.random() < 0.5:
            script.validate()
    keeps = numbers.random() < 0.5
    of_loader: dict[int, list[Worker]] = {}
    for which in sorted({made for made, _ in script.uses}, key=lambda made: made % (1 << 30)):
        loader = which >> 30 if keeps else which
        if loader not in of_loader:
            of_loader[loader] = found = []
            for _ in range(numbers.randrange(1, 3)):
                found.append(Worker(100 * pid + len(workers), script, which, 50))
                workers.append(found[-1])
        batches = sorted(batch for made, batch in script.uses if made == which)
        batches += [max(batches) + 1] * (numbers.random() < 0.3)  # nobody uses it
        for batch in numbers.sample(batches, len(batches)):
            worker = numbers.choice(of_loader[loader])
            worker.fetch(which, batch, script.uses.get((which, batch), (None, None)))
    return script, workers


def test_workers_fetches_have_the_numbers_of_the_steps_that_use_their_batches():
    """Many jobs have passes of the same numbers; a worker's mark names its job."""
    numbers = seeds(100)
    for at in range(0, len(numbers), 25):
        jobs = [
            with_workers(Random(seed), pid)
            for pid, seed in enumerate(numbers[at : at + 25], start=100)
        ]
        workers = [worker for _, found in jobs for worker in found]
        scripts = [script for script, _ in jobs] + [worker.script for worker in workers]
        rows = phases_of(*scripts)
        for worker in workers:
            mine = [row for row in rows if row["pid"] == worker.script.pid]
            found = [(s, (e, n)) for s, e, n in of(mine, "fetch", "start", "epoch", "step")]
            assert found == worker.expected, f"worker {worker.script.pid}"
            assert {row["name"] for row in mine} <= {"fetch"}


@pytest.mark.parametrize("between", ["validation", "another loader"])
def test_a_worker_s_first_batch_has_the_number_of_its_step_whatever_lies_between(between):
    """A validation comes before the epoch's first step, or a second loader is opened there."""
    script = Script(Random(3))
    which = script.load("T")
    script.fetch("T")
    if between == "validation":
        script.validate()
    else:
        script.load("U")
        script.fetch("U")
    script.wait(1)
    script.learn(0, -1, simple=True)
    script.fetch("T", "X")
    worker = Worker(70, script, script.ids["T"], 50)
    worker.fetch(script.ids["T"], 0, (0, 0))
    found = [row for row in phases_of(script, worker.script) if row["pid"] == 70]
    assert of(found, "fetch", "epoch", "step") == [(0, 0)], which
