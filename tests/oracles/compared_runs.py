"""Runs drawn at random for `tracer compare`, and its measures and verdicts, worked out naively.

They are written from docs/findings.md, docs/phases.md and docs/record.md, not from the code.
"""

from __future__ import annotations

import math
import statistics
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from math import comb
from random import Random
from typing import Any

from scipy import stats

Row = dict[str, Any]
Measure = tuple[str, str]
"""Topic and name."""

S, MS = 10**9, 10**6
DAEMON, OTHER = 500, 900
"""Processes that are no job: Docker's daemon, another tenant."""
CALLS = ("read", "futex", "fsync")
SYNCS = ("fsync",)
PARTS = ("forward", "backward", "optimizer", "checkpoint")
REQUESTS, FAULTS = "requests of the machine", "page faults"
NOTHING = "nothing of this kind was recorded"
ALPHA = 0.05


@dataclass(frozen=True)
class Missing:
    """The reason for which a run does not tell a measure."""

    why: str


class DrawnRun:
    """The tables of a run, and the measures that they tell."""

    def __init__(self, numbers: Random, still: bool) -> None:
        """`still`: the numbers of events and their times are not drawn."""
        self.numbers, self.still = numbers, still
        self.seconds = 40 if still else numbers.choice((40, 44))
        self.begin = 100 * S
        self.end = self.begin + self.seconds * S
        self.jobs = 2 if still else numbers.choice((1, 1, 2, 3))
        self.machine = not still and numbers.random() < 0.15
        self.tables: dict[str, list[Row]] = {"processes": []}
        self.measures: dict[Measure, float | Missing] = {}
        self.manifest: dict[str, Any] = {
            "clock": {"name": "mono", "start_ns": self.begin, "end_ns": self.end},
            "disks": [{"dev": "8:0", "name": "sda"}],
        }
        self._targets()
        for table, draw in (
            ("syscalls", self._calls),
            ("page_faults", self._faults),
            ("phases", self._phases),
            ("block", self._block),
        ):
            if still or numbers.random() > 0.12:
                self.tables[table] = []
                draw()
            else:
                self.lacking(table)
        self._losses()

    def lacking(self, table: str) -> None:
        """Says of a measure without a value that the run has no such table."""
        why = Missing(f"a trace has no table {table}")
        for measure in TOLD[table]:
            self.measures[measure] = why

    def value(self, measure: Measure) -> float | Missing:
        """Returns the value of a measure, 0 of calls that were never made, or a reason."""
        topic = measure[0]
        if topic == "calls" and measure not in self.measures:
            return 0.0 if "syscalls" in self.tables else Missing("a trace has no table syscalls")
        return self.measures.get(measure, Missing(NOTHING))

    @property
    def per(self) -> int:
        """The number of jobs that totals are divided by."""
        return 1 if self.machine else self.jobs

    # The tables

    def _targets(self) -> None:
        """The jobs are targets; or the machine is, and all programs count as one job."""
        targets = []
        for job in range(self.jobs):
            pid = 10 + job
            target = None if self.machine else f"job{job}"
            role = "other" if self.machine else "target"
            at = {"pid": pid, "tid": pid, "comm": "python"}
            self.tables["processes"].append(at | {"role": role, "target": target})
            targets.append({"name": f"job{job}", "role": "target", "kind": "pid", "pid": pid})
        if self.machine:
            targets = [{"name": "machine", "role": "target", "kind": "machine", "pid": 0}]
        targets.append({"name": "dockerd", "role": "daemon", "kind": "daemon", "pid": DAEMON})
        for pid, role, target in ((DAEMON, "daemon", "dockerd"), (OTHER, "other", None)):
            row = {"pid": pid, "tid": pid, "role": role, "comm": role, "ppid": 1}
            self.tables["processes"].append(row | {"target": target})
        self.manifest["targets"] = targets

    def _few(self, at_most: int) -> int:
        return at_most if self.still else self.numbers.choice((0, 1, at_most, at_most + 1))

    def _long(self) -> int:
        """Draws a length in ns: the same one everywhere, or one that varies."""
        return 10 * MS if self.still else self.numbers.choice((10, 10, 11, 12, 30)) * MS

    def _pids(self) -> list[int]:
        """Returns the recorded threads; the daemon is a target, but no job."""
        return [*range(10, 10 + self.jobs), DAEMON, *([OTHER] if self.machine else [])]

    def _counts(self, pid: int) -> bool:
        return pid != DAEMON

    def _calls(self) -> None:
        count: dict[str, int] = defaultdict(int)
        spent: dict[str, int] = defaultdict(int)
        for pid in self._pids():
            for name in CALLS:
                for n in range(self._few(4)):
                    ts, long = self.begin + n * S, self._long()
                    row = {"ts": ts, "pid": pid, "tid": pid, "name": name, "dur_ns": long}
                    self.tables["syscalls"].append(row | {"ret": 0})
                    if self._counts(pid):
                        count[name] += 1
                        spent[name] += long
        self.tables["syscalls"].sort(key=lambda row: row["ts"] + row["dur_ns"])
        for name, those in [(name, [name]) for name in count] + [("all", list(count))]:
            calls, ns = sum(count[one] for one in those), sum(spent[one] for one in those)
            self.measures["calls", name] = calls / self.seconds / self.per
            self.measures["calls", f"time in {name}"] = ns / S / self.per
        syncs, synced = sum(count[n] for n in SYNCS), sum(spent[n] for n in SYNCS)
        self.measures["syncs", "fsync and the like"] = synced / S / self.per
        if syncs:
            self.measures["syncs", "a call"] = synced / MS / syncs

    def _faults(self) -> None:
        kinds: list[str] = []
        for pid in self._pids():
            for n in range(self._few(5)):
                kind = "minor" if self.still else self.numbers.choice(("minor", "major"))
                at = {"ts": self.begin + n * S, "pid": pid, "tid": pid, "user": True}
                self.tables["page_faults"].append(at | {"kind": kind})
                kinds += [kind] if self._counts(pid) else []
        self.tables["page_faults"].sort(key=lambda row: row["ts"])
        self.measures[FAULTS, "all"] = len(kinds) / self.per
        self.measures[FAULTS, "major"] = kinds.count("major") / self.per

    def _phases(self) -> None:
        """Trainings with steps; one may have begun before the recording, or go on after it."""
        steps: list[dict[str, int]] = []
        trained: list[int] = []
        for job in range(self.jobs):
            at = {"pid": 10 + job, "tid": 10 + job, "source": "script"}
            count = 3 if self.still else self.numbers.choice((0, 1, 3, 5))
            early = not self.still and self.numbers.random() < 0.3
            now = start = self.begin + (-3 * S if early else S)
            for number in range(count):
                now, step = self._step(at, number, now)
                if step["start"] >= self.begin:
                    steps.append(step)
            if early and now < self.begin:
                now = self.begin + S
            now += S
            if not self.still and self.numbers.random() < 0.2:
                # (its end was not recorded)
                self.tables["phases"].append(
                    at | {"name": "step", "start": now, "end": None, "step": count, "epoch": 0}
                )
                now += S
            self.tables["phases"].append(at | {"name": "train", "start": start, "end": now})
            trained.append(now - start)
        self.tables["phases"].sort(key=lambda row: (row["start"], -(row["end"] or 1 << 62)))
        self.measures["stages", "train"] = statistics.mean(trained) / S
        if not steps:
            return
        for part in ("end to end", *PARTS):
            of_part = [step.get(part, 0) for step in steps]
            self.measures["minibatch", f"train: {part}"] = statistics.mean(of_part) / MS

    def _step(self, at: Row, number: int, start: int) -> tuple[int, dict[str, int]]:
        """Adds a step with some parts; returns its end, and its lengths."""
        now, lengths = start, {"start": start}
        named = at | {"step": number, "epoch": 0}
        for part in PARTS:
            if self.still or self.numbers.random() < 0.7:
                lengths[part] = self._long()
                row = {"name": part, "start": now, "end": now + lengths[part]}
                self.tables["phases"].append(named | row)
                now += lengths[part]
        now += 5 * MS
        lengths["end to end"] = now - start
        self.tables["phases"].append(named | {"name": "step", "start": start, "end": now})
        return now, lengths

    def _block(self) -> None:
        """Requests of jobs and of others; an old kernel may log no issue of one."""
        lacks = not self.still and self.numbers.random() < 0.15
        if lacks:
            events = ("block:block_bio_queue",)
            self.manifest["capture"] = {"formats": dict.fromkeys(events, "")}
        reads: list[int | None] = []
        for n in range(self._few(5)):
            pid = self.numbers.choice((*self._pids(), OTHER))
            at = {"pid": pid, "tid": pid, "dev": "8:0", "sector": 8 * n, "nr_sector": 8}
            ts, long = self.begin + n * S, self._long()
            unfinished = not self.still and self.numbers.random() < 0.1
            moments = [("bio_queue", ts), ("issue", ts + MS), ("complete", ts + MS + long)]
            for event, when in moments[: 1 if lacks else 2 if unfinished else 3]:
                self.tables["block"].append(at | {"ts": when, "event": event, "rwbs": "R"})
            reads.append(None if unfinished else long)
        if lacks:
            why = Missing("a trace has no event issue of the table block")
            self.measures[REQUESTS, "read"] = why
            for name in ("read: queue", "read: service"):
                self.measures[REQUESTS, name] = why
            return
        self.measures[REQUESTS, "read"] = len(reads) / self.seconds
        served = [long for long in reads if long is not None]
        if reads:
            self.measures[REQUESTS, "read: queue"] = 1.0
        if served:
            self.measures[REQUESTS, "read: service"] = statistics.mean(served) / MS

    def _losses(self) -> None:
        """Events were lost, or only names of files, which are no events."""
        kinds = ("none", "none", "none", "events", "uncounted", "names")
        kind = "names" if self.still else self.numbers.choice(kinds)
        gap = {"stream": "ftrace-machine", "cpu": 0, "cause": "overrun"}
        gap |= {"from": self.begin + S, "to": self.begin + 2 * S}
        none = {"events": 0, "windows": 0, "unknown": 0, "others": 0}
        self.lossy = kind in ("events", "uncounted")
        if kind == "events":
            self.tables["loss"] = [gap | {"count": 7}]
            self.manifest["loss"] = none | {"events": 7, "windows": 1}
        elif kind == "uncounted":
            self.tables["loss"] = [gap | {"count": None}]
            self.manifest["loss"] = none | {"windows": 1, "unknown": 1}
        elif kind == "names":
            self.tables["loss"] = [gap | {"count": 9, "stream": "files", "cpu": -1}]
            self.manifest["loss"] = none | {"others": 1}


