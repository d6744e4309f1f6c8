"""Jobs whose threads wait for a GPU, spin, sleep, and wait for each other: simulated tick by tick.

A thread that sleeps does nothing, and only a thread that runs, or an interrupt, wakes another one.
The tables are those of a recording, some events of which are missing.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

from tracer.probes.events.gpu_calls import END, FUNCTIONS

Row = dict[str, Any]
TICK, TICKS = 1_000, 120
START = 5 * TICK
STOP = START + (TICKS + 2) * TICK
NUMBERS = 20
"""Thread numbers of a case."""
MAIN, HELPER, HANDLER, OTHER_MAIN, OTHER_HELPER, STRANGER = 0, 1, 2, 5, 6, 9
TARGET_OF = {MAIN: "a", OTHER_MAIN: "b", STRANGER: None}
"""The job of each process."""
HANDED_OVER = TICKS // 2
"""Tick at which some numbers may get another thread."""
GPU_CALLS = ("futex", "poll", "ioctl", "clock_nanosleep", None)
STREAMS = ("ftrace-uprobes-cpu0", "ftrace-target-cpu0", "ftrace-machine-cpu1", "files")
TABLES = ("processes", "phases", "syscalls", "off_cpu", "gpu_calls", "loss")


@dataclass
class Thread:
    """A thread of a case, with its state: what it is in, and since when it is off the CPU."""

    tid: int
    pid: int
    begin: int
    end: int
    inside: list[str] = field(default_factory=list)
    off: Row | None = None
    runs_at: int | None = None
    waits_for: str | None = None
    """Means by which it is woken: thread, interrupt, nobody (it was preempted)."""


class Case:
    """Two jobs with threads of their own, whose events are drawn."""

    def __init__(self, case: int, numbers: random.Random) -> None:
        self.numbers, self.base, self.name = numbers, NUMBERS * (case + 1), case
        self.tables: dict[str, list[Row]] = {name: [] for name in TABLES}
        self.functions = numbers.sample(FUNCTIONS, 3)
        self.nests = numbers.random() < 0.5
        self.drops = numbers.choice([0, 0, 0.1])
        self.calls_gpu = numbers.random() < 0.95
        self.threads = [
            self.thread(tid, pid, *life)
            for tid, pid, *life in (
                (MAIN, MAIN), (HANDLER, MAIN), (OTHER_MAIN, OTHER_MAIN), (STRANGER, STRANGER),
                *self.reused(HELPER, MAIN, OTHER_MAIN), *self.reused(OTHER_HELPER, OTHER_MAIN),
            )
        ]  # fmt: skip

    def reused(self, tid: int, *processes: int) -> list[tuple[int, ...]]:
        """Returns the threads that have a number: one, or two one after the other."""
        if self.numbers.random() < 0.5:
            return [(tid, processes[0])]
        gap = self.numbers.choice([0, 1, 3])
        return [(tid, processes[0], 0, HANDED_OVER), (tid, processes[-1], HANDED_OVER + gap)]

    def thread(self, tid: int, pid: int, begin: int = 0, end: int = TICKS) -> Thread:
        """Notes a thread in the table of processes."""
        target = self.target(pid)
        row = {"pid": self.base + pid, "tid": self.base + tid, "ppid": 1, "target": target}
        row |= {"role": "target" if target else "other", "comm": f"t{tid}p{pid}b{begin}"}
        row |= {"start_ns": time_of(begin)} if begin else {}
        row |= {"end_ns": time_of(end)} if end < TICKS else {}
        self.tables["processes"].append(row)
        return Thread(tid, pid, begin, end)

    def target(self, pid: int) -> str | None:
        """Returns the name of the job of a process."""
        name = TARGET_OF[pid]
        return f"{name}{self.name}" if name else None

    def run(self) -> None:
        """Draws the tables."""
        for tick in range(TICKS):
            living = [one for one in self.threads if one.begin <= tick < one.end]
            self.numbers.shuffle(living)
            for thread in living:
                if tick == thread.begin > 0 and self.numbers.random() < 0.5:
                    self.leave(thread, tick, "new")
                    thread.runs_at = tick + self.numbers.choice([0, 2])
                    thread.off["wake_ns"] = time_of(tick)
                self.go_on(thread, tick)
        for thread in self.threads:
            if thread.off is not None and thread.end == TICKS:
                self.tables["off_cpu"].append(thread.off)
        self.miss_switches()
        self.phases(MAIN)
        self.phases(OTHER_MAIN)
        self.miss_returns()
        self.tables["off_cpu"].sort(key=ended)

    def go_on(self, thread: Thread, tick: int) -> None:
        """Lets a thread do a few things at one time, or wait."""
        numbers = self.numbers
        if thread.off is not None:
            asleep = thread.runs_at is None
            if asleep and thread.waits_for == "interrupt" and numbers.random() < 0.2:
                self.wake(thread, tick, None)
            if thread.runs_at is None or thread.runs_at > tick:
                return
            self.arrive(thread, tick)
        for _ in range(numbers.choice([0, 0, 0, 1, 1, 2, 4])):
            chance = numbers.random()
            if chance < 0.5:
                self.call(thread, tick)
            elif chance < 0.7:
                self.wake_another(thread, tick)
            elif chance < 0.9:
                self.leave(thread, tick, numbers.choice(["S", "S", "S", "D", "R", "R+"]))
                return

    def call(self, thread: Thread, tick: int) -> None:
        """Enters a function of the driver, or returns from it."""
        deep = 2 if self.nests else 1
        enters = not thread.inside or (len(thread.inside) < deep and self.numbers.random() < 0.4)
        if enters:
            if not self.calls_gpu or thread.tid == HANDLER:
                return
            event = self.numbers.choice(self.functions)
            thread.inside.append(event)
        else:
            event = thread.inside.pop() + END
        row = {"ts": time_of(tick), "event": event, **self.numbers_of(thread)}
        self.tables["gpu_calls"].append(row)

    def numbers_of(self, thread: Thread) -> Row:
        return {"pid": self.base + thread.pid, "tid": self.base + thread.tid}

    def leave(self, thread: Thread, tick: int, state: str) -> None:
        """Takes a thread off its CPU: it sleeps, or another one has its turn."""
        row = {"ts": time_of(tick), "state": state, **self.numbers_of(thread)}
        thread.off, thread.runs_at = row | {"cpu": thread.tid, "dur_ns": None}, None
        if state in ("R", "R+", "new"):
            thread.runs_at = tick + self.numbers.choice([0, 1, 4])
            thread.waits_for = None
        else:
            thread.waits_for = self.numbers.choice(["thread", "thread", "interrupt"])

    def wake_another(self, waker: Thread, tick: int) -> None:
        asleep = [
            one
            for one in self.threads
            if one.off is not None and one.runs_at is None and one.waits_for == "thread"
            and one.begin <= tick < one.end
        ]  # fmt: skip
        if asleep:
            self.wake(self.numbers.choice(asleep), tick, waker)

    def wake(self, thread: Thread, tick: int, waker: Thread | None) -> None:
        """Ends a sleep: by a thread, or by an interrupt."""
        assert thread.off is not None
        by = {} if waker is None else self.numbers_of(waker)
        thread.off |= {
            "wake_ns": time_of(tick), "interrupt": waker is None,
            "waker_tid": by.get("tid", 0), "waker_pid": by.get("pid", 0),
        }  # fmt: skip
        thread.runs_at = tick + self.numbers.choice([0, 0, 1, 3])

    def arrive(self, thread: Thread, tick: int) -> None:
        """Puts a thread on its CPU, and notes the interval and the call that it slept in."""
        row, now = thread.off, time_of(tick)
        assert row is not None
        woken = row["ts"] if row["state"] in ("R", "R+", "new") else row["wake_ns"]
        row |= {"dur_ns": now - row["ts"], "run_delay_ns": now - woken, "ran_cpu": thread.tid}
        row["ran_tid"] = self.base + STRANGER if now > woken else 0
        self.tables["off_cpu"].append(row)
        name: str | None = None
        if row["state"] in ("S", "D"):
            name = "futex" if thread.waits_for == "thread" else "clock_nanosleep"
            name = self.numbers.choice(GPU_CALLS) if thread.inside else name
        if name is not None:
            call = {"ts": row["ts"], "dur_ns": row["dur_ns"], "name": name, "ret": 0}
            self.tables["syscalls"].append(call | self.numbers_of(thread))
        thread.off = thread.runs_at = None

    def phases(self, pid: int) -> None:
        """Steps of a process's first thread: some adjoin, some have a fetch and a forward."""
        mark = {"pid": self.base + pid, "tid": self.base + pid}
        asleep = [r for r in self.tables["off_cpu"] if r["dur_ns"] is None]
        last = [row["ts"] for row in asleep if row["tid"] == mark["tid"]]
        upto = (last[0] - START) // TICK if last else TICKS
        if upto < 10:
            return  # it sleeps until the end
        edges = sorted(self.numbers.sample(range(1, upto), self.numbers.choice([2, 4, 8])))
        train = {"name": "train", "start": time_of(edges[0]), "end": time_of(edges[-1]) + 1}
        self.tables["phases"].append(train | mark)
        for number, (begin, end) in enumerate(pairwise(edges)):
            if number and self.numbers.random() < 0.2:
                continue
            numbered = mark | {"epoch": 0, "step": number}
            row = {"name": "step", "start": time_of(begin), "end": time_of(end)}
            self.tables["phases"].append(row | numbered)
            if self.numbers.random() < 0.5:
                middle = self.numbers.randrange(begin, end + 1)
                for name, one, other in (("fetch", begin, middle), ("forward", middle, end)):
                    row = {"name": name, "start": time_of(one), "end": time_of(other)}
                    self.tables["phases"].append(row | numbered)

    def miss_switches(self) -> None:
        """Lets some intervals last until a later event, as if the thread's switch was not logged.

        The thread may have returned from the driver by then.
        """
        for row in self.tables["off_cpu"]:
            if row["dur_ns"] is None or self.numbers.random() >= 0.1:
                continue
            end = ended(row)
            mine = [r for r in self.tables["off_cpu"] if r["tid"] == row["tid"] and r is not row]
            next_one = min((r["ts"] for r in mine if r["ts"] >= end), default=end)
            more = min(next_one - end, self.numbers.choice([1, 3]) * TICK)
            row["ran_tid"] = None
            row["dur_ns"] += more
            row["run_delay_ns"] += more

    def miss_returns(self) -> None:
        """Leaves out some returns, which the kernel may miss."""
        rows = self.tables["gpu_calls"]
        rows[:] = [
            row
            for row in rows
            if not row["event"].endswith(END) or self.numbers.random() >= self.drops
        ]


