"""Jobs in whose recordings some pages were in memory before, and naive caches in which these stay.

It is written from docs/predict.md (Pages in memory before the recording), not from the code of
`tracer predict`.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tests.oracles.called_jobs import NO_LIMIT, JobCall, removal
from tests.oracles.removing_caches import Step, lru
from tests.oracles.two_lists import FAULT, READ, REMOVAL, WRITE, Call, TwoLists

Row = dict[str, Any]
File = tuple[str, int]
Page = tuple[File, int]
SECOND = 1_000_000_000
DATA: tuple[File, ...] = (("8:1", 7), ("8:2", 7), ("8:1", 8), ("8:2", 9))
"""Files on two partitions, two of them with one inode number."""
LIBRARY, OTHERS = ("8:1", 10), ("8:2", 12)
"""A file that the first target maps, and one that no target uses."""
SIZES: dict[File, int] = {
    **dict(zip(DATA, (40, 30, 60, 50), strict=True)), LIBRARY: 28, OTHERS: 20,
}  # fmt: skip
READS = {"a": (DATA[0], *DATA[2:]), "b": DATA[1:3], "x": (*DATA, OTHERS)}
PIDS = {"a": 100, "b": 200, "x": 300, "r": 400}
"""Two targets, and two processes that are none: the last one reads nothing."""
EPOCHS = {"a": (None, 0, 1, 2), "b": (0, 1, None, 2)}
"""Epoch of each target in each stage; None: it marks none."""
CALLS = 60
"""Calls of a stage."""
WINDOW = 16
"""Pages that the kernel maps around a fault."""


class WarmJobs:
    """Two targets and others that read and write files by turns, for three seconds.

    `warm`: the share of pages that are in memory before. `takes`: the share of calls before which
    reclaim or a program takes the first pages of a file. `loses`: the share of arrivals that no
    event tells; each call reads one page then. `library`: the first target maps a file, of which
    some pages or all were in memory before ("some", "all"). It has read the former, so events have
    named each of its pages.
    """

    def __init__(
        self,
        seed: int,
        warm: float = 0.5,
        takes: float = 0.05,
        loses: float = 0,
        library: str | None = None,
    ) -> None:
        self.draw, self.now = random.Random(seed), SECOND
        self.takes, self.loses, self.library = takes, loses, library
        self.tables: dict[str, list[Row]] = {
            name: [] for name in ("page_cache", "reclaim", "phases", "processes", "files")
        }
        self.calls: list[JobCall] = []
        self.came: set[Page] = set()
        """Pages that an event brings in."""
        self.recorded: Counter[tuple[str | None, int | None]] = Counter()
        """Pages that events read from the disk, by target and epoch."""
        self.stage = 0
        self._cached = set(self._drawn(warm))
        self.before = frozenset(self._cached)
        self._mapped: set[Page] = set()
        self._openings: Counter[tuple[str, File]] = Counter()
        self._places: Counter[tuple[str, File]] = Counter()
        for (dev, ino), size in SIZES.items():
            row = {"dev": dev, "ino": ino, "path": f"/{dev}/{ino}", "size": 4096 * size}
            self.tables["files"].append(row)
        for actor, pid in PIDS.items():
            target = actor if actor in EPOCHS else None
            row = {"pid": pid, "tid": pid, "comm": "job", "ppid": 1, "target": target}
            self.tables["processes"].append(row | {"role": "target" if target else "other"})
        if library == "some":
            self._read("a", LIBRARY, 0, SIZES[LIBRARY])
        for self.stage in range(len(EPOCHS["a"])):
            self._run_stage()

    def _drawn(self, warm: float) -> Iterator[Page]:
        """Yields runs of pages; they have this share of all pages."""
        for file, size in SIZES.items():
            share, at = 1 if (file, self.library) == (LIBRARY, "all") else warm, 0
            while at < size:
                end = min(at + self.draw.randint(1, 9), size)
                if self.draw.random() < share:
                    yield from ((file, page) for page in range(at, end))
                at = end

    def _run_stage(self) -> None:
        """Runs a stage. No event has the time of a mark."""
        begun = self.now = self.now + 5
        self.now += 5
        for _ in range(CALLS):
            self.now += self.draw.choice([1, 1000, 35_000_000])
            self._step(self.draw.choices("abx", [4, 4, 2])[0])
        self.now += 5
        for actor, epochs in EPOCHS.items():
            if (epoch := epochs[self.stage]) is not None:
                mark = {"pid": PIDS[actor], "tid": PIDS[actor], "source": "script"}
                mark |= {"name": "epoch", "epoch": epoch, "start": begun, "end": self.now}
                self.tables["phases"].append(mark)

    def _step(self, actor: str) -> None:
        """A call, and perhaps what happens before it."""
        files = READS[actor]
        if self.library and actor in EPOCHS:
            files = (*files, LIBRARY)
        file = self.draw.choice(files)
        if self.draw.random() < self.takes and (file != LIBRARY or self.library == "some"):
            self._take_some(file)
        if self.draw.random() < 0.08 and file != LIBRARY:
            first = self.draw.randrange(SIZES[file])
            self._write(actor, file, range(first, min(first + 2, SIZES[file])))
        if self.library and actor == "a" and self.draw.random() < 0.3:
            self._map(self.draw.randrange(SIZES[LIBRARY]))
        goes_on, size = self.draw.random() < 0.4, SIZES[file]
        first = self._places[actor, file] % size if goes_on else self.draw.randrange(size)
        pages = 1 if self.loses else min(self.draw.choice([1, 1, 2, 4, 11]), size - first)
        self._places[actor, file] = first + pages
        self._read(actor, file, first, pages)

    # Calls: events, and their truth

    def _read(self, actor: str, file: File, first: int, pages: int) -> None:
        events, new = len(self.tables["page_cache"]), 0
        for index in range(first, first + pages):
            if self._comes(file, index):
                new += 1
                for event in ("sync_read_ahead", "read_ahead", "add"):
                    self._event(actor, event, file, index)
        self._event(actor, "access", file, first, pages, continues=False)
        self._openings[actor, file] += first == 0
        self._call(actor, READ, file, first, pages, self.tables["page_cache"][events]["ts"])
        self.recorded[self.owner(actor)] += new

    def _comes(self, file: File, index: int) -> bool:
        """Brings a page in if it is missing. Tells if events say so."""
        missing = (file, index) not in self._cached
        self._cached.add((file, index))
        if not missing or self.draw.random() < self.loses:
            return False
        self.came.add((file, index))
        return True

    def _write(self, actor: str, file: File, pages: Iterable[int]) -> None:
        for index in pages:
            if (file, index) not in self._cached:
                self._cached.add((file, index))
                self.came.add((file, index))
                self._event(actor, "add", file, index)
                self._call(actor, WRITE, file, index, 1, self.now)

    def _map(self, touched: int) -> None:
        """Maps the cached pages around a fault. A read by the same process follows."""
        first = touched - touched % WINDOW
        window = range(first, min(first + WINDOW, SIZES[LIBRARY]))
        there = [(LIBRARY, index) for index in window if (LIBRARY, index) in self._cached]
        if not there:
            return
        self._event("a", "map", LIBRARY, window.start, len(window))
        if self._mapped.issuperset(there):
            self._mapped.clear()  # no fault is left in the old mapping
        for page in there:
            if page not in self._mapped:
                self._call("a", FAULT, *page, 1, self.now)
        self._mapped.update(there)

    def _take_some(self, file: File) -> None:
        """Takes the first cached pages of a file: reclaim does, or a program."""
        actor, most = self.draw.choice("abxr"), self.draw.randrange(SIZES[file])
        taken = sorted(page for page in self._cached if page[0] == file and page[1] <= most)
        reclaims = self.draw.random() < 0.5
        thread = {"pid": PIDS[actor], "tid": PIDS[actor], "cpu": 0}
        if reclaims:
            self.tables["reclaim"].append({"ts": self.now + 1, "event": "memcg_begin", **thread})
            self.now += 2
        for page in taken:
            self._event(actor, "delete", *page)
            if not reclaims:
                self.calls.append(removal(*page, self.now))
        if reclaims:
            self.now += 1
            end = {"ts": self.now, "event": "memcg_end", "nr_reclaimed": len(taken), **thread}
            self.tables["reclaim"].append(end)
            self.now += 1
        self._cached.difference_update(taken)
        self._mapped.difference_update(taken)

    def owner(self, actor: str) -> tuple[str | None, int | None]:
        """Target and epoch of a process."""
        return (actor, EPOCHS[actor][self.stage]) if actor in EPOCHS else (None, None)

    def _call(self, actor: str, kind: str, file: File, first: int, pages: int, ts: int) -> None:
        reader = actor, file, self._openings[actor, file]
        self.calls.append(JobCall(*self.owner(actor), reader, file, first, pages, ts, kind))

    def _event(
        self, actor: str, event: str, file: File, index: int, pages: int = 1, **more: Any
    ) -> None:
        """Logs an event, at the time of the last one perhaps."""
        self.now += self.draw.choice([0, 0, 1])
        row = {
            "ts": self.now,
            "pid": PIDS[actor],
            "tid": PIDS[actor],
            "cpu": self.draw.randrange(2),
        }
        row |= {"event": event, "dev": file[0], "ino": file[1], "index": index, "pages": pages}
        self.tables["page_cache"].append(row | more)


# Pages


def users(calls: Iterable[JobCall]) -> dict[Page, set[str | None]]:
    """The targets that use each page; None: others do."""
    found: dict[Page, set[str | None]] = {}
    for call in calls:
        for index in range(call.first, call.first + call.pages):
            if call.kind in (READ, FAULT):
                found.setdefault((call.file, index), set()).add(call.target)
    return found


def warm_pages(calls: Iterable[JobCall], came: Collection[Page]) -> set[Page]:
    """Pages that targets use, and that never come into the cache during the recording."""
    return {page for page, by in users(calls).items() if by != {None} and page not in came}


# Caches


@dataclass(frozen=True)
class Limits:
    """The limit of the kernel's model below which each target is."""

    tenants: Mapping[str | None, int]
    limits: Sequence[int]
    """Those of the tenants. The last one, of other processes and of warm pages, has no bound."""