TOLD: dict[str, list[Measure]] = {
    "syscalls": [("syncs", "fsync and the like"), ("syncs", "a call")]
    + [("calls", f"{time}{name}") for name in ("all", *CALLS) for time in ("", "time in ")],
    "page_faults": [(FAULTS, "all"), (FAULTS, "major")],
    "phases": [("stages", "train")]
    + [("minibatch", f"train: {part}") for part in ("end to end", *PARTS)],
    "block": [(REQUESTS, name) for name in ("read", "read: queue", "read: service")],
}
"""The measures that each table tells."""


@dataclass
class Verdict:
    """The expected row of a measure; p is None if no test can be made."""

    base: float | None
    mean: float | None
    runs: tuple[int, int]
    """The runs of the base and of the group that tell the measure."""
    ratio: float | None = None
    low: float | None = None
    high: float | None = None
    p: float | None = None
    whys: set[str] = field(default_factory=set)
    """Reasons, one of which is given; none: there is nothing to explain."""


def verdict(
    measure: Measure, base: Sequence[DrawnRun], other: Sequence[DrawnRun], names: tuple[str, str]
) -> Verdict:
    """Returns the expected row of a measure for two groups of runs.

    Runs that do not tell the measure do not count, unless none of their group does.
    """
    values = [[run.value(measure) for run in group] for group in (base, other)]
    first, second = ([v for v in group if not isinstance(v, Missing)] for group in values)
    known = [statistics.mean(group) if group else None for group in (first, second)]
    counts = len(first), len(second)
    for name, group, told in zip(names, values, (first, second), strict=True):
        if not told:
            whys = {value.why for value in group if isinstance(value, Missing)}
            return Verdict(*known, counts, whys={f"not in {name}: {why}" for why in whys})
    if not any(first):
        return Verdict(*known, counts, whys={"0 in"})
    found = Verdict(*known, counts, ratio=statistics.mean(second) / statistics.mean(first))
    if not any(second):
        found.p, found.whys = _dealt(first, second), {"it is 0 in this group"}
    elif min(len(first), len(second)) == 1:
        found.whys = {"one run has no spread"}
    elif len({*first}) == len({*second}) == 1:
        found.low = found.high = found.ratio
        found.p = 1.0 if first[0] == second[0] else _dealt(first, second)
        found.whys = set() if found.p else {"too few runs"}
    else:
        _student(found, first, second)
    return found


