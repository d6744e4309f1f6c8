"""The phase, stage, epoch and step of calls of worlds drawn at random.

The oracle is written from docs/phases.md and the docstring of `in_phase`, not from its code. The
worlds leave out all that these leave open; the minimal cases at the end tell the rest.
"""

from __future__ import annotations

import random
import tempfile
from itertools import pairwise
from pathlib import Path

import pytest

from tests.oracles.drawing import Row, seeds
from tests.support.in_memory import PLACE
from tests.support.traces import make_trace
from tracer.analysis.views.in_phase import in_phase

pytestmark = pytest.mark.slow

SPAN = 60
RECORDED = 10**9
"""The end of the recording."""
STAGES = ("data_load", "model_load", "train", "inference")
LEVELS = (
    ("train", "train", "inference", "data_load", "model_load", "eval"),
    ("epoch", "epoch", "epoch", "eval", "checkpoint", "train"),
    ("step", "step", "step", "inference", "custom"),
    ("fetch", "forward", "backward", "optimizer", "checkpoint", "eval"),
)
TARGETS = ("a", "b")


class Oracle:
    """Phases of calls, from lists of phases and processes."""

    def __init__(self, phases: list[Row], processes: list[Row] | None) -> None:
        self.processes = processes
        self.of_thread: dict[int, list[Row]] = {}
        self.threads: dict[int, set[int]] = {}
        names: dict[int, set[str]] = {}
        for place, phase in enumerate(phases):
            self.of_thread.setdefault(phase["tid"], []).append(phase | {"place": place})
            self.threads.setdefault(phase["pid"], set()).add(phase["tid"])
            names.setdefault(phase["pid"], set()).add(phase["name"])
        self.jobs = {pid for pid, marked in names.items() if marked != {"fetch"}}
        self.workers = set(names) - self.jobs

    def main_threads(self, pid: int) -> set[int]:
        """The threads whose phases last longest, by each way to measure this."""
        found: set[int] = set()
        sums, unions = {}, {}
        for tid in self.threads[pid]:
            lengths, covered = 0, set()
            for phase in self.of_thread[tid]:
                last = RECORDED if phase["end"] is None else phase["end"]
                lengths += last - phase["start"]
                covered.update(range(phase["start"], min(last, 2 * SPAN)))
            # Beyond the span of the world, nothing but phases without an end lasts on.
            begun = [p["start"] for p in self.of_thread[tid] if p["end"] is None]
            sums[tid] = lengths
            unions[tid] = len(covered) + (RECORDED - 2 * SPAN if begun else 0)
        for lengths_of in (sums, unions):
            most = max(lengths_of.values())
            found.update(tid for tid, length in lengths_of.items() if length == most)
        return found

    def main_thread(self, pid: int) -> int:
        (tid,) = self.main_threads(pid)
        return tid

    def only_job(self) -> int | None:
        return next(iter(self.jobs)) if len(self.jobs) == 1 else None

    def job_of(self, rows: list[Row]) -> int | None:
        """The job of a worker that these rows of the table processes tell of."""
        parents = {row["ppid"] for row in rows if row["ppid"] is not None}
        if len(parents) == 1 and parents <= self.jobs:
            return next(iter(parents))
        targets = {row["target"] for row in rows if row["target"] is not None}
        if not targets:
            return self.only_job()
        if len(targets) > 1:
            return None
        jobs = {
            row["pid"]
            for row in self.processes or []
            if row["pid"] in self.jobs and row["target"] in targets
        }
        return next(iter(jobs)) if len(jobs) == 1 else None

    def jobs_of(self, worker: int) -> set[int | None]:
        """The worker's job, by each way to read the documentation.

        If two processes had its number, the rows count together, each alone, or not at all.
        """
        rows = [row for row in self.processes or [] if row["pid"] == worker]
        found = {self.job_of(rows)}
        pairs = {(row["ppid"], row["target"]) for row in rows}
        if len(pairs) > 1:
            each = {self.job_of([row]) for row in rows}
            found |= each if len(each) == 1 else {None}
            found |= {self.only_job()}
        return found

    def around(self, tid: int, ts: int) -> list[Row]:
        """The thread's phases around a time, the innermost one first."""
        around = []
        for phase in self.of_thread[tid]:
            end = float("inf") if phase["end"] is None else phase["end"]
            if phase["start"] <= ts < end:
                around.append((-phase["start"], end, -phase["place"], phase))
        return [phase for *_, phase in sorted(around, key=lambda found: found[:3])]

    def place(self, pid: int, tid: int, ts: int) -> tuple:
        """Phase, stage, epoch and step of a call."""
        job = self.only_job()
        if tid in self.of_thread:
            owner = tid
        elif pid in self.threads:
            owner = self.main_thread(pid)
        elif job is not None and self.follows(pid, job):
            owner = self.main_thread(job)
        else:
            return None, None, None, None
        around = self.around(owner, ts)
        phase = around[0]["name"] if around else None
        found = self.numbers(around)
        if pid in self.workers:
            (job,) = self.jobs_of(pid)
            if job is not None:
                stage, *numbers = self.numbers(self.around(self.main_thread(job), ts))
                if found[1:] != (None, None):
                    numbers = found[1:]
                found = (found[0] or stage, *numbers)
        return phase, *found

    def follows(self, pid: int, job: int) -> bool:
        """A process without marks: it is of the job's target, its child, or not known."""
        rows = [row for row in self.processes or [] if row["pid"] == pid]
        targets = {row["target"] for row in self.processes or [] if row["pid"] == job} - {None}
        return not rows or any(row["target"] in targets or row["ppid"] == job for row in rows)

    @staticmethod
    def numbers(around: list[Row]) -> tuple:
        """Stage, epoch and step: each from the innermost phase that tells it."""
        stages = [phase["name"] for phase in around if phase["name"] in STAGES]
        epochs = [phase["epoch"] for phase in around if phase["epoch"] is not None]
        steps = [phase["step"] for phase in around if phase["step"] is not None]
        return tuple(found[0] if found else None for found in (stages, epochs, steps))


