"""Trainings that wait for data on a machine whose free CPUs and quotas are known by construction.

A recording is a row of stretches. Each has its own load: CPUs in use, CPUs that the host takes, and
the share of a quota's periods that is used up. Trainings lie inside stretches, away from their
borders, so that it does not matter which sample beside a border is taken for the training's first.
The program was written from docs/findings.md and docs/samples.md, not from the code of the finding.
"""

from __future__ import annotations

import random
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

Row = dict[str, Any]

S = 10**9
USED_UP = 0.8
"""Share of its periods from which on a quota counts as used up, and of the CPUs' time."""
INSET = 1.5
"""Sampling periods between the border of a stretch and the training in it, at least."""
ABOVE = "/pods"
"""The cgroup above those of the targets."""
TRAINERS = ("alone", "alone", "same target", "second target")
Window = tuple[float, float]


@dataclass
class Cgroup:
    """A quota, as the samples of a target tell of it; per stretch, its periods and their share."""

    target: str
    instance: str | None
    rates: list[float] = field(default_factory=list)
    """Periods per second in each stretch."""
    shares: list[float] = field(default_factory=list)
    """The shares of these periods in which the quota is used up."""
    told: frozenset[str] = frozenset({"cgroup_nr_periods", "cgroup_nr_throttled"})


@dataclass
class Stretch:
    """A time of one load, in sampling periods from the begin."""

    kind: str
    begin: int
    end: int
    used: float = 0
    stolen: float = 0


@dataclass
class Job:
    """A process that trains in some of the stretches, and its workers."""

    pid: int
    target: str
    workers: list[int]
    windows: dict[int, Window] = field(default_factory=dict)
    """Times of its trainings in sampling periods, by the number of the stretch."""