def _dealt(first: list[float], second: list[float]) -> float | None:
    """Returns twice the share of the ways to deal the runs that are as far apart as these.

    Returns None if there are so few ways that no change could be told.
    """
    zeros = first.count(0.0) if not any(second) else 0
    runs = len(first) + len(second)
    p = 2 * comb(len(second) + zeros, len(second)) / comb(runs, len(second))
    fewest = 2 / comb(runs, len(second))
    return min(p, 1.0) if fewest <= ALPHA else None


def _student(found: Verdict, first: list[float], second: list[float]) -> None:
    """Student's interval of the logarithm, from the relative spread of the runs."""
    parts = [
        statistics.variance(runs) / len(runs) / statistics.mean(runs) ** 2
        for runs in (first, second)
    ]
    error = math.sqrt(sum(parts))
    freedom = sum(parts) ** 2 / sum(
        part**2 / (len(runs) - 1) for part, runs in zip(parts, (first, second), strict=True)
    )
    reach = stats.t.ppf(1 - ALPHA / 2, freedom) * error
    found.low, found.high = found.ratio * math.exp(-reach), found.ratio * math.exp(reach)
    found.p = 2 * stats.t.sf(abs(math.log(found.ratio)) / error, freedom)


def corrected(ps: Sequence[float]) -> list[float]:
    """Returns the p values as Benjamini and Hochberg (1995) correct them."""
    ranked = sorted(ps)
    return [min(1.0, *(len(ps) * q / (n + 1) for n, q in enumerate(ranked) if q >= p)) for p in ps]
