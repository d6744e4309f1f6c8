"""A small machine whose threads are scheduled at random, and the intervals they are off the CPU.

The machine knows the truth, because it makes it: it runs, wakes, makes and ends threads, logs what
a kernel logs of that, and notes the rows of the table `off_cpu` as it goes. It was written from
the documentation of the table (`probes/events/sched.py`), not from the code that makes the table.
"""

from __future__ import annotations

import random
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from tests.support.pages import enter, execed, exited, newtask
from tests.support.scheduling import (
    HARDIRQ,
    OTHER_FLAGS,
    SOFTIRQ,
    SWITCH,
    WAKEUP_NEW,
    WAKING,
    Kernel,
    Logged,
)

Row = dict[str, Any]

IDLE = 0
GETPPID = 110
CLONE_THREAD = 0x10000
START = 1_000
RUNNABLE = ("R", "R+")
IMPOSSIBLE = (-1, -(1 << 31), 4 << 20, (1 << 31) - 1)
"""Thread numbers that no Linux has."""


@dataclass(eq=False)
class Process:
    """A process: its number, whether it is a target's, and its threads that live."""

    pid: int
    ppid: int
    target: bool
    kernel: bool = False
    threads: list[Task] = field(default_factory=list)


@dataclass(eq=False)
class Task:
    """A thread."""

    tid: int
    process: Process
    asleep: bool = False
    """True: it needs a wake-up before it runs."""
    ghost: bool = False
    """True: the kernel never logs the switches away from it."""
    known: bool = False
    """True: an event has shown that it runs, or that it does not."""
    unseen: bool = False
    """True: it runs, and the switch to it was not logged."""
    row: Row | None = None
    """The interval that it is off the CPU."""


