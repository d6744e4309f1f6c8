"""Epochs of which a recording has only a part are named, and no mean has them.

Two jobs train, and the recording is a window of their time. The truth is written from
docs/predict.md, docs/reads.md and docs/phases.md, not from the code.
"""

from __future__ import annotations

import json
import random
import re
from dataclasses import dataclass, field
from typing import Any

import pytest

from tests.fuzz.verbs import called
from tests.oracles.drawing import seeds
from tests.support.traces import make_trace

pytestmark = pytest.mark.slow

RECORDINGS = 6
PAGE, MIB = 4096, 1 << 20
PAGES = MIB // PAGE
TICK = 4
"""Times of a job are at least this far apart. Both jobs have no time in common."""
PIDS = {"a": 100, "b": 200}
WORKER = 110
"""A DataLoader worker of the job a, which reads half of its files."""
FILES = {"a": (11, 13), "b": (12, 13)}
"""Inodes; both jobs read the last one."""
SIZE_MIB = 64
TARGETS = [{"name": one, "role": "target", "kind": "pid", "pid": pid} for one, pid in PIDS.items()]
MEMORY = "40M"
TABLES = ("page_cache", "phases", "processes", "files")
COLUMNS = ("used", "recorded", "two-lists", "lru", "min", "resident")
DISKS = [{"dev": "8:0", "name": "sda"}]

QUERY = "SELECT target, epoch, partial FROM reads WHERE accessed > 0 AND epoch IS NOT NULL"

NAMED = re.compile(r"(?P<target>\w): only a part of the reads of epochs? (?P<epochs>[^w]*) w")
TABLE = re.compile(r"Reads of (?P<target>\w), with other memory\n(?P<rows>.*?)\nMiB;", re.DOTALL)
ROW = re.compile(r"40\.0 MiB +40\.0 MiB +(?P<epoch>\w+)(?P<values>( +[0-9.]+){6})")

Row = dict[str, Any]


@dataclass
class Read:
    """A read of some MiB of a file; `epoch` is that of its job, if it is in one."""

    ts: int
    target: str
    pid: int
    ino: int
    first: int
    mib: int
    epoch: int | None


@dataclass
class Epoch:
    """An epoch of a job."""

    number: int
    start: int
    end: int
    used: int = 0
    recorded: int = 0
    """MiB that were used, and that came from the disk, in its recorded part."""
    partial: bool = False


@dataclass
class Job:
    """All epochs, evaluations (begin, end, and the epoch around it) and reads of a job."""

    target: str
    epochs: list[Epoch] = field(default_factory=list)
    evaluations: list[tuple[int, int, int | None]] = field(default_factory=list)
    reads: list[Read] = field(default_factory=list)
    end: int = 0


