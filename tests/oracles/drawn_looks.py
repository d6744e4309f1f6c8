"""Jobs whose threads wait at random, and looks at their Python stacks.

The tables are those of a recording: nothing here knows which look tells a wait's line.
"""

from __future__ import annotations

import random
from itertools import pairwise
from typing import Any

from tests.oracles.lines_of_waits import FILES, NAMES, Function, Look

Row = dict[str, Any]
TICK = 700_001
BEGIN, MIDDLE, LAST = 30, 130, 230
"""Ticks between which waits begin; in the middle a number gets another thread."""
START, END = 10 * TICK, (LAST + 200) * TICK
"""The recording's time."""
NUMBERS = 20
"""Thread numbers of a case."""
FIRST, SECOND, REUSED, WORKER, STRANGER, JOURNAL = 0, 1, 2, 5, 8, 10
TABLES = ("processes", "phases", "syscalls", "off_cpu", "journal", "samples", "python_stacks")
CALLS = ("futex", "read", "nanosleep", "fsync", "fsync", "poll")
COMMITS = ("commit_start", "commit_flushing", "commit_logging", "commit_end")
ENDS = (";", "\n", "; 12", "\n7", " 3", "; [x] 9", "\x1b[3", "")
"""Ends of names: what could end a thread's name, or a line, in the export."""


