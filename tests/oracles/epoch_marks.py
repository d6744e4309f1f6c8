"""Trainings whose epochs are marked in several ways, and the table of epochs, worked out naively.

It is written from docs/phases.md, docs/predict.md and the docstring of the table, not from its
code.
"""

from __future__ import annotations

import statistics
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field
from random import Random
from typing import Any

Row = dict[str, Any]

MS, S = 10**6, 10**9
TENANT = 900
PARTS = ("steps", "epoch_s", "stall_s", "compute_s", "overhead_s", "read_bytes", "page_cache_bytes")


@dataclass
class Step:
    """A step of a training, in ns: its begin and end, and what its time was spent on."""

    start: int
    end: int
    stall: int
    compute: int

    @property
    def overhead(self) -> int:
        """The rest of its time, checkpoints included."""
        return self.end - self.start - self.stall - self.compute


@dataclass
class Epoch:
    """A mark of an epoch of a job, with its training steps."""

    pid: int
    number: int
    start: int
    end: int
    steps: list[Step] = field(default_factory=list)


class Training:
    """The tables of a window of the time in which one job or more train."""

    def __init__(self, seed: int, jobs: int, folds: bool = True) -> None:
        self.numbers = Random(seed)
        self.now = S
        self.tables: dict[str, list[Row]] = {name: [] for name in ("processes", "phases")}
        self.epochs: list[Epoch] = []
        self.fetch_is_inside = self.numbers.random() < 0.5
        ends = [self._job(100 * (n + 1), folds) for n in range(jobs)]
        self.process(TENANT, "other", None)
        self._window(max(ends))
        self._reads(max(ends))
        self._samples(max(ends))
        self._cut()

    @property
    def manifest(self) -> Row:
        """The facts that go with the tables."""
        clock = {"name": "mono", "start_ns": self.begin, "end_ns": self.end}
        targets = [
            {"name": row["target"], "role": "target", "kind": "pid", "pid": row["pid"]}
            for row in self.tables["processes"]
            if row["target"]
        ]
        return {"clock": clock, "targets": targets, "disks": [{"dev": "8:0", "name": "sda"}]}

    # Drawing

    def process(self, pid: int, role: str, target: str | None) -> None:
        """Adds a process."""
        row = {"pid": pid, "tid": pid, "ppid": 1, "role": role, "target": target}
        self.tables["processes"].append(row | {"comm": "python"})

    def phase(self, pid: int, name: str, start: int, end: int, **more: Any) -> None:
        """Marks a phase."""
        row = {"pid": pid, "tid": pid, "name": name, "start": start, "end": end}
        self.tables["phases"].append(row | {"source": "script"} | more)

    def _long(self, least: int = 1) -> int:
        return self.numbers.randrange(least, 60) * MS

    def _job(self, pid: int, folds: bool) -> int:
        numbers = self.numbers
        self.process(pid, "target", f"job{pid}")
        self.now = S + numbers.randrange(50) * MS + pid
        begun, first = self.now, numbers.choice((0, 0, 5))
        for _ in range(numbers.choice((1, 2, 3)) if folds else 1):
            for number in range(first, first + numbers.randrange(2, 5)):
                self._epoch(pid, number)
                if numbers.random() < 0.3:
                    self._evaluate(pid, {})
                self.now += numbers.choice((0, 3 * MS))
            first = 0
        self.phase(pid, "train", begun, self.now)
        return self.now

    def _epoch(self, pid: int, number: int) -> None:
        epoch = Epoch(pid, number, self.now, 0)
        for n in range(self.numbers.randrange(0, 4)):
            step = self._step(pid, {"epoch": number, "step": n})
            if n == 0 and not self.fetch_is_inside:
                epoch.start = step.start + step.stall
            epoch.steps.append(step)
        if self.numbers.random() < 0.2:  # within the epoch, with its number
            self._evaluate(pid, {"epoch": number})
        self.now += self._long()
        epoch.end = self.now
        self.phase(pid, "epoch", epoch.start, epoch.end, epoch=number)
        self.epochs.append(epoch)

    def _step(self, pid: int, numbered: Row) -> Step:
        start, stall = self.now, self._long()
        self.phase(pid, "fetch", start, start + stall, **numbered)
        self.now, compute = start + stall, 0
        begin = start if self.fetch_is_inside else self.now
        for part in ("forward", "backward", "optimizer", "checkpoint"):
            if self.numbers.random() < 0.6:
                long = self._long()
                self.phase(pid, part, self.now, self.now + long, **numbered)
                self.now += long
                compute += long if part != "checkpoint" else 0
        self.now += self._long()
        self.phase(pid, "step", begin, self.now, **numbered)
        return Step(start, self.now, stall, compute)

    def _evaluate(self, pid: int, numbered: Row) -> None:
        """An evaluation with steps that are no steps of the training."""
        start = self.now
        for n in range(self.numbers.randrange(0, 3)):
            self._step(pid, numbered | {"step": n})
        self.now += self._long()
        self.phase(pid, "eval", start, self.now, **numbered)

    def _window(self, last: int) -> None:
        """Draws the time of the recording: it may begin or end in an epoch, or with one."""
        numbers, epochs = self.numbers, sorted(self.epochs, key=lambda epoch: epoch.start)
        early, late = numbers.choice(epochs[:3]), numbers.choice(epochs[-3:])
        middles = [(one.start + one.end) // 2 for one in (early, late)]
        first = early.steps[0].start if early.steps else early.start
        self.begin = numbers.choice((MS, MS, min(first, early.start), middles[0]))
        self.end = numbers.choice((last + S, last + S, late.end, middles[1]))
        self.end = max(self.end, self.begin + MS)

    def _reads(self, last: int) -> None:
        """Bios of any process; or no events of the block layer."""
        self.reads: list[tuple[int, int]] | None = None
        if self.numbers.random() < 0.2:
            return
        self.reads, rows = [], []
        for n in range(self.numbers.choice((0, 20, 60))):
            ts = self.numbers.randrange(S // MS, last // MS) * MS + MS // 2
            pid, rwbs = self.numbers.choice((100, TENANT)), self.numbers.choice("RRW")
            at = {"pid": pid, "tid": pid, "dev": "8:0", "sector": 4096 * n, "rwbs": rwbs}
            at["nr_sector"] = 8 * self.numbers.randrange(1, 99)
            if self.begin <= ts <= self.end:
                for late, event in enumerate(("bio_queue", "issue", "complete")):
                    rows.append(at | {"ts": ts + late, "event": event})
                if rwbs == "R":
                    self.reads.append((ts, 512 * at["nr_sector"]))
        self.tables["block"] = sorted(rows, key=lambda row: row["ts"])

    def _samples(self, last: int) -> None:
        """Samples of the machine's page cache, and others; or none."""
        self.cached: list[tuple[int, float]] = []
        if self.numbers.random() < 0.2:
            return
        self.tables["samples"] = []
        for ms in range(S // MS, last // MS, 37):
            value, ts = float(self.numbers.randrange(1 << 30)), ms * MS + MS // 2
            if not self.begin <= ts <= self.end:
                continue
            self.cached.append((ts, value))
            for target, name, more in ((None, "page_cache", 0), ("job100", "page_cache", 7e9),
                                       (None, "memory_used", 9e9)):  # fmt: skip
                row = {"ts": ts, "target": target, "name": name, "value": value + more}
                self.tables["samples"].append(row | {"unit": "bytes"})

    def _cut(self) -> None:
        """Drops what was marked before the recording or after it; few later ends are known."""
        kept = []
        for row in self.tables["phases"]:
            if row["start"] <= self.end and row["end"] >= self.begin:
                late = row["end"] > self.end and self.numbers.random() < 0.7
                kept.append(row | {"end": None} if late else row)
        kept.sort(key=lambda row: (row["start"], -(row["end"] or 1 << 62)))
        self.tables["phases"] = kept
        self.epochs = [
            one for one in self.epochs if one.start <= self.end and one.end >= self.begin
        ]

    # The answer

    def is_whole(self, epoch: Epoch) -> bool:
        """Returns whether the recording has all of an epoch."""
        return epoch.start >= self.begin and epoch.end <= self.end

    def sums(self, epoch: Epoch) -> Row:
        """Returns the numbers of a whole epoch; None: not recorded."""
        cached = [value for ts, value in self.cached if epoch.start <= ts <= epoch.end]
        found: Row = {"epoch_s": (epoch.end - epoch.start) / S}
        found |= dict.fromkeys(("steps", "stall_s", "compute_s", "overhead_s"))
        if epoch.steps:
            found["steps"] = len(epoch.steps)
            for name in ("stall", "compute", "overhead"):
                found[f"{name}_s"] = sum(getattr(step, name) for step in epoch.steps) / S
        if self.reads is not None:
            during = [size for ts, size in self.reads if epoch.start <= ts <= epoch.end]
            found["read_bytes"] = sum(during)
        found["page_cache_bytes"] = statistics.mean(cached) if cached else None
        return found

    def table(self) -> list[Row]:
        """Returns the rows of the table of epochs: means over jobs and over passes."""
        by_number: dict[int, list[Epoch]] = defaultdict(list)
        for epoch in self.epochs:
            by_number[epoch.number].append(epoch)
        rows = []
        for number, epochs in sorted(by_number.items()):
            whole = [self.sums(epoch) for epoch in epochs if self.is_whole(epoch)]
            row: Row = {"epoch": number, "jobs": len({epoch.pid for epoch in epochs})}
            for part in PARTS:
                row[part] = mean(one.get(part) for one in whole)
            rows.append(row)
        return rows

    def measures(self) -> Row:
        """Returns the measures of the epochs of a job that has no passes."""
        first = min((epoch.number for epoch in self.epochs), default=None)
        later = [epoch for epoch in self.epochs if epoch.number != first]
        begun = [e for e in self.epochs if e.number == first and e.start >= self.begin]
        return {
            "stall_first_epoch_ms": mean(self._stalls(begun)),
            "stall_later_epochs_ms": mean(self._stalls(later)),
            "epoch_s": mean(self._seconds(self.epochs)),
            "later_epoch_s": mean(self._seconds(later)),
        }

    def _stalls(self, epochs: list[Epoch]) -> list[float]:
        """Returns the fetch stalls of the steps of which the recording has all, in ms."""
        steps = [step for epoch in epochs for step in epoch.steps]
        whole = [step for step in steps if step.start >= self.begin and step.end <= self.end]
        return [step.stall / MS for step in whole]

    def _seconds(self, epochs: list[Epoch]) -> list[float]:
        return [(epoch.end - epoch.start) / S for epoch in epochs if self.is_whole(epoch)]


def mean(values: Iterable[float | None]) -> float | None:
    """Returns the mean of the values that are known."""
    known = [value for value in values if value is not None]
    return statistics.mean(known) if known else None