class Recording:
    """The tables of a window of two jobs' time, and the truth about their epochs."""

    def __init__(self, seed: int) -> None:
        """Draws the jobs, then the window."""
        self.numbers = random.Random(seed)
        self.jobs = {target: self._job(target) for target in PIDS}
        self.begin, self.end = self._window()
        self.tables: dict[str, list[Row]] = {name: [] for name in TABLES}
        self._files()
        self._processes()
        self._mark()
        self.epochs = {target: self._cut(job) for target, job in self.jobs.items()}
        self.outside: dict[str, tuple[int, int]] = {}
        """MiB that each job used and read outside of epochs."""
        self._read()
        self.tables["phases"].sort(key=lambda row: row["start"])

    # The jobs

    def _job(self, target: str) -> Job:
        numbers, job = self.numbers, Job(target)
        self.now = 4000 + 2 * (target == "b")
        begun, count = numbers.choice([0, 0, 3]), numbers.randrange(3, 7)
        for number in range(begun, begun + count):
            start = self._tick()
            self._reads(job, number, numbers.choice([1, 3, 6]))
            if numbers.random() < 0.2:
                self._evaluate(job, number)
            job.epochs.append(Epoch(number, start, self._tick()))
            if numbers.random() < 0.4:
                self._evaluate(job, None)
            elif numbers.random() < 0.3:
                self._reads(job, None, 1)
        job.end = self._tick()
        return job

    def _tick(self) -> int:
        self.now += TICK * self.numbers.randrange(2, 300)
        return self.now

    def _evaluate(self, job: Job, epoch: int | None) -> None:
        begin = self._tick()
        self._reads(job, epoch, self.numbers.choice([0, 2]))
        job.evaluations.append((begin, self._tick(), epoch))

    def _reads(self, job: Job, epoch: int | None, count: int) -> None:
        for _ in range(count):
            ino = self.numbers.choice(FILES[job.target])
            mib = self.numbers.choice([1, 1, 3, 10])
            first = self.numbers.randrange(SIZE_MIB - mib + 1)
            pid = PIDS[job.target]
            if job.target == "a" and self.numbers.random() < 0.5:
                pid = WORKER
            job.reads.append(Read(self._tick(), job.target, pid, ino, first, mib, epoch))

    # The window

    def _window(self) -> tuple[int, int]:
        """Draws the recording's time: it may end in an epoch, or at the very end of one."""
        numbers = self.numbers
        last = max(job.end for job in self.jobs.values()) + 1000
        job = self.jobs[numbers.choice("ab")]
        first, second, *_, before, final = [*job.epochs[:2], *job.epochs[-2:]]
        begin = numbers.choice([1001, 1001, first.start, _within(job, first), _within(job, second)])
        end = numbers.choice(
            [last, final.end, final.end, _within(job, final), _within(job, before)]
        )
        return begin, max(end, (begin + 1000) | 1)

    def _mark(self) -> None:
        """Marks whatever overlaps the window; phases that did not end in it have no end."""
        for target, job in self.jobs.items():
            mark = {"pid": PIDS[target], "tid": PIDS[target], "source": "script"}
            named = [("epoch", e.start, e.end, e.number) for e in job.epochs]
            named += [("eval", *evaluation) for evaluation in job.evaluations]
            for name, start, end, epoch in named:
                if start < self.end and end >= self.begin:
                    row = mark | {"name": name, "start": start, "epoch": epoch}
                    row["end"] = end if end <= self.end else None
                    self.tables["phases"].append(row)

    def _files(self) -> None:
        """Lists the files: an access of a file of unknown length tells of its first page only."""
        for ino in sorted({*FILES["a"], *FILES["b"]}):
            row = {"dev": "8:0", "ino": ino, "path": f"/data/{ino}", "size": SIZE_MIB * MIB}
            self.tables["files"].append(row)

    def _processes(self) -> None:
        for pid, ppid, target, role in (
            (PIDS["a"], 1, "a", "target"),
            (PIDS["b"], 1, "b", "target"),
            (WORKER, PIDS["a"], "a", "child"),
        ):
            end = self.jobs[target].end
            row = {"pid": pid, "tid": pid, "ppid": ppid, "comm": "python", "role": role}
            row |= {"target": target, "end_ns": end if end < self.end else None}
            self.tables["processes"].append(row)

    def _cut(self, job: Job) -> dict[int, Epoch]:
        """Returns the epochs that the recording has a part of, by number."""
        found = {}
        for epoch in job.epochs:
            if epoch.start < self.end and epoch.end >= self.begin:
                epoch.partial = epoch.start < self.begin or epoch.end > self.end
                found[epoch.number] = epoch
        return found

    def _read(self) -> None:
        """Logs the reads of the window. Those before it have left their pages in the cache."""
        cached: set[tuple[int, int]] = set()
        every = [read for job in self.jobs.values() for read in job.reads]
        for read in sorted(every, key=lambda read: read.ts):
            pieces = [(read.ino, at) for at in range(read.first, read.first + read.mib)]
            missing = [piece for piece in pieces if piece not in cached]
            cached.update(pieces)
            if not self.begin <= read.ts <= self.end:
                continue
            for _, at in missing:
                for event in ("sync_read_ahead", "read_ahead", "add"):
                    self._event(read, event, at, 1)
            self._event(read, "access", read.first, read.mib, continues=False)
            if read.pid == WORKER:
                mark = {"pid": WORKER, "tid": WORKER, "source": "automatic", "name": "fetch"}
                self.tables["phases"].append(mark | {"start": read.ts - 1, "end": read.ts + 1})
            if read.epoch is None:
                used, recorded = self.outside.get(read.target, (0, 0))
                self.outside[read.target] = used + read.mib, recorded + len(missing)
            else:
                epoch = self.epochs[read.target][read.epoch]
                epoch.used += read.mib
                epoch.recorded += len(missing)

    def _event(self, read: Read, event: str, at: int, mib: int, **more: Any) -> None:
        row = {"ts": read.ts, "event": event, "dev": "8:0", "ino": read.ino, "cpu": 0}
        row |= {"index": at * PAGES, "pages": mib * PAGES, "pid": read.pid, "tid": read.pid}
        self.tables["page_cache"].append(row | more)

    def with_reads(self, target: str) -> list[Epoch]:
        """Returns the epochs whose recorded part reads something.

        (The answer has no others, though docs/predict.md does not say so: not compared here.)
        """
        return [epoch for epoch in self.epochs[target].values() if epoch.used]


