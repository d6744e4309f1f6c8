"""`mapped_share` and `mapped_bytes` of `tracer predict` and a naive count agree on drawn streams.

The truth is written from docs/predict.md and docs/reads.md, not from the code: a use is a page that
a call reads, a fault touches, or the kernel maps around a fault. The last two go through mappings.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable
from random import Random
from typing import Any

import pytest

from tests.oracles.cached_files import Access
from tests.oracles.drawing import SEED, answer_of, seeds
from tests.oracles.page_cache import TABLES
from tests.oracles.page_programs import Programs
from tracer.analysis.memory.recorded import Recorded, recorded
from tracer.store.trace import Trace

pytestmark = pytest.mark.slow

STORIES = 9
STEPS = 60
WINDOW, SIZE = 16, 48
FILES = (("8:1", 7), ("8:2", 7), ("8:1", 8), ("8:17", 7))
"""Files of two partitions and of another disk. Three of them have one number."""
MAPPERS = {("8:1", 7): "b", ("8:2", 7): "a", ("8:1", 8): "x", ("8:17", 7): "a2"}
"""The only process that maps each file: the page tables of several are not followed."""
PIDS = {"a": 100, "a2": 110, "b": 200, "x": 300, "kswapd0": 50}
TARGET_OF = {"a": "a", "a2": "a", "b": "b"}
TARGETS = [
    {"name": name, "role": "target", "kind": "pid", "pid": PIDS[name]} for name in ("a", "b")
]
PAIR = [one | {"pid": 1 + number} for number, one in enumerate(TARGETS)]

Row = dict[str, Any]
File = tuple[str, int]


class Uses:
    """Counts uses of pages by target, and those of them that go through mappings."""

    def __init__(self) -> None:
        self.all: Counter[str] = Counter()
        self.mapped: Counter[str] = Counter()

    def add(self, target: str | None, pages: int, mapped: bool) -> None:
        if target:
            self.all[target] += pages
            self.mapped[target] += pages if mapped else 0

    @property
    def shares(self) -> dict[str, float]:
        """The shares of the targets that have one above 0."""
        return {name: part / self.all[name] for name, part in self.mapped.items() if part}


class Story:
    """Processes read, write and map files; kswapd takes pages out. No page is cached at first."""

    def __init__(self, numbers: Random) -> None:
        self.numbers, self.now = numbers, 1000
        self.rows: list[Row] = []
        self.cached: dict[File, set[int]] = defaultdict(set)
        self.tables: dict[File, set[int]] = defaultdict(set)
        self.mapping: dict[str, tuple[File, int] | None] = {}
        """The window that each process has mapped, until its next event."""
        self.uses, self.everybody = Uses(), Uses()
        self.mapped: dict[str, set[tuple[File, int]]] = defaultdict(set)
        """The pages that each target has ever mapped."""
        self.accesses: list[tuple[int, str | None, int]] = []
        """Row, target and pages of each access by a call."""
        for _ in range(STEPS):
            step = numbers.choices([self.read, self.touch, self.write, self.evict], [8, 6, 2, 2])
            step[0](numbers.choice(FILES))

    def log(self, actor: str, event: str, file: File, index: int, pages: int = 1) -> None:
        """Logs an event, at the time of the last one perhaps."""
        self.now += self.numbers.choice([0, 0, 1, 7])
        row = {"ts": self.now, "pid": PIDS[actor], "tid": PIDS[actor], "cpu": len(self.rows) % 2}
        row |= {"event": event, "dev": file[0], "ino": file[1], "index": index, "pages": pages}
        self.rows.append(row)
        self.mapping[actor] = (file, index) if event == "map" else None

    def bring(self, actor: str, file: File, pages: list[int]) -> None:
        for page in pages:
            self.log(actor, "sync_read_ahead", file, page)
            self.log(actor, "read_ahead", file, page)
            self.log(actor, "add", file, page)
        self.cached[file].update(pages)

    def read(self, file: File) -> None:
        actor = self.numbers.choice(["a", "a2", "b", "x"])
        first = self.numbers.randrange(SIZE)
        last = min(first + self.numbers.choice([0, 2, 20]), SIZE - 1)
        pages = range(first, last + 1)
        self.bring(actor, file, [one for one in pages if one not in self.cached[file]])
        self.accesses.append((len(self.rows), TARGET_OF.get(actor), len(pages)))
        self.log(actor, "access", file, first, len(pages))
        self.use(actor, len(pages), mapped=False)

    def touch(self, file: File) -> None:
        """The mapper touches a page. The kernel maps the cached ones of its window, reads the
        touched one if it is not among them, and then maps the window again."""
        actor, page = MAPPERS[file], self.numbers.randrange(SIZE)
        if page in self.tables[file]:
            return  # it makes no event
        first = page - page % WINDOW
        window = range(first, first + WINDOW)
        if self.cached[file].intersection(window):
            self.log(actor, "map", file, first, WINDOW)
            self.map(actor, file, self.cached[file].intersection(window))
        if page not in self.cached[file]:
            self.log(actor, "fault", file, page)
            self.bring(actor, file, [page])
            self.log(actor, "map", file, first, WINDOW)
            self.map(actor, file, {page})

    def map(self, actor: str, file: File, pages: set[int]) -> None:
        self.use(actor, len(pages - self.tables[file]), mapped=True)
        self.tables[file] |= pages
        self.mapped[TARGET_OF.get(actor, "")] |= {(file, page) for page in pages}

    def use(self, actor: str, pages: int, mapped: bool) -> None:
        self.uses.add(TARGET_OF.get(actor), pages, mapped)
        self.everybody.add("all", pages, mapped)

    def write(self, file: File) -> None:
        """A write uses no page, and reads none."""
        actor, page = self.numbers.choice(["a", "b", "x"]), self.numbers.randrange(SIZE)
        if page not in self.cached[file]:
            self.log(actor, "add", file, page)
            self.cached[file].add(page)

    def evict(self, file: File) -> None:
        """Takes pages out, but none just after it was mapped: that one may not count as mapped."""
        mapping = [first for of, first in filter(None, self.mapping.values()) if of == file]
        for page in sorted(self.cached[file]):
            if page - page % WINDOW not in mapping and self.numbers.random() < 0.3:
                self.log("kswapd0", "delete", file, page)
                self.cached[file].discard(page)
                self.tables[file].discard(page)


def told(
    rows: list[Row],
    targets: list[Row] = TARGETS,
    found: Callable[[Trace], Any] | None = None,
    **manifest: Any,
) -> Any:
    """Returns the shares that the product tells of these events, or what `found` returns."""
    processes = [
        {"pid": pid, "tid": pid, "comm": name, "ppid": 2 if name == "kswapd0" else 1}
        | {"role": "target" if targets and name in TARGET_OF else "other"}
        | {"target": TARGET_OF.get(name) if targets else None}
        for name, pid in PIDS.items()
    ]
    sizes = [{"dev": dev, "ino": ino, "size": SIZE * 4096, "path": "/f"} for dev, ino in FILES]
    tables = {"page_cache": rows, "processes": processes, "files": sizes, "reclaim": []}
    if "loss" in manifest:
        gap = {"stream": "ftrace-machine-cpu0", "cpu": 0, "cause": "buffer overrun"}
        tables["loss"] = [gap | manifest["loss"]]
        manifest["loss"] = {"events": 1, "windows": 1, "unknown": 0, "others": 0}
    return answer_of(found or share_of, tables, targets=targets, **manifest)


def recorded_of(trace: Trace) -> Recorded:
    for table in ("samples", "phases"):
        trace.empty_if_missing(table)
    return recorded(trace)


def share_of(trace: Trace) -> dict[str, float]:
    return recorded_of(trace).mapped_share


def bytes_of(trace: Trace) -> dict[str, int]:
    return recorded_of(trace).mapped_bytes


def drawn() -> list[Story]:
    return [Story(Random(seed)) for seed in seeds(STORIES)]


def test_the_share_of_each_target_is_that_of_the_oracle():
    for story in drawn():
        assert told(story.rows) == pytest.approx(story.uses.shares)


def test_the_mapped_bytes_of_each_target_are_those_of_the_oracle():
    """A page that is mapped again after it left the cache counts once."""
    for story in drawn():
        pages = {name: len(found) for name, found in story.mapped.items() if name}
        assert told(story.rows, found=bytes_of) == {
            name: count * 4096 for name, count in pages.items() if count
        }


def test_a_lost_read_of_a_target_changes_its_share_alone():
    for story in drawn()[::3]:
        lost, target, pages = story.numbers.choice([one for one in story.accesses if one[1]])
        row = story.rows[lost]
        rows = [one for one in story.rows if one is not row]
        found = told(rows, loss={"from": row["ts"], "to": row["ts"], "count": 1})
        story.uses.all[target] -= pages
        assert found == pytest.approx(story.uses.shares)


def test_the_share_of_all_processes_is_that_of_the_oracle():
    """A trace that names no target has one share."""
    for story in drawn()[::3]:
        part, whole = story.everybody.mapped["all"], story.everybody.all["all"]
        assert told(story.rows, targets=[]) == {"all processes": pytest.approx(part / whole)}


def test_an_empty_table_has_no_share():
    assert told([]) == {}


class Told(Programs):
    """Counts the uses of simulated programs, too, by the way that they go."""

    def __init__(self, numbers: Random, options: Row) -> None:
        self.uses = Uses()
        super().__init__(numbers, options)
        counted = self.account.use

        def use(access: Access, pages: set[int], asked: set[int], mapped: int = 0) -> None:
            by_call = access in access.file.calls
            self.uses.add(access.thread.process.target, len(pages), mapped=not by_call)
            counted(access, pages, asked, mapped)

        self.account.use = use  # type: ignore[method-assign]


def test_the_share_of_programs_of_several_threads_is_that_of_the_oracle():
    """Calls and faults are interrupted by those of others; no page leaves the cache."""
    stay = {"evict": 0, "remove": 0, "drop": 0, "truncate": 0}
    programs = Told(Random(SEED), {"named": 1, "reclaims": 0, "weights": stay})
    for number in range(len(seeds(STORIES))):
        programs.case(number)
    programs.tables["phases"].sort(key=lambda row: row["start"])
    tables = {name: programs.tables[name] for name in TABLES}
    assert answer_of(share_of, tables, targets=PAIR) == pytest.approx(programs.uses.shares)
