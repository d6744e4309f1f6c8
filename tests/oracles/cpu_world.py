"""Threads that take turns on CPUs: what happens, and what the scheduler logs of it.

The turns are the truth: what is logged of the recorded threads follows from them.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from typing import Any

Row = dict[str, Any]
CPUS = 2
STEPS = 120
LITTLE = 1e-7
"""A throttled part of the time, in %, that is less than a ns."""


@dataclass(eq=False)
class Thread:
    """A thread; a later one may have its number. `born` and `gone`: in ns, None if not seen."""

    number: int
    name: str
    recorded: bool
    born: int | None = None
    gone: int | None = None
    cpu: int | None = None
    state: str | None = None
    left: int = 0
    woken: int | None = None
    row: Row | None = None
    kernel: bool = False


@dataclass(eq=False)
class Turn:
    """The time of a thread on a CPU (None: the CPU is idle), and who had it before.

    `told`: when it began as the scheduler tells it; None: it does not. `before`: None if the switch
    was not logged.
    """

    thread: Thread | None
    cpu: int
    begin: int
    end: int
    told: int | None = None
    before: Thread | str | None = None
    row: Row | None = None


IDLE = "idle"


@dataclass
class World:
    """Threads on CPUs of their own, from `start` on; numbers of threads begin at `base`.

    The recorded threads are those of a target that no other world has.
    """

    numbers: random.Random
    base: int
    first_cpu: int
    start: int
    turns: list[Turn] = field(default_factory=list)
    threads: list[Thread] = field(default_factory=list)
    off_cpu: list[Row] = field(default_factory=list)
    loss: list[Row] = field(default_factory=list)
    unit: int = 1
    """Length of a tick in ns. All other times are in ticks, those of switches even ones."""
    samples: list[Row] = field(default_factory=list)
    readings: list[tuple[int, float | None]] = field(default_factory=list)
    """Times and values (%, None: not told) of the samples of throttled time."""

    def run(self) -> None:
        """Draws what happens, and then what is logged of it."""
        self.now, self.older = self.start, self.numbers.random() < 0.2  # nothing tells `next_tid`
        self.cpus = range(self.first_cpu, self.first_cpu + CPUS)
        self.queues: dict[int, list[Thread]] = {cpu: [] for cpu in self.cpus}
        self.asleep: list[Thread] = []
        self.running: dict[int, Turn] = {}
        for cpu in self.cpus:
            self.running[cpu] = Turn(None, cpu, self.start, self.start)
        for at in range(self.numbers.choice([6, 14])):
            thread = self.thread(self.base + at, self.numbers.random() < 0.7)
            thread.cpu = self.numbers.choice(self.cpus)
            thread.left, thread.state = self.start, None
            self.queues[thread.cpu].append(thread)
        for _ in range(STEPS):
            self.now += self.numbers.choice([0, 0, 2, 4, 14])
            self.step()
        self.now += 10
        for cpu in self.cpus:
            if (last := self.running[cpu].thread) is not None:
                last.state = "S"
            self.switch(cpu, None)
        self.end = self.now
        self.log()
        if self.unit > 1:
            self.measure()

    @property
    def target(self) -> str:
        """The name of the target."""
        return f"job {self.base}"

    def thread(self, number: int, recorded: bool, **more: Any) -> Thread:
        made = Thread(number, f"t{len(self.threads)} of {self.base}", recorded, **more)
        made.kernel = not recorded and self.numbers.random() < 0.4
        self.threads.append(made)
        return made

    def step(self) -> None:
        """One thing that happens: mostly on a CPU, to the thread that has it."""
        cpu = self.numbers.choice(self.cpus)
        what = self.numbers.choice(["preempt"] * 4 + ["sleep"] * 3 + ["wake"] * 4 + ["rare"])
        current = self.running[cpu].thread
        if what == "wake":
            self.wake()
        elif what == "rare":
            self.numbers.choice([self.migrate, self.make, self.exit])(cpu)
        elif current is not None and what == "sleep":
            self.asleep.append(current)
            current.state, current.woken = "S", None
            self.pick(cpu)
        elif current is not None and self.queues[cpu]:
            current.state = self.numbers.choice(["R", "R+"])
            self.pick(cpu)
            self.queues[cpu].append(current)
        elif current is None:
            self.pull(cpu)
            self.pick(cpu)

    def pick(self, cpu: int) -> None:
        queue = self.queues[cpu]
        found = queue.pop(self.numbers.randrange(len(queue))) if queue else None
        if found is not self.running[cpu].thread:
            self.switch(cpu, found)

    def wake(self) -> None:
        if not self.asleep:
            return
        thread = self.asleep.pop(self.numbers.randrange(len(self.asleep)))
        thread.woken = self.now
        cpu = thread.cpu if self.numbers.random() < 0.8 else self.numbers.choice(self.cpus)
        assert cpu is not None
        self.queues[cpu].append(thread)
        if self.running[cpu].thread is None and self.numbers.random() < 0.8:
            self.pick(cpu)

    def migrate(self, cpu: int) -> None:
        if self.queues[cpu]:
            self.queues[self.numbers.choice(self.cpus)].append(self.queues[cpu].pop())

    def pull(self, cpu: int) -> None:
        """An idle CPU may take a thread out of the queue of another one."""
        queues = [queue for other, queue in self.queues.items() if other != cpu and queue]
        if not self.queues[cpu] and queues and self.numbers.random() < 0.7:
            self.queues[cpu].append(self.numbers.choice(queues).pop(0))

    def make(self, cpu: int) -> None:
        """A new thread, with the number of one that is gone for some time, or a new number."""
        old = [one.number for one in self.threads if one.gone is not None and one.left < self.now]
        alive = {one.number for one in self.threads if one.gone is None or one.left >= self.now}
        free = sorted(set(old) - alive)
        number = self.numbers.choice(free) if free else self.base + 10 + len(self.threads)
        made = self.thread(number, self.numbers.random() < 0.7, born=self.now)
        made.left, made.state, made.woken = self.now, "new", self.now
        made.cpu = cpu if self.numbers.random() < 0.8 else None  # a kernel need not tell
        self.queues[cpu].append(made)

    def exit(self, cpu: int) -> None:
        """The thread on the CPU exits; its last switch is a little later."""
        turn = self.running[cpu]
        if turn.thread is None or turn.begin == self.now:
            return
        turn.thread.gone = self.numbers.randrange(turn.begin, self.now + 1, 2)
        self.pick(cpu)

    def switch(self, cpu: int, thread: Thread | None) -> None:
        """Ends the turn on a CPU, and begins another one."""
        last, now = self.running[cpu], self.now
        last.end = now
        self.turns.append(last)
        turn = Turn(thread, cpu, now, now, before=IDLE if last.thread is None else last.thread)
        self.running[cpu] = turn
        if last.thread is not None:
            last.thread.left, last.thread.cpu = now, cpu
            row = {"ts": now, "cpu": cpu, "state": last.thread.state, **self.mine(last.thread)}
            got = {"got": thread or IDLE, "next_tid": thread.number if thread else 0}
            last.thread.row = row | got | {"of": last}
        if thread is not None:
            if thread.state == "new":
                row = {"ts": thread.left, "cpu": thread.cpu, "state": "new"}
                thread.row = row | self.mine(thread)
            if thread.row is not None:
                turn.row, thread.row = thread.row, None
                turn.row["wake_ns"] = thread.woken if thread.state == "S" else None
            thread.state = "running"

    def mine(self, thread: Thread) -> Row:
        return {"pid": thread.number, "tid": thread.number, "thread": thread}

    def log(self) -> None:
        """Makes the rows of off_cpu; some switches are not logged, and events may be lost."""
        for turn in self.turns:
            if turn.row is None or turn.thread is None or not turn.thread.recorded:
                continue
            turn.told = turn.begin
            if turn.before == IDLE and self.numbers.random() < 0.2:
                turn.told = self.numbers.randrange(turn.begin, turn.end + 1, 2)
                turn.before = None
            self.off_cpu.append(self.row(turn.row, turn))
        for thread in self.threads:
            if thread.recorded and thread.row is not None and thread.gone is None:
                self.off_cpu.append(self.row(thread.row, None))
        if self.numbers.random() < 0.4:
            self.lose()

    def row(self, row: Row, turn: Turn | None) -> Row:
        row = {**row, "turn": turn, "dur_ns": None}
        if self.older:
            row |= {"got": None, "next_tid": None}
        if turn is None or turn.told is None:
            return row
        began = row["ts"] if row.get("wake_ns") is None else row["wake_ns"]
        before = turn.before
        ran = before.number if isinstance(before, Thread) else 0 if before == IDLE else None
        told = {"dur_ns": turn.told - row["ts"], "run_delay_ns": turn.told - began}
        return row | told | {"ran_cpu": turn.cpu, "ran_tid": ran}

    def lose(self) -> None:
        """Loses the events of a time."""
        begin = self.numbers.randrange(self.start, self.end + 1, 2)
        end = begin + self.numbers.choice([0, 3, 20])
        kept = []
        for row in self.off_cpu:
            until = self.end if row["dur_ns"] is None else row["ts"] + row["dur_ns"]
            if row["ts"] > end or until < begin:
                kept.append(row)
                continue
            if row["turn"] is not None:
                row["turn"].told = None
            if row["ts"] < begin:
                nothing = dict.fromkeys(("dur_ns", "run_delay_ns", "ran_cpu", "ran_tid"))
                kept.append(row | nothing | {"wake_ns": None})
        self.off_cpu = kept
        lost = {"stream": "ftrace-target", "cpu": 0, "from": begin, "to": end, "count": 1}
        self.loss.append(lost | {"cause": "overrun"})

    def measure(self) -> None:
        """Samples of the target's cgroup, which tell of throttled time, or do not tell."""
        at = self.start - self.numbers.choice([80, 10, -18])
        last = self.end + self.numbers.choice([-80, 60, 120])
        used_up = self.numbers.random() < 0.8
        sample = {"target": self.target, "instance": "/"}
        while at < last:
            row = sample | {"ts": at, "name": "cgroup_throttled_time", "value": 0.0}
            self.samples.append(row)
            value = None
            if self.readings and self.numbers.random() < 0.95:
                gap = at - self.readings[-1][0]
                some = [LITTLE, 100 * self.numbers.randint(1, gap) / gap] if used_up else [0.0]
                value = self.numbers.choice([0.0] * 5 + some)
                self.samples.append(row | {"name": "cgroup_throttled", "value": value})
            self.readings.append((at, value))
            at += self.numbers.choice([20, 40, 80])
