"""The view `steps` and the naive one agree on phases that nest at random."""

import random
from typing import Any

import pytest

from tests.oracles.drawing import batches, grouped, rows_of_view
from tests.oracles.steps import PARTS, steps_of
from tracer.analysis.views.waiting.steps import STEPS

pytestmark = pytest.mark.slow

THREADS = 100
"""Cases in a trace, each a thread of its own."""


class Job:
    """A thread that marks phases; the clock stands still at times."""

    def __init__(self, tid: int, numbers: random.Random) -> None:
        self.tid, self.numbers, self.now = tid, numbers, 1000 * tid
        self.phases: list[dict[str, Any]] = []
        self.steps = 0
        self.marks_epochs = numbers.random() < 0.6
        self.step_is_numbered = numbers.random() < 0.9
        self.sources = numbers.choice(["script", "automatic", "uprobe"])

    def tick(self) -> None:
        self.now += self.numbers.choice([0, 0, 1, 2, 5])

    def begin(self, name: str, around: dict[str, Any] | None, **more: Any) -> dict[str, Any]:
        self.tick()
        inherited = {k: around[k] if around else None for k in ("epoch", "step")}
        phase = {"start": self.now, "end": None, "pid": self.tid - self.tid % 3, "tid": self.tid}
        phase |= {"name": name, "gpu_ns": None, "source": self.sources} | inherited | more
        self.phases.append(phase)
        self.now += self.numbers.choice([0, 1, 1, 2])
        return phase

    def over(self, phase: dict[str, Any]) -> None:
        self.tick()
        self.now = max(self.now, phase["start"] + 1)
        phase["end"] = self.now

    def part(self, name: str, around: Any, depth: int = 0) -> None:
        gpu = {"gpu_ns": self.numbers.choice([None, 3, 5])} if name in PARTS[1:4] else {}
        phase = self.begin(name, around, **gpu)
        if depth < 2 and self.numbers.random() < 0.3:
            self.part(self.numbers.choice([*PARTS[1:], "my own"]), phase, depth + 1)
        self.over(phase)

    def step(self, around: Any, depth: int) -> None:
        number = {"step": self.steps} if self.step_is_numbered else {}
        self.steps += 1
        phase = self.begin("step", around, source="inferred", **number)
        for _ in range(self.numbers.randrange(5)):
            self.part(self.numbers.choice(PARTS), phase)
        if depth < 1 and self.numbers.random() < 0.1:
            self.now += 1  # of an evaluation and a step of one time the evaluation is around
            self.stage("eval", phase, depth + 1)
        self.over(phase)

    def loop(self, around: Any, depth: int) -> None:
        for _ in range(self.numbers.randrange(5)):
            what = self.numbers.random()
            if what < 0.4:
                self.part("fetch", around, depth=2)
            elif what < 0.8:
                self.step(around, depth)
            elif what < 0.9 and depth < 1:
                self.stage("eval", around, depth + 1)
            else:
                self.part(self.numbers.choice(["checkpoint", "data_load", "my own"]), around)

    def stage(self, name: str | None, around: Any, depth: int) -> None:
        phase = self.begin(name, around) if name else around
        if self.marks_epochs and name != "eval":
            again = self.numbers.random() < 0.3  # as in cross-validation
            for epoch in range(self.numbers.randrange(1, 4)):
                epoch = 0 if again else epoch
                of_epoch = self.begin("epoch", phase, epoch=epoch)
                self.loop(of_epoch, depth)
                self.over(of_epoch)
        else:
            self.loop(phase, depth)
        if name:
            self.over(phase)

    def run(self) -> list[dict[str, Any]]:
        for _ in range(self.numbers.randrange(3)):
            self.stage(self.numbers.choice(["train", "eval", "inference", None]), None, 0)
        if self.phases and self.numbers.random() < 0.2:  # it is killed
            killed = self.numbers.randrange(self.phases[0]["start"], self.now + 1)
            self.phases = [p for p in self.phases if p["start"] < killed]
            for phase in self.phases:
                if phase["end"] is not None and phase["end"] > killed:
                    phase["end"] = phase["gpu_ns"] = None
        if self.numbers.random() < 0.02:  # of a container, and not found
            for phase in self.phases:
                phase["pid"] = phase["tid"] = None
        return self.phases


def test_the_steps_of_threads_are_those_of_the_oracle():
    for cases in batches(THREADS):
        jobs = [Job(10 + n, numbers) for n, numbers in enumerate(cases)]
        phases = [phase for job in jobs for phase in job.run()]
        phases.sort(key=lambda p: p["start"])
        found = grouped(rows_of_view(STEPS, {"phases": phases}), lambda row: row["tid"])
        expected = grouped(steps_of(phases), lambda row: row["tid"])
        for tid in found.keys() | expected.keys():
            assert found.get(tid) == expected.get(tid), [p for p in phases if p["tid"] == tid]
