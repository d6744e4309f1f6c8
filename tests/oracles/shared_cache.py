"""Caches that several jobs share below one limit, worked out naively: pages, used one by one.

It is written from docs/predict.md, not from the code of `tracer predict`.
"""

from __future__ import annotations

import random
from collections import Counter, OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from tests.oracles.last_calls import LastCalls

Row = dict[str, Any]
Page = tuple[str, int, int]
"""Device, inode, and page of the file."""
FILES = (("8:1", 7, 24), ("8:2", 7, 24), ("8:1", 8, 40), ("8:2", 9, 60))
"""Files on two partitions, two of them with one inode number, and their pages."""
TABLES = ("page_cache", "phases", "processes", "files")
FIRST, SECOND, STRANGER = 100, 200, 300
"""Process numbers. The second one is a stranger's after the second job's end."""
EPOCHS = {"a": (0, None, 1, None, 2), "b": (None, 0, None, 1, None)}
"""Epoch of each job in each stage; None: an evaluation, or nothing."""


@dataclass(frozen=True)
class Use:
    """The use of a page by a target in an epoch (None: in none)."""

    target: str
    epoch: int | None
    page: Page


class Jobs:
    """Two targets that read files by turns, and others that read the same files.

    `uses` are those of the targets in the order of recording. `read` counts the pages that each
    target's epochs brought in.
    """

    def __init__(self, seed: int, common: bool = True) -> None:
        self.numbers, self.now = random.Random(seed), 1000
        self.tables: dict[str, list[Row]] = {name: [] for name in TABLES}
        self.uses: list[Use] = []
        self.read: Counter[tuple[str, int | None]] = Counter()
        self.files = {"a": FILES[:1] + FILES[2:], "b": FILES[1:3] if common else FILES[1:2]}
        self._cached: set[Page] = set()
        self._last_calls = LastCalls()
        for dev, ino, pages in FILES:
            row = {"dev": dev, "ino": ino, "path": f"/{dev}/{ino}", "size": 4096 * pages}
            self.tables["files"].append(row)
        for stage in range(5):
            self._stage(stage)
        self.tables["phases"].sort(key=lambda row: row["start"])

    def _stage(self, stage: int) -> None:
        """A stage of both jobs. No event has the time of a mark."""
        self.stage = stage
        begun = self.now = self.now + 5
        self.now += 5
        others = [STRANGER] if stage < 4 else [STRANGER, SECOND]
        jobs = ["a", "b"] if stage < 4 else ["a"]
        for _ in range(60):
            if self.numbers.random() < 0.15:
                self._read(self.numbers.choice(others), self.numbers.choice(FILES))
                continue
            target = self.numbers.choice(jobs)
            pid = FIRST if target == "a" else SECOND
            epoch = EPOCHS[target][stage]
            pages = self._read(pid, self.numbers.choice(self.files[target]))
            self.uses += [Use(target, epoch, page) for page, _ in pages]
            self.read[(target, epoch)] += sum(is_new for _, is_new in pages)
        self.now += 5
        for target, pid in (("a", FIRST), ("b", SECOND)):
            mark = {"pid": pid, "tid": pid, "source": "script", "start": begun, "end": self.now}
            if EPOCHS[target][stage] is not None:
                self.tables["phases"].append(
                    mark | {"name": "epoch", "epoch": EPOCHS[target][stage]}
                )
            elif stage in (1, 2):
                self.tables["phases"].append(mark | {"name": "eval"})
        if stage == 3:
            self._processes(self.now)

    def _processes(self, ended: int) -> None:
        for pid, target, times in (
            (FIRST, "a", {}),
            (SECOND, "b", {"end_ns": ended}),
            (STRANGER, None, {}),
            (SECOND, None, {"start_ns": ended + 1}),
        ):
            row = {"pid": pid, "tid": pid, "comm": "job", "ppid": 1, "target": target}
            row["role"] = "target" if target else "other"
            self.tables["processes"].append(row | times)

    def _read(self, pid: int, file: tuple[str, int, int]) -> list[tuple[Page, bool]]:
        """Reads some pages of a file: each with whether it comes from the disk."""
        dev, ino, size = file
        first = self.numbers.randrange(size)
        numbers = range(first, min(first + self.numbers.choice([1, 1, 2, 4]), size))
        missing = [number for number in numbers if (dev, ino, number) not in self._cached]
        numbers = self._last_calls.other(pid, self.stage, (dev, ino), numbers, missing)
        first = numbers.start
        pages = [(dev, ino, number) for number in numbers]
        found = [(page, page not in self._cached) for page in pages]
        self._cached.update(pages)
        thread = {"pid": pid, "tid": pid, "cpu": self.numbers.choice([0, 1])}
        for (_, _, number), is_new in found:
            if is_new:
                self._event(thread, file, "sync_read_ahead", number, numbers.stop - number)
                self._event(thread, file, "read_ahead", number, 1)
                self._event(thread, file, "add", number, 1)
        self._event(thread, file, "access", first, len(pages), continues=False)
        return found

    def _event(
        self,
        thread: Row,
        file: tuple[str, int, int],
        event: str,
        first: int,
        pages: int,
        **more: Any,
    ) -> None:
        self.now += self.numbers.choice([0, 0, 1])
        row = {"ts": self.now, "event": event, "dev": file[0], "ino": file[1], **thread, **more}
        self.tables["page_cache"].append(row | {"index": first, "pages": pages})


# Caches: each tells which uses miss.


def lru(uses: list[Page], capacity: int) -> list[bool]:
    """The page whose last use is the longest ago goes."""
    cache: OrderedDict[Page, None] = OrderedDict()
    missed = []
    for page in uses:
        missed.append(page not in cache)
        cache[page] = None
        cache.move_to_end(page)
        if len(cache) > capacity:
            cache.popitem(last=False)
    return missed


def best(uses: list[Page], capacity: int) -> list[bool]:
    """Belady 1966: the page whose next use is the farthest away goes, or is not taken in."""
    after = [float("inf")] * len(uses)
    seen: dict[Page, int] = {}
    for place in reversed(range(len(uses))):
        after[place] = seen.get(uses[place], float("inf"))
        seen[uses[place]] = place
    cache: dict[Page, float] = {}
    missed = []
    for place, page in enumerate(uses):
        missed.append(page not in cache)
        cache[page] = after[place]
        if len(cache) > capacity:
            del cache[max(cache, key=cache.__getitem__)]
    return missed


def kept(uses: list[Page], capacity: int) -> list[bool]:
    """The pages that come first stay."""
    cache: set[Page] = set()
    missed = []
    for page in uses:
        missed.append(page not in cache)
        if len(cache) < capacity:
            cache.add(page)
    return missed


MODELS: dict[str, Callable[[list[Page], int], list[bool]]] = {
    "lru": lru,
    "min": best,
    "resident": kept,
}
"""The models of docs/predict.md that have one cache, by their names in `--json`."""


def counts(uses: list[Use], capacity: int, model: str) -> Counter[tuple[str, int | None]]:
    """Pages read from disk by target and epoch, if all of the uses go to one cache."""
    missed = MODELS[model]([use.page for use in uses], capacity)
    return Counter(
        (use.target, use.epoch) for use, is_missed in zip(uses, missed, strict=True) if is_missed
    )


def enough(uses: list[Use]) -> int:
    """The least number of pages with which LRU reads none twice."""
    pages = [use.page for use in uses]
    distinct = len(set(pages))
    return next(c for c in range(distinct + 1) if sum(lru(pages, c)) == distinct)
