"""DataLoader workers with pools of threads, and the union of what they read, worked out naively.

Times have a coarse grid, so that many reads touch, overlap or are equal. The sums count each unit
of time by itself. It is written from docs/findings.md, docs/phases.md and the findings' sentences,
not from their code.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from random import Random
from typing import Any

Row = dict[str, Any]

UNIT = 10**6
"""Nanoseconds of a unit of time."""
BEGIN, UNITS = 1000, 240
"""The first unit of the recording, and its length in units."""
TENANT, KERNEL = 900, 901
READS = ("read", "pread64", "readv", "preadv2")
OTHERS = ("futex", "lseek", "openat", "write", "munmap")
POOL = (50, 60, 70)
"""The numbers of a pool's threads, counted from that of their process."""
TABLES = ("processes", "phases", "syscalls", "block")


@dataclass
class Loader:
    """A worker: its number, its fetches, and the units in which its threads read."""

    pid: int
    fetches: list[tuple[int, int]] = field(default_factory=list)
    reading: set[int] = field(default_factory=set)


@dataclass
class Job:
    """A training: its name and number, and the units in which it trains.

    `reading`: the units in which each of its processes reads a disk.
    """

    target: str
    pid: int
    training: set[int] = field(default_factory=set)
    reading: dict[int, set[int]] = field(default_factory=lambda: defaultdict(set))