class Case:
    """Two jobs with three threads and one; one number is a thread's of each, in turn."""

    def __init__(self, case: int, numbers: random.Random) -> None:
        self.numbers, self.base = numbers, NUMBERS * (case + 1)
        self.tables: dict[str, list[Row]] = {name: [] for name in TABLES}
        self.targets = [f"a{case}" + numbers.choice(ENDS), f"b{case}" + numbers.choice(ENDS)]
        self.looks: list[Look] = []
        self.quota = numbers.random() < 0.3
        self.born = numbers.choice([None, MIDDLE * TICK])
        """Time at which the worker was created; None: before the recording."""

    def run(self) -> None:
        """Draws the tables and the looks."""
        handed_over = MIDDLE * TICK
        first, other = {"end_ns": handed_over}, {"start_ns": handed_over}
        self.thread(FIRST, FIRST, self.targets[0])
        self.thread(SECOND, FIRST, self.targets[0])
        self.thread(REUSED, FIRST, self.targets[0], **first)
        self.thread(REUSED, REUSED, self.numbers.choice([self.targets[1], None]), **other)
        self.thread(WORKER, WORKER, self.numbers.choice(self.targets), start_ns=self.born)
        self.thread(STRANGER, STRANGER, None)
        self.thread(JOURNAL, JOURNAL, None, role="journal", ppid=2)
        self.journal()
        self.waits(FIRST, FIRST, BEGIN, LAST)
        self.waits(SECOND, FIRST, BEGIN, LAST)
        self.waits(REUSED, FIRST, BEGIN, MIDDLE - 5)
        if self.tables["processes"][3]["target"]:
            self.waits(REUSED, REUSED, MIDDLE + 1, LAST)
        self.waits(WORKER, WORKER, BEGIN if self.born is None else MIDDLE + 1, LAST)
        self.steps()
        self.throttling()
        for row in list(self.tables["off_cpu"]):
            for _ in range(self.numbers.choice([0, 0, 1, 1, 2, 3])):
                self.look_near(row)
        for at in (FIRST, SECOND, REUSED, WORKER, STRANGER, JOURNAL):
            for _ in range(self.numbers.randrange(4)):
                begin = self.numbers.randrange(START // TICK, LAST + 30) * TICK
                self.look(at, begin, begin + self.numbers.choice([1, 5, 40]) * TICK)

    def thread(self, at: int, process: int, target: str | None, **more: Any) -> None:
        """Notes a thread. Its name begins with its number, by which the export is read."""
        tid, role = self.base + at, "other" if target is None else "target"
        comm = f"t{tid}p{process}" + self.numbers.choice(ENDS)
        row = {"pid": self.base + process, "tid": tid, "ppid": 1, "comm": comm, "role": role}
        self.tables["processes"].append(row | {"target": target} | more)

    def journal(self) -> None:
        """Commits, one after the other."""
        marks = sorted(self.numbers.sample(range(BEGIN, LAST), self.numbers.choice([0, 8, 40])))
        for place, tick in enumerate(marks):
            row = {"ts": tick * TICK, "pid": self.base + JOURNAL, "tid": self.base + JOURNAL}
            row |= {"event": COMMITS[place % 4], "transaction_id": place // 4, "dev": "8:0"}
            self.tables["journal"].append(row)

    def waits(self, at: int, process: int, begin: int, end: int) -> None:
        """Intervals off the CPU of a thread, some of which adjoin, with their system calls."""
        numbers, now, first = self.numbers, begin * TICK, True
        mine = {"pid": self.base + process, "tid": self.base + at}
        while (now := now + numbers.choice([0, 0, 1, TICK, 9 * TICK, 30 * TICK])) < end * TICK:
            ticks = numbers.choice([0, 1, 5, 20, 20, 60])
            length = min(ticks * TICK + numbers.choice([0, 0, 1, 99]), (end + 4) * TICK - now)
            delay = min(length, numbers.choice([0, 0, 1, TICK, 7 * TICK]))
            row = {"ts": now, "dur_ns": length, "run_delay_ns": delay}
            cpu = (self.base + at) % (1 << 15)  # each thread has one of its own
            row |= {"cpu": cpu, "ran_cpu": cpu}
            ran = numbers.choice([None, 0, self.base + STRANGER, self.base + REUSED])
            row |= {"ran_tid": 0 if ran == self.base + at else ran, **mine}
            row["state"] = numbers.choice(["S", "S", "D", "D", "R", "R+"])
            if first and numbers.random() < 0.3:
                row |= {"state": numbers.choice(["new", None]), "cpu": None}
            first = False
            if row["state"] in ("R", "R+"):
                row["run_delay_ns"] = length
            elif numbers.random() < 0.8:
                woken = now + length - delay
                waker = self.waker(at, woken)
                pid = self.base + self.process_of(waker, woken)
                row |= {"wake_ns": woken, "waker_tid": self.base + waker}
                row |= {"waker_pid": pid, "interrupt": numbers.random() < 0.2}
            else:
                row["run_delay_ns"] = None
            if numbers.random() < 0.6 and length:
                call = {"ts": now, "dur_ns": length, "name": numbers.choice(CALLS), "ret": 0}
                self.tables["syscalls"].append(call | mine)
            if numbers.random() < 0.06:
                row |= {"dur_ns": None, "run_delay_ns": None, "ran_cpu": None, "ran_tid": None}
                length += TICK
            self.tables["off_cpu"].append(row)
            now += length + (1 if length == 0 else 0)

    def waker(self, at: int, woken: int) -> int:
        """A thread that lives at a time, and is another one."""
        wakers = (FIRST, SECOND, REUSED, WORKER, WORKER, WORKER, STRANGER, JOURNAL, JOURNAL)
        waker = self.numbers.choice(wakers)
        waker = waker if waker != at else WORKER if at == FIRST else FIRST
        return STRANGER if waker == WORKER and woken < (self.born or 0) else waker

    def process_of(self, at: int, ts: int) -> int:
        """The process of a thread; one number is another thread's from a time on."""
        return {SECOND: FIRST, REUSED: REUSED if ts >= MIDDLE * TICK else FIRST}.get(at, at)

    def steps(self) -> None:
        """Steps of the first thread, whose borders divide its waits."""
        edges = sorted(self.numbers.sample(range(BEGIN, LAST + 30), self.numbers.choice([2, 4, 7])))
        mark = {"pid": self.base + FIRST, "tid": self.base + FIRST, "epoch": 0}
        begin, end = edges[0] * TICK, edges[-1] * TICK
        self.tables["phases"].append({"name": "train", "start": begin, "end": end + 1, **mark})
        for number, (one, other) in enumerate(pairwise(edges)):
            row = {"name": "step", "start": one * TICK, "end": other * TICK, "step": number}
            self.tables["phases"].append(mark | row)

    def throttling(self) -> None:
        """Samples that tell that the first job's cgroup had used up its quota, half of the time."""
        if not self.quota:
            return
        for n, tick in enumerate(range(BEGIN, LAST + 60, 40)):
            for name, value in (
                ("cgroup_throttle_rate", n % 2 * 9.0), ("cgroup_throttled", n % 2 * 90.0),
                ("cgroup_throttled_time", n * 0.02),
            ):  # fmt: skip
                row = {"ts": tick * TICK, "target": self.targets[0], "name": name, "value": value}
                self.tables["samples"].append(row)

    # Looks

    def look_near(self, row: Row) -> None:
        """A look with an edge at an edge of a wait, or near it, or far away."""
        numbers, begin = self.numbers, row["ts"]
        length = 9 * TICK if row["dur_ns"] is None else row["dur_ns"]
        end, somewhere = begin + length, begin + numbers.randrange(length + 1)
        near = numbers.choice([begin - 1, begin, begin, begin + 1, somewhere, begin - 5 * TICK])
        until = numbers.choice([end - 1, end, end, end + 1, somewhere, end + 9 * TICK])
        at = row["tid"] - self.base
        if numbers.random() < 0.1:
            at = numbers.choice([FIRST, SECOND, REUSED, WORKER, STRANGER])
        self.look(at, near, max(until, near + numbers.choice([0, 1])))

    def look(self, at: int, begin: int, until: int) -> None:
        numbers, whose = self.numbers, self.numbers.choice([None, None, None, True, False])
        files = [file for file, mine in FILES.items() if whose is None or mine is whose]
        stack = tuple(
            Function(numbers.choice(NAMES), numbers.choice(files), numbers.randrange(999))
            for _ in range(numbers.choice([1, 2, 3, 6]))
        )
        look = Look(begin, until, self.base + at, stack)
        self.looks.append(look)
        process = self.process_of(at, begin)
        row = {"ts": begin, "until_ns": until, "tid": look.tid, "stack": look.text()}
        self.tables["python_stacks"].append(row | {"pid": self.base + process})


def drawn(cases: list[random.Random]) -> tuple[dict[str, list[Row]], list[Look], dict[str, Any]]:
    """Returns the tables of some cases, the looks in them, and what the manifest says."""
    tables: dict[str, list[Row]] = {name: [] for name in TABLES}
    tables["processes"].append({"pid": 2, "tid": 2, "ppid": 0, "comm": "kthreadd", "role": "other"})
    looks: list[Look] = []
    targets: list[Row] = []
    for number, numbers in enumerate(cases):
        case = Case(number, numbers)
        case.run()
        for name, rows in case.tables.items():
            tables[name] += rows
        looks += case.looks
        pids = (case.base + FIRST, case.base + WORKER)
        for name, pid in zip(case.targets, pids, strict=True):
            targets.append({"name": name, "role": "target", "kind": "pid", "pid": pid})
    for name in ("syscalls", "off_cpu", "journal", "samples"):
        tables[name].sort(key=end_of)
    told = cases[0].choice([True] * 8 + [False, None])
    rows = tables.pop("python_stacks")
    cases[0].shuffle(rows)
    if told is not None:  # a recording with --stacks
        tables["python_stacks"] = rows if told else []
    clock = {"name": "mono", "start_ns": START, "end_ns": END}
    return tables, looks if told else [], {"targets": targets, "clock": clock}


def end_of(row: Row) -> int:
    """Returns when a call or an interval ended; one whose end is not known is the last."""
    return row["ts"] + (row.get("dur_ns", 0) if row.get("dur_ns", 0) is not None else 1 << 40)
