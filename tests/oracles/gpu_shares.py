"""Training jobs that wait for a GPU, laid out piece by piece, and the truth about their time.

It is written from docs/phases.md, docs/findings.md and docs/explain.md, not from the code of the
findings.
"""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import dataclass, field
from typing import Any

from tracer.probes.events.gpu_calls import END

Row = dict[str, Any]
MS = 10**6
PARTS = ("fetch", "forward", "backward", "optimizer", "checkpoint")
HELPER = 1


@dataclass
class Step:
    """A minibatch, and the ns of it: all, in no part, and those of waits for the GPU."""

    trains: bool
    begin: int
    numbers: Row
    total: int = 0
    parts: int = 0
    gpu: int = 0
    gpu_in_parts: int = 0


@dataclass
class Truth:
    """The truth about all jobs: their training steps, ns of training, and ns in system calls."""

    steps: list[Step] = field(default_factory=list)
    training: int = 0
    calls: Counter[str] = field(default_factory=Counter)
    """Time in system calls of the training threads outside waits for the GPU, by name."""
    number_of_calls: int = 0

    @property
    def total(self) -> int:
        return sum(step.total for step in self.steps)

    @property
    def gpu(self) -> int:
        return sum(step.gpu for step in self.steps)

    @property
    def overhead(self) -> int:
        return sum(step.total - step.parts for step in self.steps)

    @property
    def gpu_overhead(self) -> int:
        return sum(step.gpu - step.gpu_in_parts for step in self.steps)


class World:
    """The tables of a recording of one to three jobs."""

    def __init__(self, seed: int) -> None:
        self.numbers = random.Random(seed)
        self.truth = Truth()
        names = ("processes", "phases", "syscalls", "gpu_calls", "off_cpu")
        self.tables: dict[str, list[Row]] = {name: [] for name in names}
        self.end = 0
        self.odd = self.numbers.random() < 0.5
        """True: steps lie within steps, and evaluations within steps."""
        for pid in range(10, 10 * self.numbers.choice((2, 3, 4)), 10):
            Job(self, pid).run()
        self.end += MS
        for name in ("syscalls", "gpu_calls"):
            self.tables[name].sort(key=lambda row: row["ts"])
        self.tables["phases"].sort(key=lambda row: (row["start"], -row["end"]))

    @property
    def manifest(self) -> Row:
        pids = sorted({row["pid"] for row in self.tables["processes"]})
        return {
            "clock": {"name": "mono", "start_ns": 0, "end_ns": self.end},
            "targets": [
                {"name": f"job{p}", "role": "target", "kind": "pid", "pid": p} for p in pids
            ],
        }