SHARED = Limits({"a": 0, "b": 1, None: 2}, (0, 0, 1))
APART = Limits({"a": 0, "b": 1, None: 2}, (0, 1, 2))
MACHINE = Limits({"machine": 0, None: 1}, (0, 1))
BESIDE = Limits({"a": 0, "machine": 1, None: 2}, (0, 1, 2))


def kernel_reads(
    calls: Iterable[JobCall],
    pages: int,
    below: Limits,
    warm: Iterable[Page] = (),
    ahead: int = 0,
    clock: int | None = 0,
    payer: int = -1,
) -> dict[tuple[str, int | None], int]:
    """Pages that a naive kernel reads for each epoch of the targets.

    `clock`: time of the first update of the statistics; None: they are always up to date. `payer`:
    the tenant that has the warm pages at first.
    """
    rooms = [pages] * below.limits[-1] + [NO_LIMIT]
    cache = TwoLists(rooms, below.limits, SIZES, ahead, exact=clock is None, clock=clock or 0)
    for page in sorted(warm):
        cache.add(page, payer % len(below.limits))
    made = (
        Call(below.tenants[one.target], (one.target, one.epoch), *one.place, one.pages, one.ts)
        for one in calls
    )
    return cache.run(made)[1]


def steps_beside(steps: Iterable[Step], warm: Iterable[Page]) -> list[Step]:
    """Steps that warm pages leave to a cache: none with such a page before its removal."""
    staying, left = set(warm), []
    for step in steps:
        if step.kind == REMOVAL:
            staying.discard(step.page)
        if step.page not in staying:
            left.append(step)
    return left


def enough(steps: Sequence[Step]) -> int:
    """The least number of pages with which LRU reads none twice, but for those taken out.

    With more pages, LRU never reads more.
    """
    least, too_few, found = sum(lru(steps, len(steps))), -1, len(steps)
    while found - too_few > 1:
        tried = (found + too_few) // 2
        if sum(lru(steps, tried)) == least:
            found = tried
        else:
            too_few = tried
    return found