def time_of(tick: int) -> int:
    return START + tick * TICK


def ended(row: Row) -> int:
    """Returns when an interval ended; one whose end is not known is the last."""
    return STOP if row["dur_ns"] is None else row["ts"] + row["dur_ns"]


def drawn(cases: list[random.Random]) -> tuple[dict[str, list[Row]], Row]:
    """Returns the tables of some cases, and what the manifest says."""
    tables: dict[str, list[Row]] = {name: [] for name in TABLES}
    targets = []
    for number, numbers in enumerate(cases):
        case = Case(number, numbers)
        case.run()
        for name, rows in case.tables.items():
            tables[name] += rows
        for pid in (MAIN, OTHER_MAIN):
            one = {"name": case.target(pid), "role": "target", "kind": "pid"}
            targets.append(one | {"pid": case.base + pid})
    if cases[0].random() < 0.2:
        targets = [{"name": "machine", "role": "target", "kind": "machine", "pid": 0}]
        tables["processes"] = [row | {"target": None} for row in tables["processes"]]
    for name in ("syscalls", "gpu_calls"):
        tables[name].sort(key=lambda row: row["ts"])
    tables["off_cpu"].sort(key=ended)
    for _ in range(cases[0].choice([0, 0, 1, 3])):
        begin = time_of(cases[0].randrange(-1, TICKS)) - cases[0].choice([0, 500])
        gap = {"stream": cases[0].choice(STREAMS), "cpu": 0, "from": begin, "cause": "overrun"}
        end = begin + cases[0].choice([0, 400, 600, 20 * TICK])
        tables["loss"].append(gap | {"to": end, "count": 9})
        if "uprobes" in gap["stream"]:
            rows = tables["gpu_calls"]
            lost = [row for row in rows if begin <= row["ts"] <= end and cases[0].random() < 0.7]
            rows[:] = [row for row in rows if row not in lost]
    clock = {"name": "mono", "start_ns": START, "end_ns": STOP}
    return tables, {"targets": targets, "clock": clock}