class Job:
    """A process that trains for some epochs. Time passes with each piece."""

    def __init__(self, world: World, pid: int) -> None:
        self.world, self.numbers, self.pid = world, world.numbers, pid
        self.now = self.numbers.randrange(5 * MS)
        self.around: list[Step] = []
        """Steps around this moment."""
        self.part: list[Step] = []
        """The step of each part around this moment."""
        self.trains = False
        for tid in (pid, pid + HELPER):
            row = {"pid": pid, "tid": tid, "ppid": 1, "comm": f"t{tid}", "role": "target"}
            world.tables["processes"].append(row | {"target": f"job{pid}"})

    def run(self) -> None:
        train = self.open("train")
        self.trains = True
        for epoch in range(self.numbers.choice((1, 2, 3))):
            begun = self.open("epoch", epoch=epoch)
            for number in range(self.numbers.choice((2, 5))):
                self.step({"epoch": epoch, "step": number})
                self.work()
            self.close(begun)
            if self.numbers.random() < 0.5:
                self.evaluate(self.numbers.random() < 0.7)
        self.close(train)
        self.world.truth.training += train["end"] - train["start"]
        self.world.end = max(self.world.end, self.now)

    def open(self, name: str, **more: Any) -> Row:
        mark = {"pid": self.pid, "tid": self.pid, "name": name, "start": self.now, **more}
        self.world.tables["phases"].append(mark)
        return mark

    def close(self, mark: Row) -> None:
        mark["end"] = self.now

    def step(self, numbers: Row, deep: int = 0) -> None:
        """A minibatch. Its fetch may lie before its marks."""
        step = Step(self.trains, self.now, numbers)
        if self.numbers.random() < 0.4 and not deep:
            self.around.append(step)
            self.do_part("fetch", step)
            self.work()
        else:
            self.around.append(step)
        mark = self.open("step", **numbers)
        for name in ("fetch", *PARTS[1:]):
            if name == "fetch" and self.now > mark["start"]:
                continue
            if self.numbers.random() < (0.2 if name == "checkpoint" else 0.8):
                self.do_part(name, step)
            self.work()
        if self.world.odd and self.numbers.random() < 0.3 and not deep:
            if self.numbers.random() < 0.5:
                self.step(numbers | {"step": 100 + numbers["step"]}, 1)
            else:
                self.evaluate(self.numbers.random() < 0.5, step)
            self.work()
        self.pass_time(1000)  # no step is empty
        self.close(mark)
        self.around.remove(step)
        step.total = self.now - step.begin
        if self.trains and step.trains:
            self.world.truth.steps.append(step)

    def do_part(self, name: str, step: Step) -> None:
        numbers = {} if self.now == step.begin and name == "fetch" else step.numbers
        mark = self.open(name, **numbers)
        self.part.append(step)
        self.work()
        if self.numbers.random() < 0.2:
            own = self.open("mine", **step.numbers)
            self.work()
            self.close(own)
        self.work()
        self.part.pop()
        self.close(mark)

    def evaluate(self, marks_steps: bool, step: Step | None = None) -> None:
        """An evaluation, between epochs or within a step."""
        mark = self.open("eval")
        trained, self.trains = self.trains, False
        for number in range(2):
            if marks_steps:
                self.step({"epoch": 0, "step": number}, 1)
            elif step is not None:
                self.do_part("forward", step)
            self.work()
        self.trains = trained
        self.close(mark)

    def pass_time(self, ns: int, gpu: bool = False) -> None:
        """Lets time pass, which all steps around are spent on."""
        self.now += ns
        for step in self.around:
            step.gpu += ns * gpu
            if step in self.part:
                step.parts += ns
                step.gpu_in_parts += ns * gpu

    def work(self) -> None:
        """Computes, calls the kernel, or waits for the GPU."""
        for _ in range(self.numbers.choice((0, 1, 2))):
            chance = self.numbers.random()
            if chance < 0.3:
                self.pass_time(self.numbers.randrange(3 * MS))
            elif chance < 0.6:
                self.call()
            else:
                self.wait(self.numbers.random() < 0.9)

    def call(self, gpu: bool = False) -> None:
        ns = self.numbers.randrange(MS)
        name = self.numbers.choice(("futex", "ioctl", "read", "write"))
        row = {"ts": self.now, "dur_ns": ns, "name": name, "ret": 0}
        self.world.tables["syscalls"].append(row | {"pid": self.pid, "tid": self.pid})
        if not gpu:
            self.world.truth.calls[name] += ns
            self.world.truth.number_of_calls += 1
        self.pass_time(ns, gpu)

    def wait(self, own: bool) -> None:
        """A wait for the GPU, of this thread or of another one, with calls in it."""
        name = self.numbers.choice(("cuStreamSynchronize", "cuMemcpyDtoH_v2"))
        tid = self.pid if own else self.pid + HELPER
        self.log(name, tid)
        for _ in range(self.numbers.choice((0, 1, 2))):
            self.pass_time(self.numbers.randrange(1, 2 * MS), own)
            if self.numbers.random() < 0.3:
                self.call(own)
            if self.numbers.random() < 0.2:  # one within it
                self.log("cuEventSynchronize", tid)
                self.pass_time(self.numbers.randrange(MS), own)
                self.log("cuEventSynchronize" + END, tid)
        self.pass_time(1, own)
        self.log(name + END, tid)

    def log(self, event: str, tid: int) -> None:
        row = {"ts": self.now, "pid": self.pid, "tid": tid, "event": event}
        self.world.tables["gpu_calls"].append(row)
