"""Training scripts drawn at random, what PyTorch marks in them, and the phases that follow.

A script is laid out action by action: it knows which of its actions are steps, evaluations and
checkpoints, so that nothing has to be inferred. Its marks lie in the order of the program, often at
equal times. It is written from docs/phases.md, not from the code that infers phases.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any

from tests.support.phases import marks_file
from tracer.phases.format import ABSENT, AUTOMATIC, BEGIN, END

Row = dict[str, Any]
Numbers = tuple[int | None, int | None]

PASS, LOADER = 1 << 20, 1 << 30
"""The distance between the numbers of two passes, and between those of two loaders."""
LAST = 1 << 62
"""A time after all others."""


@dataclass
class Interval:
    """A mark's begin and end; `end` is LAST until it is known."""

    start: int
    end: int = LAST


@dataclass
class Step:
    """A step: when it begins, its parts by name, and its numbers."""

    start: int
    epoch: int | None
    number: int
    parts: list[tuple[str, Interval]] = field(default_factory=list)
    until: int | None = None
    """The time at which it has to end; None: nothing tells it."""
    second: int | None = None
    """The second fetch, at which the step may begin, too: a loader was opened before it.

    -1: an evaluation lies between its fetch and it. In both cases, its end is left open.
    """
    stall_ns: int = 0
    """Length of its fetches."""

    @property
    def least(self) -> int:
        """The end of its last part."""
        return max(part.end for _, part in self.parts)


@dataclass
class Evaluation:
    """An evaluation: its times and the epoch of the step before it.

    It begins at `start` or at `inner[0]`, and ends from `inner[1]` to `end`: nothing tells
    whether the opening of its loader and the search for the end of the data are parts of it.
    """

    start: int
    end: int
    epoch: int | None
    inner: tuple[int, int]