class Machine:
    """Two CPUs with threads of targets, of another tenant and of the kernel."""

    def __init__(self, numbers: random.Random, kernel: Kernel, tells_interrupts: bool) -> None:
        self.numbers, self.kernel, self.tells_interrupts = numbers, kernel, tells_interrupts
        self.now = START
        self.events: list[Logged] = []
        self.about_targets: list[bool] = []
        """True for each event that a recording of the targets alone has."""
        self.rows: list[Row] = []
        self.tasks: list[Task] = []
        self.free: list[int] = []
        self.next_tid = 400
        self.touched: dict[int, tuple[int, int]] = {}
        """Time and CPU of the last event about each thread number."""
        self.idle = [Task(IDLE, Process(IDLE, 0, False, kernel=True)) for _ in range(2)]
        self.running = list(self.idle)
        for pid, ppid, target, threads in (
            (1, 0, False, 1), (2, 0, False, 1), (20, 2, False, 1), (21, 2, False, 1),
            (100, 1, True, 3), (110, 100, True, 2), (200, 1, True, 2), (300, 1, False, 2),
        ):  # fmt: skip
            process = Process(pid, ppid, target, kernel=2 in (pid, ppid))
            for n in range(threads):
                self.add(Task(pid + n, process, asleep=numbers.random() < 0.6))
        for task in numbers.sample(self.of_others(), 2):
            task.ghost = True
        self.at_start = [
            (task.tid, task.process.pid, task.process.ppid, "x", None) for task in self.tasks
        ]
        for cpu in (0, 1):
            runnable = [t for t in self.tasks if not t.asleep and t not in self.running]
            if runnable and numbers.random() < 0.8:
                self.running[cpu] = numbers.choice(runnable)
        for task in self.tasks:
            if task.process.target and task not in self.running:
                task.row = self.begun(task, START, None, None)

    def add(self, task: Task) -> None:
        """Notes a thread."""
        self.tasks.append(task)
        task.process.threads.append(task)

    def of_others(self) -> list[Task]:
        """The threads of the other tenant."""
        return [t for t in self.tasks if not t.process.target and not t.process.kernel]

    # What a reader of the trace may learn

    def begun(self, task: Task, ts: int, cpu: int | None, state: str | None) -> Row:
        """Returns the row of an interval of which only the beginning is known."""
        return {
            "ts": ts, "dur_ns": None, "cpu": cpu, "pid": task.process.pid, "tid": task.tid,
            "state": state, "next_tid": None, "wake_ns": None, "waker_pid": None,
            "waker_tid": None, "interrupt": None, "run_delay_ns": None, "ran_cpu": None,
            "ran_tid": None,
        }  # fmt: skip

    def left(self, task: Task, cpu: int | None, state: str) -> None:
        """Begins an interval."""
        task.known = True
        if task.process.target:
            task.row = self.begun(task, self.now, cpu, state)

    def woken(self, task: Task, by: Task, interrupt: bool) -> None:
        """Notes the wake-up that ends a sleep."""
        if task.row is not None:
            task.row |= {"wake_ns": self.now, "waker_pid": by.process.pid, "waker_tid": by.tid}
            task.row["interrupt"] = interrupt if self.tells_interrupts else None

    def ran(self, task: Task, cpu: int, before: int | None) -> None:
        """Ends an interval."""
        row, task.row, task.known, task.unseen = task.row, None, True, False
        if row is None:
            return
        row |= {"dur_ns": self.now - row["ts"], "ran_cpu": cpu, "ran_tid": before}
        if row["state"] in RUNNABLE:
            row["run_delay_ns"] = row["dur_ns"]
        elif row["wake_ns"] is not None:
            row["run_delay_ns"] = self.now - max(row["wake_ns"], row["ts"])
        self.rows.append(row)

    def log(self, cpu: int, name: str, payload: bytes, *others: Task) -> None:
        """Logs an event in the context of the thread that runs on a CPU, about other threads."""
        task = self.running[cpu]
        self.now += self.numbers.choice((0, 0, 1, 1, 3, 50, 1000))
        tids = {one.tid for one in (task, *others)} - {IDLE}
        if any(self.touched.get(tid, (0, cpu)) == (self.now, 1 - cpu) for tid in tids):
            self.now += 1  # no order is left of events about one thread at one time on two CPUs
        self.touched |= dict.fromkeys(tids, (self.now, cpu))
        self.events.append(Logged(self.now, cpu, payload))
        mine = any(one.process.target for one in (task, *others))
        self.about_targets.append(mine or name not in (SWITCH, WAKING, WAKEUP_NEW, "enter"))
        if task is not self.idle[cpu]:
            task.known = True
            if task.unseen:
                self.ran(task, cpu, None)

    # What happens

    def switch(self, cpu: int, state: str, to: Task) -> None:
        """A thread leaves its CPU to another one."""
        task = self.running[cpu]
        if task.ghost:
            self.running[cpu] = to
            to.unseen = to.row is not None
        else:
            self.log(cpu, SWITCH, self.kernel.switch(task.tid, state, to.tid), to)
            self.running[cpu] = to
            self.ran(to, cpu, task.tid)
        if task is self.idle[cpu]:
            return
        task.asleep = state not in RUNNABLE
        if state in self.kernel.exits:
            self.ended(task)
        elif not task.ghost:
            self.left(task, cpu, state)
            if task.row is not None:
                task.row["next_tid"] = to.tid

    def can_follow(self, cpu: int) -> list[Task]:
        """Returns the threads that may run next on a CPU."""
        task = self.running[cpu]
        found = [t for t in self.tasks if not t.asleep and t not in self.running]
        if task.ghost:  # nothing would show that such a thread had not run before
            found = [t for t in found if t.row is None or t.row["state"] is not None]
        return [*found, self.idle[cpu]] if task is not self.idle[cpu] else found

    def leave(self, cpu: int) -> None:
        """A thread sleeps, waits, or is preempted."""
        follows = self.can_follow(cpu)
        if not follows:
            return
        sleeps = ["S", "S", "D", "T"]
        if self.kernel.preempted == 2048:
            sleeps += ["D|K", "D|N", "T|K"]
        elif self.running[cpu].process.kernel:
            sleeps.append("I")
        task = self.running[cpu]
        idle = task is self.idle[cpu]
        state = "R" if idle else self.numbers.choice([*sleeps, "R", "R+"])
        woken = None
        if state not in RUNNABLE and task.known and not task.unseen and not task.ghost:
            woken = self.wake_of_leaving(1 - cpu, task) if self.numbers.random() < 0.2 else None
        self.switch(cpu, state, self.numbers.choice(follows))
        if woken:
            task.asleep = False
            if task.row is not None:
                task.row |= woken

    def wake_of_leaving(self, cpu: int, task: Task) -> Row:
        """A thread is woken on the other CPU after it has gone to sleep, before its switch."""
        by = self.running[cpu]
        bits = self.numbers.choice([(), (HARDIRQ,)])
        self.log(cpu, WAKING, self.kernel.waking(by.tid, task.tid, self.flags(*bits)), task)
        interrupt = bool(bits) if self.tells_interrupts else None
        return {"wake_ns": self.now, "waker_pid": by.process.pid, "waker_tid": by.tid,
                "interrupt": interrupt}  # fmt: skip

    def flags(self, *bits: int) -> int:
        """Returns common_flags with these bits and others that tell nothing."""
        return self.numbers.choice(OTHER_FLAGS) | sum(bits)

    def wake(self, cpu: int) -> None:
        """A thread that sleeps is woken, by the thread on a CPU or by an interrupt there."""
        sleepers = [task for task in self.tasks if task.asleep and task not in self.running]
        if not sleepers:
            return
        task, by = self.numbers.choice(sleepers), self.running[cpu]
        bits = self.numbers.choice([(), (), (HARDIRQ,), (SOFTIRQ,), (HARDIRQ, SOFTIRQ)])
        self.log(cpu, WAKING, self.kernel.waking(by.tid, task.tid, self.flags(*bits)), task)
        task.asleep = False
        self.woken(task, by, bool(bits))

    def wake_in_vain(self, cpu: int) -> None:
        """A thread that runs is woken: it was about to sleep, and does not."""
        task = self.numbers.choice(self.running)
        if task in self.idle or not task.known or task.unseen:
            return
        by = self.running[cpu]
        self.log(cpu, WAKING, self.kernel.waking(by.tid, task.tid, self.flags()), task)

    def call(self, cpu: int) -> None:
        """A thread makes a system call."""
        task = self.running[cpu]
        if task is not self.idle[cpu] and not task.process.kernel:
            self.log(cpu, "enter", enter(task.tid, GETPPID))

    def number(self) -> int:
        """Returns a free thread number, often that of a thread that has ended."""
        if self.free and self.numbers.random() < 0.6:
            return self.free.pop(self.numbers.randrange(len(self.free)))
        self.next_tid += 1
        return self.next_tid

    def make(self, cpu: int, thread: bool) -> None:
        """A thread makes a thread of its process, or a process."""
        maker = self.running[cpu]
        if maker.process.kernel or len(self.tasks) > 30:
            return
        tid = self.number()
        process = maker.process if thread else Process(tid, maker.process.pid, maker.process.target)
        task = Task(tid, process, ghost=not process.target and self.numbers.random() < 0.2)
        flags = CLONE_THREAD if thread else 0
        self.log(cpu, "newtask", newtask(maker.tid, tid, b"x", flags), task)
        queue = self.numbers.randrange(2)
        wake = self.kernel.wakeup_new(maker.tid, tid, self.flags(), queue)
        self.log(cpu, WAKEUP_NEW, wake, task)
        self.add(task)
        self.left(task, queue, "new")
        self.woken(task, maker, False)

    def ended(self, task: Task) -> None:
        """Forgets a thread that has left its CPU for the last time; frees its number."""
        task.process.threads.remove(task)
        self.tasks.remove(task)
        if task.tid != task.process.pid:
            self.free.append(task.tid)
        if not task.process.threads:  # a first thread's number is free with its process's
            self.free.append(task.process.pid)

    def exit(self, cpu: int) -> None:
        """The thread on a CPU ends, if it may."""
        task = self.running[cpu]
        if not (task.process.kernel or task.process.pid == 1 or task.ghost):
            self.end(cpu, self.numbers.choice(self.can_follow(cpu)))

    def end(self, cpu: int, to: Task) -> None:
        """The thread on a CPU ends, and another runs there."""
        self.log(cpu, "exit", exited(self.running[cpu].tid))
        self.switch(cpu, self.numbers.choice(self.kernel.exits), to)

    def exec(self, cpu: int) -> None:
        """The thread on a CPU executes a program; the other threads of its process end first."""
        task, other = self.running[cpu], 1 - cpu
        process = task.process
        victims = [t for t in process.threads if t is not task]
        if process.kernel or process.pid == 1 or any(t.ghost for t in process.threads):
            return
        if task.unseen:  # nothing would show that its thread of this number had run
            return
        if victims and self.running[other].ghost:
            return
        for victim in victims:
            if victim is not self.running[other]:
                if victim.asleep:
                    wake = self.kernel.waking(task.tid, victim.tid)
                    self.log(cpu, WAKING, wake, victim)
                    victim.asleep = False
                    self.woken(victim, task, False)
                idle = self.running[other] is self.idle[other]
                self.switch(other, "R" if idle else "R+", victim)
            self.end(other, self.idle[other])
        before = task.tid
        if before != process.pid:
            self.free.append(before)
        task.tid = process.pid
        self.log(cpu, "exec", execed(task.tid))

    def damage(self, cpu: int) -> None:
        """An event that a damaged trace may have: too short, or about threads that cannot be."""
        task = self.running[cpu]
        if task.unseen or task is self.idle[cpu]:
            return
        name = self.numbers.choice((SWITCH, WAKING, WAKEUP_NEW))
        if self.numbers.random() < 0.5:
            victim = self.numbers.choice(self.tasks).tid
            values = {"prev_pid": victim, "next_pid": victim} if name == SWITCH else {"pid": victim}
            whole = self.kernel.payload(name, task.tid, **values)
            ends = [sum(self.kernel.place(name, field)) for field in values]
            payload = whole[: self.numbers.randrange(8, min(ends), 4)]
        else:
            wrong = self.numbers.choice(IMPOSSIBLE)
            values = {"prev_pid": wrong, "next_pid": wrong} if name == SWITCH else {"pid": wrong}
            payload = self.kernel.payload(name, task.tid, **values)
        self.log(cpu, name, payload)

    def run(self, steps: int) -> None:
        """Lets things happen; then the recording ends."""
        for _ in range(steps):
            cpu = self.numbers.randrange(2)
            happens = self.numbers.choices(
                (self.leave, self.wake, self.wake_in_vain, self.call, self.exit, self.exec,
                 self.damage, lambda on: self.make(on, True), lambda on: self.make(on, False)),
                (12, 8, 1, 4, 1, 0.7, 0.7, 1.2, 0.7),
            )[0]  # fmt: skip
            happens(cpu)
        for task in self.tasks:
            row = task.row  # nothing tells of a thread that sleeps all along
            if row is not None and (row["state"] is not None or row["wake_ns"] is not None):
                self.rows.append(row)


def told(rows: Iterable[Row], gaps: Iterable[tuple[int, int]]) -> list[Row]:
    """Returns the rows as the table has them, with null for what a loss of events leaves unknown.

    A wake-up before the interval is one at its beginning. The end of the interval shows that the
    thread slept on. If events are lost between the two, the wake-up may be that of a sleep before.
    """
    gaps = list(gaps)

    def lost(since: int, until: int) -> bool:
        return any(since <= to and until >= begin for begin, to in gaps)

    found = []
    for row in rows:
        row = dict(row)
        if row["dur_ns"] is not None and lost(row["ts"], row["ts"] + row["dur_ns"]):
            row |= dict.fromkeys(("dur_ns", "run_delay_ns", "ran_cpu", "ran_tid"))
        if row["wake_ns"] is not None:
            early = row["wake_ns"] < row["ts"]
            begin, end = sorted((row["ts"], row["wake_ns"]))
            if (early and row["dur_ns"] is None) or lost(begin, end):
                row |= dict.fromkeys(("wake_ns", "waker_pid", "waker_tid", "interrupt"))
                if row["state"] not in RUNNABLE:
                    row["run_delay_ns"] = None
            elif early:
                row["wake_ns"] = row["ts"]
        found.append(row)
    return found
