"""Training jobs whose waits for data are known, since each is laid out nanosecond by nanosecond.

The jobs (fetching_jobs.py) tell what their steps' time is spent on. Only the pieces on the way of a
batch that a training step waits for count. The program was written from docs/findings.md,
docs/explain.md and docs/phases.md, not from the code of the finding.
"""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import dataclass
from typing import Any

from tests.oracles.fetching_jobs import HELPER, HOG, MS, Job, Row

FEW = 20
"""Least number of events that a finding says something of."""
TABLES = ("processes", "phases", "syscalls", "off_cpu", "block", "page_faults", "reclaim")


@dataclass
class Answer:
    """The truth about the waits of a world: ns by cause, ns of the steps, and circumstances."""

    spent: Counter[str]
    total_ns: int = 0
    workers: int = 0
    cpus: int = 2
    crowded: bool = False
    """True: another tenant moves most of the bytes of each disk in use."""
    pressed: bool = False
    """True: threads that read a disk also reclaim memory of their cgroup."""
    lossy: bool = False
    """True: events were lost in the training."""

    @property
    def waited_ns(self) -> int:
        return self.spent.total()

    @property
    def main(self) -> str:
        return self.spent.most_common(1)[0][0]

    @property
    def is_close(self) -> bool:
        """True: two causes are within 1 % of the wait of each other."""
        ranked = [*self.spent.most_common(2), ("", 0), ("", 0)]
        return ranked[0][1] - ranked[1][1] <= self.waited_ns / 100