class Script:
    """A process that makes marks one after the other."""

    def __init__(self, numbers: Random, pid: int = 7) -> None:
        self.numbers, self.pid, self.now = numbers, pid, numbers.randrange(100, 200)
        self.marks: list[tuple[Any, ...]] = []
        self.steps: list[Step] = []
        self.evaluations: list[Evaluation] = []
        self.saved: list[Interval] = []
        self.fetched: list[tuple[int, Numbers]] = []
        """Begins of fetches that found a batch, with the epoch and step of its use."""
        self.epochs: list[tuple[int | None, list[Step]]] = []
        self.passes = 0
        self.ids: dict[str, int] = {}
        self.batches: dict[str, int] = {}
        self.uses: dict[tuple[int, int], Numbers] = {}
        """The epoch and step that use a batch, by pass and place in it."""
        self.last: Step | None = None

    # Marks

    def mark(self, kind: int, name: str, *numbers: int | None, automatic: bool = True) -> None:
        told = [ABSENT if number is None else number for number in (*numbers, None, None)[:2]]
        kind |= AUTOMATIC if automatic else 0
        self.marks.append((self.now, kind, self.pid, self.pid, name.encode(), *told))

    def wait(self, least: int = 0) -> None:
        self.now += least + self.numbers.choice((0, 0, 1, 5, 20))

    def fact(self, name: str, *numbers: int | None, inside: str = "") -> Interval:
        """PyTorch marks something, and perhaps things inside it: C, B, or that a pass ended."""
        self.wait()
        found = Interval(self.now)
        self.mark(BEGIN, name, *numbers)
        self.wait(1)
        for sign in inside:
            {"C": self.forward, "B": self.backward, "X": self.exhausted}[sign]()
        self.mark(END, name)
        found.end = self.now
        return found

    def forward(self, learns: bool = True) -> Interval:
        return self.fact("forward", None, int(learns))

    def backward(self) -> Interval:
        return self.fact("backward")

    def exhausted(self) -> Interval:
        return self.fact("exhausted")

    def write(self, folder: Path) -> None:
        """Writes the marks to a folder."""
        marks_file(folder, *self.marks, process=f"{self.pid}-1")

    # Without a loader

    def learn(self, epoch: int | None, start: int | None = None, simple: bool = False) -> Step:
        """A step's forward, backward and optimizer; returns it. Without `start`, these are all."""
        by_hand = start is None
        step = Step(-1 if start is None else start, epoch, len(self.steps))
        parts, random = step.parts, self.numbers
        rounds = 1 if simple else random.choice((1, 1, 1, 2, 3))
        for n in range(rounds):
            if n == 0 and start is None and random.random() < 0.2 and self.may_teach:
                parts.append(("forward", self.forward(False)))
            for _ in range(random.choice((1, 1, 2))):
                parts.append(("forward", self.forward()))
            if random.random() < 0.2:  # a teacher, or a target network
                parts.append(("forward", self.forward(False)))
            if n < rounds - 1 and random.random() < 0.2:
                continue  # its loss was not finite
            for _ in range(random.choice((1, 1, 2))):
                parts.append(("backward", self.backward()))
        for _ in range(random.choice((1, 1, 2))):
            parts.append(("optimizer", self.fact("optimizer")))
        if start is None:
            step.start = parts[0][1].start
            self.turn(step.start)
        self.steps.append(step)
        self.last, self.may_teach = step, True
        self.open = step if by_hand else None
        return step

    def turn(self, at: int) -> None:
        """Without a loader, the latest step lasts until the next step or evaluation begins."""
        if self.open is not None:
            self.open.until = at
        self.open = None

    open: Step | None = None
    """The latest step of a loop without a loader, if nothing followed yet."""
    may_teach = True
    """False: a forward without gradients would be one of an evaluation."""

    def by_hand(self, epoch: int | None = None, actions: int | None = None) -> None:
        """A loop without a loader: steps, evaluations of two forwards and more, and files saved."""
        random = self.numbers
        for _ in range(random.randrange(1, 9) if actions is None else actions):
            action = random.choices(("learn", "evaluate", "save"), (6, 2, 2))[0]
            if action == "learn":
                self.learn(epoch)
            elif action == "evaluate" and self.last is not None:
                forwards = [self.forward(False) for _ in range(random.randrange(2, 5))]
                start, end = forwards[0].start, forwards[-1].end
                self.turn(start)
                self.may_teach = False
                if self.evaluations and self.evaluations[-1].start > self.last.start:
                    before = self.evaluations[-1]  # it goes on
                    before.end, before.inner = end, (before.inner[0], end)
                else:
                    found = Evaluation(start, end, epoch, (start, end))
                    self.evaluations.append(found)
            elif action == "save" and (not self.saved or self.marks[-1][4] != b"checkpoint"):
                self.saved.append(self.fact("checkpoint"))

    # With loaders

    def load(self, which: str) -> int:
        """A pass over a loader begins; returns the time."""
        self.passes += 1
        self.ids[which] = LOADER * (ord(which) - 64) + PASS * self.passes
        self.batches[which] = 0
        return self.fact("data_load").start

    def fetch(self, which: str, inside: str = "") -> Interval:
        """A batch is fetched, or the end of a pass is found (X)."""
        found = self.fact("fetch", self.ids[which], self.batches[which], inside=inside)
        self.batches[which] += 1
        return found

    def use(self, which: str, fetched: Interval, numbers: Numbers) -> None:
        """The batch that was just fetched is used by this step."""
        self.uses[self.ids[which], self.batches[which] - 1] = numbers
        self.fetched.append((fetched.start, numbers))

    def validate(self, which: str = "V", epoch: int | None = None) -> int:
        """An evaluation with a pass of its own over a loader; returns its begin.

        Without `epoch`, it has the epoch of the last step.
        """
        if epoch is None:
            epoch = self.last.epoch if self.last else None
        start = self.load(which)
        learns = self.numbers.random() < 0.2
        begun = last = 0
        for _ in range(self.numbers.randrange(1, 4)):
            fetched = self.fetch(which)
            self.use(which, fetched, (epoch, None))
            begun, last = begun or fetched.start, self.forward(learns).end
        end = self.fetch(which, "X").end
        self.evaluations.append(Evaluation(start, end, epoch, (begun, last)))
        self.evaluated = True
        return start

    around: int | None = None
    """The epoch that the script marks now."""
    evaluated = False
    """True: an evaluation was the last thing that the script did."""

    def epoch(self, number: int | None, beside: str = "") -> None:
        """A pass over a loader, beside which a second one may be used up, and opened anew.

        `beside`: `before` opens the second one before the first fetch, `after` after it.
        Without a second one, there may be a validation before the first step.
        """
        random, steps = self.numbers, list[Step]()
        self.load("T")
        if beside == "before":
            self.load("U")
        batches = random.randrange(1, 5)
        early = not beside and random.random() < 0.3
        for batch in range(batches):
            fetch = self.fetch("T")
            if steps and steps[-1].until is None:
                steps[-1].until = fetch.start
            start, second, opened = fetch.start, None, False
            if beside:
                first = beside == "after" and batch == 0
                if first or (batch and random.random() < 0.3):
                    if not first:
                        self.fetch("U", "X")
                    self.load("U")
                    opened = True
                second = self.fetch("U")
            numbers: Numbers = (number, len(self.steps))
            self.use("T", fetch, numbers)
            if early and batch == 0:
                self.validate(epoch=self.around)
                self.wait(1)
                start = -1
            if second is not None:
                self.use("U", second, numbers)
            skipped = len(steps) > early and random.random() < 0.1
            if skipped:
                step = Step(start, number, len(self.steps), [("forward", self.forward())])
                self.steps.append(step)
                self.last = step
            else:
                step = self.learn(number, start, simple=True)
            if step.start < 0:
                step.start = step.parts[0][1].start
            step.second = second.start if second is not None and opened else None
            if early and batch == 0:
                step.second = -1
            step.stall_ns = sum(one.end - one.start for one in (fetch, second) if one)
            self.evaluated = False
            steps.append(step)
            if not skipped and random.random() < 0.2:
                self.saved.append(self.fact("checkpoint"))
            if not beside and random.random() < 0.2:
                step.until = self.validate()
        found = self.fetch("T", "X")
        if steps[-1].until is None:
            steps[-1].until = found.start
        self.epochs.append((number, steps))


class Line(Script):
    """A script of letters: C, N (a forward without gradients), B, O, S.

    L F X load, fetch and find the end of a loader, l f x those of a second one.
    """

    def __init__(self, text: str) -> None:
        super().__init__(Random(1))
        self.begins = [self._made(sign) for sign in text.replace(" ", "")]

    def _made(self, sign: str) -> int:
        which = "T" if sign.isupper() else "U"
        if sign in "CN":
            return self.forward(sign == "C").start
        if sign in "Ll":
            return self.load(which)
        if sign in "FfXx":
            return self.fetch(which, "X" if sign in "Xx" else "").start
        names = {"B": "backward", "O": "optimizer", "S": "checkpoint"}
        return self.fact(names[sign]).start


class Worker:
    """A DataLoader's worker: a process that fetches batches of its job, in any order."""

    def __init__(self, pid: int, job: Script, which: int, start: int) -> None:
        self.script = script = Script(job.numbers, pid)
        self.expected: list[tuple[int, Numbers]] = []
        script.now = start
        script.fact("worker", which, job.pid)

    def fetch(self, which: int, batch: int, numbers: Numbers) -> None:
        """The worker makes a batch, which a step of these numbers uses."""
        made = self.script.fact("fetch", which, batch)
        self.expected.append((made.start, numbers))