def _within(job: Job, epoch: Epoch) -> int:
    """Draws a moment in an epoch, after its begin or after one of its reads."""
    reads = [read.ts for read in job.reads if read.epoch == epoch.number]
    return 1 + random.Random(epoch.start).choice([epoch.start, *reads])


@pytest.fixture(scope="module")
def recordings(tmp_path_factory):
    """Recordings, each with its folder and the rows of the prediction."""
    found = []
    for seed in seeds(RECORDINGS):
        made, folder = Recording(seed), tmp_path_factory.mktemp("epochs") / "t"
        clock = {"name": "mono", "start_ns": made.begin, "end_ns": made.end}
        make_trace(folder, made.tables, targets=TARGETS, clock=clock, disks=DISKS).close()
        answer = json.loads(called("predict", folder, "--memory", MEMORY, "--json"))
        found.append((made, folder, answer["reads"]))
    return found


def test_the_first_recordings_have_whole_and_partial_epochs():
    """Without this, the comparisons below might be of whole epochs only.

    Few recordings are compared, so that those of another number may lack a kind by chance.
    """
    whole = partial = ends = left_out = 0
    for seed in range(1, 1 + RECORDINGS):
        made = Recording(seed)
        for target in PIDS:
            kinds = [epoch.partial for epoch in made.with_reads(target)]
            whole += kinds.count(False)
            partial += kinds.count(True)
            left_out += True in kinds[1:] and False in kinds[1:]
        ends += sum(one.end == made.end for job in made.jobs.values() for one in job.epochs)
    assert whole > 15
    assert min(partial, ends, left_out) > 0


def test_each_epoch_has_the_reads_of_its_recorded_part(recordings):
    asked = 0
    for made, folder, rows in recordings:
        found = {
            (one["target"], one["epoch"]): (
                one["used_pages"],
                one["recorded_pages"],
                one["partial"],
            )
            for one in rows
        }
        expected = {
            (target, epoch.number): (epoch.used * PAGES, epoch.recorded * PAGES, epoch.partial)
            for target in PIDS
            for epoch in made.with_reads(target)
        }
        for target, (used, recorded) in made.outside.items():
            expected[target, None] = used * PAGES, recorded * PAGES, None
        assert found == expected
        told = json.loads(called("query", folder, QUERY, "--json")) if asked < 10 else []
        assert all(row["partial"] == found[row["target"], row["epoch"]][2] for row in told)
        asked += len(told)


def test_the_mean_of_the_later_epochs_has_those_that_were_recorded_as_a_whole(recordings):
    """Epochs that read nothing are left out, and jobs that were killed in one."""
    for made, folder, rows in recordings:
        text = called("predict", folder, "--memory", MEMORY)
        named = {
            found["target"]: {int(number) for number in re.findall(r"\d+", found["epochs"])}
            for found in NAMED.finditer(text.replace("\n", " "))
        }
        tables = {found["target"]: found["rows"] for found in TABLE.finditer(text)}
        for target in PIDS:
            epochs = made.with_reads(target)
            partial = {epoch.number for epoch in epochs if epoch.partial}
            assert named.get(target, set()) == partial
            told = {
                found["epoch"]: [float(value) for value in found["values"].split()]
                for found in ROW.finditer(tables.get(target, ""))
            }
            mine = {row["epoch"]: row for row in rows if row["target"] == target}
            later = [mine[epoch.number] for epoch in epochs[1:] if not epoch.partial]
            expected = {"first": [mine[epoch.number] for epoch in epochs[:1]]}
            expected |= {"later": later, "none": [mine[None]] if None in mine else []}
            assert told.keys() == {name for name, those in expected.items() if those}
            for name, those in ((name, expected[name]) for name in told):
                means = [sum(row[f"{one}_pages"] for row in those) / len(those) for one in COLUMNS]
                assert told[name] == pytest.approx([one / PAGES for one in means], rel=6e-4)