class World:
    """The tables of one recording, and the truth about it."""

    def __init__(self, seed: int) -> None:
        self.numbers = numbers = random.Random(seed)
        self.tables: dict[str, list[Row]] = {"processes": [], "phases": [], "samples": []}
        self.tick = numbers.choice((0.1, 0.25, 1.0))
        """Seconds between two samples."""
        self.origin = 7 * S + numbers.randrange(S)
        self.stage = numbers.choice(("train", "train", "train", "inference"))
        self.stretches = self._stretches()
        self.trainings = [n for n, s in enumerate(self.stretches) if s.kind == "training"]
        self.trainers = numbers.choice(TRAINERS)
        self.jobs = [Job(100, "a", self._workers(100))]
        if self.trainers != "alone":
            target = "a" if self.trainers == "same target" else "b"
            self.jobs.append(Job(300, target, self._workers(300)))
        self.bystander = self.trainers == "alone" and numbers.random() < 0.4
        """True: a second target does not train."""
        self._trainings()
        threads = sum(1 + len(job.workers) for job in self.jobs)
        self.cpus = threads + numbers.choice((1, 1, 2, 8, 50))
        self.missing = numbers.choice((None,) * 16 + ("table", "rows", "cpu_time", "steal_time"))
        """The table, rows or series that the recording lacks."""
        self.steals = self.missing != "cpu_time" and numbers.random() < 0.5
        self._loads()
        self.cgroups: list[Cgroup] = []
        for target in self.targets:
            self._quotas(target)
        self._processes()
        for job in self.jobs:
            self._phases(job)
        self._samples()

    @property
    def targets(self) -> list[str]:
        """Names of the targets."""
        return ["a", "b"] if self.bystander or self.trainers == "second target" else ["a"]

    @property
    def manifest(self) -> Row:
        """The part of the manifest that the rows agree with."""
        return {
            "clock": {"name": "mono", "start_ns": self.start, "end_ns": self.end},
            "host": {"machine": "x86_64", "cpus": self.cpus, "memory_bytes": 1 << 30},
            "targets": [
                {"name": name, "role": "target", "kind": "pid", "pid": pid}
                for name, pid in zip(self.targets, (100, 300), strict=False)
            ],
        }  # fmt: skip

    @property
    def left(self) -> float:
        """CPUs that the samples leave free in the training, at least."""
        return self.cpus - self.busy(self._union())

    @property
    def taken(self) -> float:
        """The share of the busy CPUs' time in the training that the host takes."""
        windows = [(self.stretches[number], length) for number, length in self._union()]
        stolen = sum(length * stretch.stolen for stretch, length in windows)
        return stolen / sum(length * (s.used + s.stolen) for s, length in windows)

    @property
    def is_busy(self) -> bool:
        """Returns whether samples tell that the machine has no CPU left for another worker."""
        return self.left < 1 and self.left <= self.cpus * (1 - USED_UP)

    def uses_up(self, target: str, above: bool | None = None) -> bool:
        """Returns whether samples tell that a quota of a target is used up (its own, or above)."""
        return self.missing not in ("table", "rows") and any(
            self._share(cgroup) >= USED_UP
            for cgroup in self.cgroups
            if cgroup.target == target and above in (None, cgroup.instance == ABOVE)
        )

    @property
    def has_used_up_quota(self) -> bool:
        """Returns whether each target that trains has used up a quota: its own or one above."""
        return all(self.uses_up(name) for name in {job.target for job in self.jobs})

    @property
    def answers(self) -> set[str]:
        """The right answers: more workers, or what the job lacks."""
        lacks = {"CPUs"} if self.is_busy else set()
        lacks |= {"quota"} if self.has_used_up_quota else set()
        return lacks or {"workers"}

    def busy(self, windows: Iterable[tuple[int, float]]) -> float:
        """Mean CPUs in use or taken, as far as samples tell; windows: stretch and length."""
        told = {"used", "stolen"}
        if self.missing in ("table", "rows"):
            told = set()
        told -= {{"cpu_time": "used", "steal_time": "stolen"}.get(self.missing or "", "")}
        total = busy = 0.0
        for number, length in windows:
            busy += length * sum(getattr(self.stretches[number], name) for name in told)
            total += length
        return busy / total

    def _share(self, cgroup: Cgroup, whole: bool = False) -> float:
        """The share of a quota's periods, in its target's trainings, in which it is used up."""
        periods = throttled = 0.0
        for number, length in self._lengths(cgroup.target, whole):
            periods += length * cgroup.rates[number]
            throttled += length * cgroup.rates[number] * cgroup.shares[number]
        return throttled / periods if periods and len(cgroup.told) == 2 else 0.0

    def _lengths(self, target: str, whole: bool = False) -> list[tuple[int, float]]:
        """Stretches in which a target trains, and for how long (or the whole stretch)."""
        found: dict[int, float] = {}
        for job in self.jobs:
            for number, (begin, end) in job.windows.items() if job.target == target else ():
                stretch = self.stretches[number]
                length = stretch.end - stretch.begin if whole else end - begin
                found[number] = max(found.get(number, 0), length)
        return list(found.items())

    def _union(self) -> list[tuple[int, float]]:
        """Stretches in which a job trains, and for how long: the first one trains in all."""
        return [(number, end - begin) for number, (begin, end) in self.jobs[0].windows.items()]

    def _stretches(self) -> list[Stretch]:
        """One training or two, with other times before, between and after them."""
        numbers, kinds = self.numbers, []
        if numbers.random() < 0.7:
            kinds.append("before")
        kinds.append("training")
        if numbers.random() < 0.5:
            kinds += [numbers.choice(("idle", "eval")), "training"]
        if numbers.random() < 0.7:
            kinds.append(numbers.choice(("after", "inference", "checkpoint")))
        if self.stage == "inference":
            kinds = ["after" if kind == "inference" else kind for kind in kinds]
        found, at = [], 0
        for kind in kinds:
            length = numbers.randrange(15, 30) if kind == "training" else numbers.randrange(6, 40)
            found.append(Stretch(kind, at, at + length))
            at += length
        return found

    def _trainings(self) -> None:
        """The first job trains in all trainings, the second one in all or some of them."""
        last = len(self.stretches) - 1
        for job in self.jobs:
            chosen = self.trainings
            if job is not self.jobs[0]:
                chosen = sorted(
                    self.numbers.sample(chosen, self.numbers.randrange(len(chosen)) + 1)
                )
            for number in chosen:
                stretch = self.stretches[number]
                more = self.numbers.uniform(0, 0.4) if job is not self.jobs[0] else 0
                begin = stretch.begin + (INSET + more if number else 0)
                end = stretch.end - (INSET + more if number < last else 0)
                job.windows[number] = (begin, end)

    def _workers(self, pid: int) -> list[int]:
        return [pid + 1 + n for n in range(self.numbers.choice((1, 1, 2, 4)))]

    def _loads(self) -> None:
        """Draws loads until the answer has a distance from its thresholds, however times weigh."""
        numbers = self.numbers
        for _ in range(1000):
            for stretch in self.stretches:
                near = numbers.choice((1.0, self.cpus * (1 - USED_UP)))
                left = numbers.choice((near * numbers.uniform(0.8, 1.2), numbers.uniform(0, 0.9),
                                       numbers.uniform(1, self.cpus)))  # fmt: skip
                if stretch.kind == "idle":
                    left = self.cpus - 0.1
                busy = self.cpus - min(left, self.cpus)
                part = numbers.choice((0.0, 0.1, 0.9, numbers.random())) if self.steals else 0.0
                stretch.used, stretch.stolen = busy * (1 - part), busy * part
            if self._is_clear():
                return
        raise AssertionError("no load is clear")

    def _is_clear(self) -> bool:
        """Returns whether no way to weigh the trainings' times changes the answer."""
        whole = [
            (n, float(self.stretches[n].end - self.stretches[n].begin)) for n in self.trainings
        ]
        summed = [(n, b - a) for job in self.jobs for n, (a, b) in job.windows.items()]
        lefts = [self.cpus - self.busy(weights) for weights in (self._union(), whole, summed)]
        return all(
            min(lefts) > threshold + 0.05 or max(lefts) < threshold - 0.05
            for threshold in (1, self.cpus * (1 - USED_UP))
        )

    def _quotas(self, target: str) -> None:
        """Draws the quotas of a target's cgroup and of one above it."""
        numbers = self.numbers
        own = numbers.choice((None, f"{ABOVE}/{target}"))
        for name, chance in ((own, 0.6), (ABOVE, 0.4)):
            if numbers.random() > chance:
                continue
            cgroup = Cgroup(target, name)
            while not cgroup.shares or not self._is_far(cgroup):
                self._quota(cgroup)
            if numbers.random() < 0.1:
                cgroup.told = frozenset(numbers.sample(sorted(cgroup.told), 1))
            self.cgroups.append(cgroup)

    def _quota(self, cgroup: Cgroup) -> None:
        """Draws the periods of a quota: ten or more for each sample, few, or none."""
        numbers = self.numbers
        scarce = numbers.random() < 0.2
        inside = numbers.choice((0, 0.3, 0.7, 0.7, 0.9, 0.9, 1))
        cgroup.rates, cgroup.shares = [], []
        for number, stretch in enumerate(self.stretches):
            trains = number in dict(self._lengths(cgroup.target))
            rate = numbers.uniform(10, 30) / self.tick
            share = inside if numbers.random() < 0.5 else numbers.random()
            if not trains:
                share = round(1 - inside)
                rate *= 0 if number in self.trainings else numbers.choice((0, 1, 3))
            elif scarce:
                rate, share = numbers.choice((0, 2)) / (stretch.end - stretch.begin), 0
            cgroup.rates.append(rate)
            cgroup.shares.append(share)

    def _is_far(self, cgroup: Cgroup) -> bool:
        """Returns whether neither rounding nor the borders of trainings decide about a quota."""
        shares = [self._share(cgroup), self._share(cgroup, whole=True)]
        return min(shares) > USED_UP + 0.05 or max(shares) < USED_UP - 0.05

    def _at(self, ticks: float) -> int:
        """Returns the time so many sampling periods after the begin, in ns."""
        return self.origin + round(ticks * self.tick * S)

    def _processes(self) -> None:
        """The jobs, their workers, a target that does not train, and a process of no target."""
        found: list[tuple[int, int, str, str | None]] = [(90, 1, "other", None)]
        for job in self.jobs:
            found.append((job.pid, 1, "target", job.target))
            found += [(worker, job.pid, "child", job.target) for worker in job.workers]
        if self.bystander:
            found.append((300, 1, "target", "b"))
        for pid, ppid, role, target in found:
            row = {"pid": pid, "tid": pid, "ppid": ppid, "role": role, "target": target}
            self.tables["processes"].append(row | {"comm": f"python{pid}"})

    def _phase(self, name: str, pid: int, begin: float, end: float | None, **more: int) -> None:
        until = None if end is None else self._at(end)
        row = {"start": self._at(begin), "end": until, "pid": pid, "tid": pid, "name": name}
        self.tables["phases"].append(row | {"source": "script"} | more)

    def _phases(self, job: Job) -> None:
        """Trainings, the steps in them, and what the job does meanwhile."""
        numbers, last, step = self.numbers, len(self.stretches) - 1, 0
        for epoch, (number, (begin, end)) in enumerate(job.windows.items()):
            since = begin if number else begin - numbers.random()
            until = numbers.choice((None, end + 1)) if number == last else end
            self._phase(self.stage, job.pid, since, until)
            if numbers.random() < 0.5 and number not in (0, last):
                self._phase("epoch", job.pid, begin, end, epoch=epoch)
            at = begin + 0.1
            while at < end - 2.5:
                length = numbers.uniform(0.4, 1)
                self._step(job, at, at + length, step=step, epoch=epoch)
                at, step = at + length + 0.01, step + 1
            if numbers.random() < 0.3:  # inside of the training, whose time it is
                self._phase("eval", job.pid, at, end - 0.1)
        for stretch in self.stretches:
            if stretch.kind in ("eval", "inference", "checkpoint"):
                self._phase(stretch.kind, job.pid, stretch.begin + 0.1, stretch.end - 0.1)

    def _step(self, job: Job, begin: float, end: float, **more: int) -> None:
        """A step that waits for a batch, which a worker makes meanwhile."""
        got = begin + (end - begin) * self.numbers.uniform(0.3, 0.7)
        worker = job.workers[more["step"] % len(job.workers)]
        self._phase("step", job.pid, begin, end, **more)
        self._phase("fetch", job.pid, begin, got, **more)
        self._phase("fetch", worker, begin, got - 0.01, **more)
        self._phase("forward", job.pid, got, (got + end) / 2, **more)
        self._phase("backward", job.pid, (got + end) / 2, end, **more)

    def _samples(self) -> None:
        """Samples of all series, of which some are missing, and the recording's begin and end."""
        numbers, last = self.numbers, self.stretches[-1].end
        borders = {0, last} | {s.begin for s in self.stretches}
        kept = {tick for border in borders for tick in range(border - 2, border + 3)}
        drops = numbers.choice((0, 0, 0.5))
        ticks = [t for t in range(last + 1) if t in kept or numbers.random() >= drops]
        inner = [t + numbers.uniform(0, 0.2) for t in ticks[1:-1]]
        times = [0.0, *inner, float(last)]
        self.start, self.end = self._at(0) + 5_000_000, self._at(last) - 5_000_000
        for name, of_stretch in (("cpu_time", "used"), ("steal_time", "stolen")):
            loads = [float(getattr(stretch, of_stretch)) for stretch in self.stretches]
            if self.missing != name:
                self._series(None, None, name, loads, times, 0.01)
        for target in self.targets:
            loads = [stretch.used * numbers.random() for stretch in self.stretches]
            self._series(target, None, "cpu_time", loads, times, 0.01)
        for cgroup in self.cgroups:
            rates, shares = cgroup.rates, cgroup.shares
            throttled = [rate * share for rate, share in zip(rates, shares, strict=True)]
            for name, loads in (("cgroup_nr_periods", rates), ("cgroup_nr_throttled", throttled)):
                if name in cgroup.told:
                    self._series(cgroup.target, cgroup.instance, name, loads, times, 1)
        self.tables["samples"].sort(key=lambda row: row["ts"])
        self.tables["phases"].sort(key=lambda row: (row["start"], -(row["end"] or 1 << 62)))
        if self.missing == "table":
            del self.tables["samples"]
        elif self.missing == "rows":
            self.tables["samples"] = []

    def _series(
        self, target: str | None, instance: str | None, name: str, loads: list[float],
        times: list[float], unit: float,
    ) -> None:  # fmt: skip
        """A counter and its rate. Some readings are made twice at one time."""
        rate_of = {"cpu_time": ("cpu_use", 100), "steal_time": ("steal", 100),
                   "cgroup_nr_periods": ("cgroup_period_rate", 1),
                   "cgroup_nr_throttled": ("cgroup_throttle_rate", 1)}  # fmt: skip
        rate, factor = rate_of[name]
        row = {"target": target, "instance": instance, "unit": "s" if unit < 1 else "periods"}
        late = self.numbers.choice((0, self.numbers.randrange(1_000_000)))
        first, before = self.numbers.randrange(10**6), None
        for ticks in times:
            ts = self._at(ticks) + late
            value = first + self._count((ts - self.origin) / S, loads, unit)
            again = 2 if self.numbers.random() < 0.05 else 1
            self.tables["samples"] += [row | {"ts": ts, "name": name, "value": value}] * again
            if before:
                speed = factor * (value - before[1]) / ((ts - before[0]) / S)
                self.tables["samples"].append(row | {"ts": ts, "name": rate, "value": speed})
            before = ts, value

    def _count(self, seconds: float, loads: list[float], unit: float) -> float:
        """Returns what a counter has counted since the begin, in whole units."""
        total = 0.0
        for stretch, load in zip(self.stretches, loads, strict=True):
            begin, end = stretch.begin * self.tick, stretch.end * self.tick
            total += load * max(0.0, min(seconds, end) - begin)
        return total // unit * unit