class World:
    """The tables of a recording of one job or two, beside a tenant."""

    def __init__(self, seed: int) -> None:
        self.numbers = numbers = Random(seed)
        self.tables: dict[str, list[Row]] = {name: [] for name in TABLES}
        self.jobs: list[Job] = []
        self.loaders: list[Loader] = []
        self.sector = 0
        for pid in (100, 300)[: numbers.choice((1, 1, 2))]:
            self._job(Job(f"job{pid}", pid))
        self.process(TENANT, "other", None)
        self._reads_of_thread(TENANT, TENANT)
        self._requests(TENANT, TENANT)
        self.tables["syscalls"].sort(key=lambda row: row["ts"] + row["dur_ns"])
        self.tables["block"].sort(key=lambda row: row["ts"])
        self.tables["phases"].sort(key=lambda row: (row["start"], -(row["end"] or 1 << 62)))

    @property
    def manifest(self) -> Row:
        """The facts that go with the tables."""
        clock = {"start_ns": BEGIN * UNIT, "end_ns": (BEGIN + UNITS) * UNIT}
        targets = [
            {"name": job.target, "role": "target", "kind": "pid", "pid": job.pid}
            for job in self.jobs
        ]
        disks = [{"dev": dev, "name": dev} for dev in ("8:0", "8:16")]
        return {"clock": {"name": "mono"} | clock, "targets": targets, "disks": disks}

    @property
    def loading(self) -> float | None:
        """The percentage of the workers' loading time in which one of their threads reads.

        Fetches that began before all trainings, or after them, do not count.
        """
        trained = set().union(*(job.training for job in self.jobs))
        training = range(min(trained), max(trained) + 2)
        fetching = reading = 0
        for loader in self.loaders:
            begun = [range(*fetch) for fetch in loader.fetches if fetch[0] in training]
            units = set().union(*begun)
            fetching += len(units)
            reading += len(units & loader.reading)
        return 100 * reading / fetching if fetching else None

    @property
    def from_disks(self) -> float:
        """The percentage of the training in which a read of its job was queued or in service.

        It is a bound if there are several jobs: processes that read at once count one by one, also
        while only another job trains.
        """
        trained = set().union(*(job.training for job in self.jobs))
        processes = [units for job in self.jobs for units in job.reading.values()]
        if len(self.jobs) == 1:
            processes = [set().union(*processes)]
        reading = sum(len(units & trained) for units in processes)
        return min(100, 100 * reading / sum(len(job.training) for job in self.jobs))

    # Processes and phases

    def process(self, pid: int, role: str, target: str | None, ppid: int = 1) -> None:
        """Adds a process with all threads that it may have."""
        row = {"pid": pid, "ppid": ppid, "role": role, "target": target, "comm": "python"}
        self.tables["processes"] += [row | {"tid": pid + more} for more in (0, *POOL)]

    def phase(self, pid: int, name: str, start: int, end: int | None, **more: Any) -> None:
        """Adds a phase; times in units from the begin of the recording."""
        row = {"pid": pid, "tid": pid, "name": name, "source": "script"} | more
        row["start"] = (BEGIN + start) * UNIT
        row["end"] = None if end is None else (BEGIN + end) * UNIT
        self.tables["phases"].append(row)

    def _job(self, job: Job) -> None:
        numbers = self.numbers
        self.process(job.pid, "target", job.target)
        self.jobs.append(job)
        step, now = 0, numbers.randrange(1, 20)
        spans = []
        for epoch in range(2):
            begun = now
            for _ in range(numbers.randrange(2, 5)):
                fetched = now + numbers.randrange(1, 9)
                end = fetched + numbers.randrange(1, 20)
                numbered = {"epoch": epoch, "step": step}
                self.phase(job.pid, "step", now, end, **numbered)
                self.phase(job.pid, "fetch", now, fetched, **numbered)
                step, now = step + 1, end
            self.phase(job.pid, "epoch", begun, now, epoch=epoch)
            spans.append((begun, now))
            if numbers.random() < 0.5:
                end = now + numbers.choice((7, 25))
                self.phase(job.pid, "eval", now, end)
                now = end
        if numbers.random() < 0.5:
            spans = [(spans[0][0], spans[-1][1])]
        for start, end in spans:
            self.phase(job.pid, "train", start, end)
            job.training |= set(range(start, end))
        for n in range(numbers.choice((0, 1, 2, 4))):
            self._worker(job, job.pid + 1 + n, step)
        for tid in (job.pid, job.pid + POOL[0]):
            self._reads_of_thread(job.pid, tid)
            self._requests(job.pid, tid, job)

    def _worker(self, job: Job, pid: int, steps: int) -> None:
        """A worker that fetches batches ahead, in any order, with a pool of threads or alone."""
        numbers, loader = self.numbers, Loader(pid)
        self.process(pid, "child", job.target, job.pid)
        self.loaders.append(loader)
        order = numbers.sample(range(steps), steps)
        now = numbers.randrange(0, 9)
        for batch in order[: numbers.randrange(1, steps + 1)]:
            end = now + numbers.randrange(1, 25)
            if now >= UNITS - 30:
                break
            numbered = {"epoch": numbers.randrange(2), "step": batch}
            self.phase(pid, "fetch", now, end, **numbered)
            loader.fetches.append((now, end))
            now = end + numbers.choice((0, 0, 1, 5))
        if numbers.random() < 0.3:  # it does not count
            end = numbers.choice((None, UNITS + 5))
            self.phase(pid, "fetch", now, end, epoch=1, step=steps)
        pool = numbers.choice(((0,), (0, *POOL[:1]), POOL))
        for tid in (pid + more for more in pool):
            loader.reading |= self._reads_of_thread(pid, tid)
            self._requests(pid, tid, job)

    # Reads

    def _reads_of_thread(self, pid: int, tid: int) -> set[int]:
        """A thread reads and does other things, one call after another; returns its units."""
        numbers, now, found = self.numbers, self.numbers.randrange(0, 5), set()
        while now < UNITS - 20:
            long = numbers.choice((1, 1, 2, 5, 12))
            reads = numbers.random() < 0.5
            name = numbers.choice(READS if reads else OTHERS)
            call = {"pid": pid, "tid": tid, "name": name, "ret": 1, "dur_ns": long * UNIT}
            self.tables["syscalls"].append(call | {"ts": (BEGIN + now) * UNIT})
            if reads:
                found |= set(range(now, now + long))
            now += long + numbers.choice((0, 0, 3, 30))
        return found

    def _requests(self, pid: int, tid: int, job: Job | None = None) -> None:
        """A thread has reads in flight, several at once, and writes; some have no end."""
        numbers = self.numbers
        for _ in range(numbers.choice((0, 1, 4))):
            start = numbers.randrange(0, UNITS // 2)
            issued = start + numbers.choice((0, 0, 2))
            end: int | None = issued + numbers.choice((1, 3, 10, 25))
            rwbs = numbers.choice(("R", "RA", "R", "W"))
            if numbers.random() < 0.08:
                end = None
            self.sector += 4096
            dev = numbers.choice(("8:0", "8:16"))
            at = {"dev": dev, "sector": self.sector, "nr_sector": 8, "rwbs": rwbs}
            moments = [("bio_queue", start, tid), ("issue", issued, tid), ("complete", end, 0)]
            if numbers.random() < 0.1:  # it was queued before the recording
                moments, start = moments[1:], issued
            for event, when, by in moments:
                if when is not None:
                    row = at | {"event": event, "ts": (BEGIN + when) * UNIT, "tid": by}
                    self.tables["block"].append(row | {"pid": pid if by else 0})
            if job is not None and rwbs[0] == "R":
                job.reading[pid] |= set(range(start, UNITS if end is None else end))