class World:
    """The tables of one recording, and the truth about it."""

    def __init__(self, seed: int) -> None:
        self.numbers = numbers = random.Random(seed)
        self.tables: dict[str, list[Row]] = {name: [] for name in TABLES}
        around = numbers.choice(("crowded", "pressed", None, None))
        self.truth = Answer(Counter(), crowded=around == "crowded", pressed=around == "pressed")
        self.stage = numbers.choices(("train", "inference"), (9, 1))[0]
        self.waits = numbers.random() > 0.03
        """False: no thread ever leaves its CPU."""
        self.whole_ms = numbers.random() < 0.5
        """True: times are multiples of 1 ms, so that many events have the same time."""
        self.start = 0
        self.process(HOG, "other", None)
        self.jobs = jobs = [Job(self, 100 + 100 * n) for n in range(numbers.choice((1, 1, 1, 2)))]
        for job in jobs:
            job.run()
        self.end = max(job.now for job in jobs) + MS
        self.truth.workers = sum(len(job.served) for job in jobs)
        self.truth.cpus = numbers.choice((1, 64))
        self.lost(jobs)
        if numbers.random() < 0.2:
            self.late_start(jobs)
        self.settle()
        self.without()
        for name, rows in self.tables.items():
            if name == "off_cpu":
                rows.sort(key=lambda row: row["ts"] + row["dur_ns"])
            elif name == "phases":
                rows.sort(key=lambda row: (row["start"], -row["end"]))
            elif name != "processes":
                rows.sort(key=lambda row: row["ts"])

    @property
    def manifest(self) -> Row:
        """The part of the manifest that the rows agree with."""
        return {
            "clock": {"name": "mono", "start_ns": self.start, "end_ns": self.end},
            "host": {"machine": "x86_64", "cpus": self.truth.cpus, "memory_bytes": 1 << 30},
            "targets": [
                {"name": row["target"], "role": "target", "kind": "pid", "pid": row["pid"]}
                for row in self.tables["processes"]
                if row["role"] == "target"
            ],
        }  # fmt: skip

    def process(self, pid: int, role: str, target: str | None, ppid: int = 1) -> None:
        for tid in (pid, pid + HELPER):
            row = {"pid": pid, "tid": tid, "ppid": ppid, "role": role, "target": target}
            self.tables["processes"].append(row | {"comm": f"{role}{tid}"})

    def length(self, most: int) -> int:
        """Draws a time of at most so many ms, in ns; 0 is possible."""
        ns = self.numbers.randrange(most * MS + 1)
        return ns - ns % MS if self.whole_ms else ns

    def log(self, table: str, tid: int, ts: int, **more: Any) -> None:
        pid = tid if tid % 10 < HELPER else tid - HELPER
        self.tables[table].append({"ts": ts, "pid": pid, "tid": tid} | more)

    def call(self, tid: int, start: int, end: int, name: str) -> None:
        self.log("syscalls", tid, start, name=name, dur_ns=end - start, ret=1)

    def asleep(self, tid: int, start: int, woken: int, end: int, state: str, waker: int) -> None:
        """A sleep that a thread ends, or an interrupt (0); after it the CPU is another's.

        Each thread has a CPU of its own, which it shares with HOG.
        """
        self.log(
            "off_cpu", tid, start, dur_ns=end - start, state=state, wake_ns=woken,
            waker_tid=waker, waker_pid=waker, interrupt=waker == 0, run_delay_ns=end - woken,
            ran_tid=HOG if end > woken else 0, cpu=tid, ran_cpu=tid,
        )  # fmt: skip

    def preempted(self, tid: int, start: int, end: int) -> None:
        state = self.numbers.choice(("R", "R+"))
        self.log(
            "off_cpu", tid, start, dur_ns=end - start, state=state, run_delay_ns=end - start,
            ran_tid=HOG, cpu=tid, ran_cpu=tid,
        )  # fmt: skip

    def bios(self, tid: int, dev: str, start: int, end: int, sectors: int = 8) -> None:
        at = {"dev": dev, "sector": self.numbers.randrange(1 << 30), "nr_sector": sectors}
        for event, ts, by in (
            ("bio_queue", start, tid),
            ("issue", start, tid),
            ("complete", end, 0),
        ):
            self.log("block", by, ts, event=event, rwbs="R", **at)

    def reclaim(self, tid: int, start: int, end: int, cause: str) -> None:
        self.log("reclaim", tid, start, event=f"{cause}_begin")
        self.log("reclaim", tid, end, event=f"{cause}_end", nr_reclaimed=32)

    def lost(self, jobs: list[Job]) -> None:
        """Events are lost after all steps, or at the begin of one while no thread waits."""
        self.gap: list[Row] = []
        begun = [step["start"] for job in jobs for step in job.counted]
        quiet = [ts for ts in begun if self.is_quiet(ts)]
        where = self.numbers.choice((None, None, None, self.end, *quiet[-1:]))
        if where is not None:
            gap = {"from": where, "to": where, "stream": "ftrace-machine", "cpu": 0}
            self.gap = [gap | {"cause": "overrun", "count": 9}]
            self.truth.lossy = where < self.end
        self.end += 10

    def is_quiet(self, ts: int) -> bool:
        """Returns whether no thread waits at a time."""
        return not any(r["ts"] <= ts <= r["ts"] + r["dur_ns"] for r in self.tables["off_cpu"])

    def late_start(self, jobs: list[Job]) -> None:
        """Drops events: the recording begins after the first job's first fetch, if none waits."""
        begun = jobs[0].counted[0]["until"]
        if not self.is_quiet(begun):
            return
        self.start = begun
        self.truth.lossy &= all(gap["from"] >= begun for gap in self.gap)
        for step in (step for job in jobs for step in job.counted if step["start"] < self.start):
            self.truth.spent -= step["spent"]
            self.truth.total_ns -= step["total_ns"]
        for name in TABLES[2:]:
            rows = self.tables[name]
            rows[:] = [row for row in rows if row["ts"] >= self.start]

    def settle(self) -> None:
        """Withdraws circumstances that too few events of the training tell of."""
        during = [row for row in self.tables["phases"] if row["name"] == self.stage]
        begun, ended = min(r["start"] for r in during), max(r["end"] for r in during)
        limits = [row["ts"] for row in self.tables["reclaim"] if row["event"] == "memcg_begin"]
        self.truth.pressed = sum(begun <= ts <= ended for ts in limits) >= FEW
        spent = self.truth.spent  # a fault names a file, and no disk
        self.truth.crowded &= spent["disk"] > 0
        spent["disk"] += spent.pop("fault", 0)

    def without(self) -> None:
        """Tables are missing or empty."""
        if not self.waits and self.numbers.random() < 0.5:
            self.tables["syscalls"], self.tables["block"] = [], []
        for name in ("block", "reclaim", "page_faults"):
            empty = not self.tables[name] or (name == "block" and not self.truth.crowded)
            if empty and self.numbers.random() < 0.3:
                del self.tables[name]
        self.measured = self.numbers.random() > 0.05
        if not self.measured:
            del self.tables["off_cpu"]