class World:
    """Processes that mark phases, or do not, and their calls."""

    def __init__(self, case: int) -> None:
        self.random = random.Random(case)
        self.phases: list[Row] = []
        self.processes: list[Row] | None = []
        self.threads: list[tuple[int, int]] = []
        jobs = [100 * n for n in range(1, 1 + self.random.choice((0, 1, 1, 2, 2, 2, 3)))]
        workers = [1000 + 10 * n for n in range(self.random.choice((0, 1, 2, 3, 4, 5)))]
        silent = [2000, 2010][: self.random.randrange(3)]
        for pid in jobs:
            self.add_threads(pid, self.job)
        for pid in workers:
            self.add_threads(pid, self.fetches)
        self.threads += [(pid, pid + n) for pid in silent for n in (0, 1)] + [(3, 3)]
        self.random.shuffle(self.phases)
        self.inherit()
        if self.chance(0.05):
            self.phases = []
        self.list_processes(jobs, workers, silent)
        self.calls = list(self.draw_calls())

    def inherit(self) -> None:
        """Gives each phase the numbers around it that it lacks, as a recording does."""
        marked = Oracle(self.phases, None)
        for phase in self.phases:
            end = float("inf") if phase["end"] is None else phase["end"]
            around = marked.around(phase["tid"], phase["start"])
            places = [found["place"] for found in around]
            place = next(n for n, found in enumerate(self.phases) if found is phase)
            inner = places.index(place) if place in places else -1
            outer = [found for found in around[inner + 1 :] if (found["end"] or end) >= end]
            for number in ("epoch", "step"):
                told = [found[number] for found in outer if found[number] is not None]
                if phase[number] is None and told:
                    phase[number] = told[0]

    def chance(self, share: float) -> bool:
        return self.random.random() < share

    def add_threads(self, pid: int, mark) -> None:
        """A process of up to three threads; it is clear which one marks the longest phases."""
        self.threads += [(pid, pid + n) for n in range(3)]
        for n in self.random.sample(range(3), self.random.choice((1, 1, 2, 3))):
            end = self.random.randrange(5, SPAN)
            draw = mark if self.chance(0.7) else self.fetches
            drawn = self.killed(draw(0 if self.chance(0.7) else end // 2, end))
            more = [{"pid": pid, "tid": pid + n} | phase for phase in drawn]
            of_process = [phase for phase in self.phases if phase["pid"] == pid] + more
            lasting = any(phase["start"] != phase["end"] for phase in of_process)
            if lasting and len(Oracle(of_process, None).main_threads(pid)) == 1:
                self.phases += more

    def killed(self, phases: list[Row]) -> list[Row]:
        """A thread's phases, of which some may never end."""
        if self.chance(0.7):
            return phases
        at, stays = self.random.randrange(SPAN), self.chance(0.4)
        found = []
        for phase in phases:
            if phase["start"] <= at < phase["end"]:
                found.append(phase | {"end": None})
            elif stays or phase["start"] < at:
                found.append(phase)
        return found

    def parts(self, start: int, end: int) -> list[tuple[int, int]]:
        """Intervals in this one: touching, apart, empty, or as long as it."""
        if self.chance(0.2):
            return [(start, end)] * self.random.choice((1, 1, 2))
        cuts = [self.random.randint(start, end) for _ in range(self.random.randrange(5))]
        cuts = sorted([start, *cuts, end])
        return [pair for pair in pairwise(cuts) if self.chance(0.8)]

    def job(self, start: int, end: int, level: int = 0) -> list[Row]:
        """Phases in phases; the numbers of epochs begin at 0 again now and then."""
        found = []
        epoch = step = 0
        filled = set()
        for begin, stop in (
            self.parts(start, end) if level else [(start, end // 2), (end // 2, end)]
        ):
            if begin > stop:
                continue
            name = self.random.choice(LEVELS[level])
            marked_epoch = name == "epoch" or self.chance(0.1 if name == "step" else 0.05)
            phase = {"name": name, "start": begin, "end": stop}
            phase["epoch"] = epoch if marked_epoch else None
            phase["step"] = step if name == "step" or self.chance(0.05) else None
            found.append(phase)
            epoch = 0 if self.chance(0.3) else epoch + (name == "epoch")
            step += name == "step"
            if level + 1 < len(LEVELS) and (begin, stop) not in filled:
                filled.add((begin, stop))
                found += self.job(begin, stop, level + 1)
        return found

    def fetches(self, start: int, end: int) -> list[Row]:
        """Fetches, of which some have numbers."""
        found = []
        for begin, stop in self.parts(start, end):
            epoch, step = (self.random.randrange(9) if self.chance(0.3) else None for _ in "es")
            phase = {"name": "fetch", "start": begin, "end": stop, "epoch": epoch, "step": step}
            found.append(phase)
        return found

    def list_processes(self, jobs: list[int], workers: list[int], silent: list[int]) -> None:
        """Processes and parents; of each worker, only what the documentation makes clear."""
        if self.chance(0.15):
            self.processes = None
        else:
            one = self.chance(0.4)
            marking = Oracle(self.phases, None)
            for pid in sorted({*jobs, *silent} - marking.workers):
                target = TARGETS[0] if one else self.random.choice((*TARGETS, None))
                parent = self.random.choice((*jobs, None)) if pid in silent else None
                self.processes.append(self.process(pid, parent, target))
            parents = [*jobs * 2, *silent, *workers, 1, *[None] * 5]
            for pid in sorted(marking.workers):
                self.list_worker(pid, parents, one)
            self.random.shuffle(self.processes)
        self.oracle = Oracle(self.phases, self.processes)

    def list_worker(self, pid: int, parents: list[int | None], one: bool) -> None:
        others = [parent for parent in parents if parent != pid]
        for _ in range(20):
            drawn = []
            for _ in range(self.random.choice((0, 1, 1, 1, 2, 2))):
                target = TARGETS[0] if one else self.random.choice((*TARGETS, *TARGETS, "c"))
                drawn.append(self.process(pid, self.random.choice(others), target))
            if len(Oracle(self.phases, [*self.processes, *drawn]).jobs_of(pid)) == 1:
                self.processes += drawn
                return

    @staticmethod
    def process(pid: int, ppid: int | None, target: str | None) -> Row:
        return {"pid": pid, "tid": pid, "ppid": ppid, "role": "child", "target": target}

    def draw_calls(self):
        """Calls of all threads, many of them exactly at the begin or the end of a phase."""
        times = {phase[at] for phase in self.phases for at in ("start", "end")} - {None}
        times = sorted(times | {time + 1 for time in times} | {0, SPAN, 2 * SPAN})
        for pid, tid in self.threads:
            for ts in self.random.choices(times, k=10):
                yield pid, tid, ts


def viewed(phases: list[Row], processes: list[Row] | None, calls: list[tuple]) -> list[tuple]:
    """Phase, stage, epoch and step of each call, by the view."""
    rows = [{"nr": n, "pid": pid, "tid": tid, "ts": ts} for n, (pid, tid, ts) in enumerate(calls)]
    tables = {"phases": phases, "syscalls": rows}
    if processes is not None:
        tables["processes"] = processes
    with (
        tempfile.TemporaryDirectory(dir=PLACE) as folder,
        make_trace(Path(folder) / "t", tables) as trace,
    ):
        view = in_phase(trace, "syscalls")
        return trace.rows(f"SELECT phase, stage, epoch, step FROM {view} ORDER BY nr")


def test_each_call_is_in_the_phase_stage_epoch_and_step_that_the_documentation_tells():
    for case in seeds(65):
        world = World(case)
        found = viewed(world.phases, world.processes, world.calls)
        assert len(found) == len(world.calls)
        for call, row in zip(world.calls, found, strict=True):
            assert row == world.oracle.place(*call), f"case {case}, (pid, tid, ts) {call}"


def marked(pid: int, name: str, start: int, end: int | None, **more) -> Row:
    return {"pid": pid, "tid": pid, "name": name, "start": start, "end": end, **more}


def epoch_of(pid: int, epoch: int) -> list[Row]:
    """A job that is in this epoch all the time."""
    return [marked(pid, "train", 0, 100), marked(pid, "epoch", 0, 100, epoch=epoch)]


def test_a_worker_does_not_belong_to_the_only_job_of_another_target():
    phases = [*epoch_of(7, 0), marked(20, "fetch", 0, 50)]
    for theirs, found in (("b", (None, None, None)), ("a", ("train", 0, None))):
        processes = [World.process(7, None, "a"), World.process(20, None, theirs)]
        assert viewed(phases, processes, [(20, 20, 10)]) == [("fetch", *found)]


def test_a_call_whose_process_is_not_known_is_in_the_phase_of_the_only_job():
    assert viewed(epoch_of(7, 0), None, [(None, 9, 10)]) == [("epoch", "train", 0, None)]
    several = [*epoch_of(7, 0), *epoch_of(8, 1)]
    assert viewed(several, None, [(None, 7, 10)]) == [(None, None, None, None)]


def test_only_what_works_for_the_only_job_is_in_its_phases():
    processes = [
        World.process(7, 1, "a"),
        {**World.process(30, 1, "a"), "comm": "helper"},
        {**World.process(31, 7, None), "role": "other"},
        World.process(32, 1, "b"),
        {**World.process(33, 1, "docker"), "role": "daemon"},
        {**World.process(34, 1, None), "role": "other", "comm": "cp"},
        {**World.process(35, 2, None), "role": "other", "comm": "kworker/0:1"},
        {**World.process(36, None, None), "role": "flusher"},
    ]
    calls = [(pid, pid, 10) for pid in (30, 31, 35, 36, 99, 32, 33, 34)]
    inside, outside = ("epoch", "train", 0, None), (None, None, None, None)
    assert viewed(epoch_of(7, 0), processes, calls) == [inside] * 5 + [outside] * 3


def test_a_worker_whose_only_fetch_is_empty_is_in_the_epoch_of_its_job():
    phases = [*epoch_of(7, 0), marked(20, "fetch", 20, 20)]
    processes = [World.process(7, None, "a"), World.process(20, 7, "a")]
    assert viewed(phases, processes, [(20, 20, 25)]) == [(None, "train", 0, None)]


def test_a_phase_without_an_end_lasts_until_the_recording_ends():
    phases = [marked(7, "train", 0, None), {**marked(7, "eval", 0, 40), "tid": 8}]
    assert viewed(phases, None, [(7, 9, 10), (7, 9, 50)]) == [("train", "train", None, None)] * 2
