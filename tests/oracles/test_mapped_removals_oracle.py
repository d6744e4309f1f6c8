"""`tracer predict` takes mapped pages out of its caches, also if an event of reclaim was lost.

The truth is written from docs/predict.md and docs/reads.md, not from the code.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import product
from typing import Any

import pytest

from tests.oracles.called_jobs import NO_LIMIT, TENANTS, JobCall, removal
from tests.oracles.drawing import SEED, seeds
from tests.oracles.removed_pages import FILES, PIDS, SIZES, Story, place, together
from tests.oracles.removing_caches import MODELS, counts, enough, steps_of
from tests.oracles.test_removed_pages_oracle import ALL, DISKS, PAGE, READING, rows_of
from tests.oracles.two_lists import FAULT, READ, Call, TwoLists
from tests.support.traces import make_trace

pytestmark = pytest.mark.slow

CAPACITIES = (1, 3, 5, 8, 12, ALL)
MOST_DOUBTFUL = 4
WINDOW = 16
"""Pages that a fault maps, at multiples of this number."""

Row = dict[str, Any]


@dataclass(frozen=True)
class Taking:
    """Pages that leave the page cache together, and their place among the calls of a story."""

    actor: str
    pages: tuple[int, ...]
    removes: bool
    """True: a program asks for it; false: reclaim does it."""
    at: int
    ts: int


class Mapped(Story):
    """A story in which `a^3` touches a page of a mapped file.

    The kernel logs a fault if the page is not in the process's page table, and once more after it
    has read the page. A page that leaves the cache leaves all page tables.
    """

    def __init__(self, text: str) -> None:
        """Records the story of this text."""
        self.mapped: set[tuple[str, int]] = set()
        self.takings: list[Taking] = []
        self._removes = False
        super().__init__(text)

    def _step(self, step: str) -> None:
        actor, touches, page = step.partition("^")
        self._removes = step[1] in "-="
        if touches:
            self._touch(actor, int(page))
        else:
            super()._step(step)

    def _touch(self, actor: str, page: int) -> None:
        if (actor, page) in self.mapped:
            return
        self.mapped.add((actor, page))
        new = page not in self._cached
        self._events(actor, ("fault", "add", "fault") if new else ("fault",), [page])
        self._cached.add(page)
        self._call(actor, FAULT, [page])
        self.recorded[self._owner(actor)] += new

    def _take(self, actor: str, pages: list[int]) -> None:
        super()._take(actor, pages)
        self.mapped = {one for one in self.mapped if one[1] not in pages}
        if pages:
            at = len(self.calls)
            self.takings.append(Taking(actor, tuple(pages), self._removes, at, self.now))


class MappedLists(TwoLists):
    """The kernel's lists, with one page table for all processes.

    A fault maps the cached pages around the touched one, before it reads that one. Each page that
    it maps gets its accessed bit. (docs/predict.md is silent about these pages.)
    """

    def _fault(self, call: Call) -> int:
        first = call.first - call.first % WINDOW
        self._map(call.file, range(first, first + WINDOW))
        missed = super()._fault(call)
        self._map(call.file, range(call.first, call.end))
        return missed

    def _map(self, file: Any, indices: range) -> None:
        for index in indices:
            page = self.pages.get((file, index))
            if page and not getattr(page, "mapped", False):
                page.mapped = page.touched = True


def kernel_reads(
    calls: list[JobCall], pages: int, shared: bool
) -> dict[tuple[str | None, int | None], int]:
    """Pages that the naive kernel reads for each epoch of the targets with so much memory."""
    limits, capacities = ([0, 0, 1], [pages]) if shared else ([0, 1, 2], [pages] * 2)
    cache = MappedLists([*capacities, NO_LIMIT], limits, SIZES, exact=False)
    _, read = cache.run(
        Call(TENANTS[one.target], (one.target, one.epoch), *one.place, one.pages, one.ts)
        for one in calls
    )
    return read


def drawn_story(seed: int, steps: int, touches: int) -> str:
    """Draws a story of both targets and others; `touches`: the weight of touched pages."""
    numbers = random.Random(seed)

    def some(most: int) -> str:
        file = numbers.choices([0, 1, 2], [4, 4, 1])[0]
        first = numbers.randrange(FILES[file][2])
        last = min(first + numbers.randrange(most), FILES[file][2] - 1)
        return f"{10 * file + first}:{10 * file + last}"

    told = ["x24", "a0", "b0", "a|", "b|"]
    kinds = {"touch": touches, "read": 10, "remove": 4, "twice": 1, "reclaim": 3, "epoch": 1}
    for kind in numbers.choices([*kinds], [*kinds.values()], k=steps):
        match kind:
            case "touch":
                told.append(f"{numbers.choices('abx', [6, 6, 1])[0]}^{some(1).partition(':')[0]}")
            case "read":
                told.append(numbers.choices("abx", [6, 6, 1])[0] + some(3))
            case "remove":
                told.append(numbers.choice("arx") + "-" + some(numbers.choice([1, 3, 10])))
            case "twice":
                told.append("r=" + some(3))
            case "reclaim":
                told.append(numbers.choice("xxak") + "~" + some(numbers.choice([1, 10])))
            case "epoch":
                told.append(numbers.choice("ab") + "|")
    return " ".join(told)


def answered(tracer, folder, stories, pages, shared, lost=(), **manifest):
    """The answer for these numbers of pages; `lost`: the time of a lost event in each story."""
    tables, begun = together(stories, shared), 0
    tables["loss"] = []
    for story, ts in zip(stories, lost, strict=False):
        gap = {"stream": "ftrace-machine-cpu0", "cpu": 0, "cause": "buffer overrun", "count": 1}
        tables["loss"].append(gap | {"from": begun + ts, "to": begun + ts})
        begun += story.now + 10
    targets = [
        {"name": f"{name}{number}", "role": "target", "kind": "container"}
        | {"pid": PIDS[name] + 1000 * number, "container": f"{name}{number:063}"}
        for number, story in enumerate(stories)
        for name in story.targets
    ]
    make_trace(folder, tables, targets=targets, disks=DISKS, **manifest).close()
    memory = ",".join(str(size * PAGE) for size in pages)
    return tracer("predict", folder, "--memory", memory, "--read-ahead", 0, "--json").json


def expected_rows(story, shared, pages, calls):
    """The columns of each row with uses, by pages of memory, target and epoch."""
    rows = {}
    used = used_calls(calls)
    for target in story.targets:
        steps = steps_of(used, None if shared else target)
        mine = [step for step in steps if step.target == target and step.kind == READ]
        for number in pages:
            kernel = kernel_reads(calls, number, shared)
            read = {model: counts(steps, number, model) for model in MODELS}
            for group in {(step.target, step.epoch) for step in mine}:
                rows[number, *group] = {
                    "used": sum((step.target, step.epoch) == group for step in mine),
                    "recorded": story.recorded[group],
                    "two-lists": kernel[group],
                    **{model: read[model][group] for model in MODELS},
                }
    return rows


def used_rows(answer, number):
    """The rows of a story with uses: another oracle tells of epochs without any."""
    return {key: row for key, row in rows_of(answer, number).items() if row["used"]}


def used_calls(calls: list[JobCall]) -> list[JobCall]:
    """Returns the calls for caches that do not tell a touch of a mapped page from a read."""
    return [replace(call, kind=READ) if call.kind == FAULT else call for call in calls]


def test_each_model_reads_as_much_of_mapped_files_as_in_the_oracle(tmp_path, tracer):
    stories = [Mapped(drawn_story(seed, 80, touches=14)) for seed in seeds(8)]
    shared = [number % 2 == 1 for number in range(len(stories))]
    answer = answered(tracer, tmp_path / "t", stories, CAPACITIES, shared)
    assert not answer["lossy"]
    for number, story in enumerate(stories):
        assert any(call.kind == FAULT for call in story.calls)
        expected = expected_rows(story, shared[number], CAPACITIES, story.calls)
        assert used_rows(answer, number) == expected, story.text
        for target in story.targets:
            steps = steps_of(used_calls(story.calls), None if shared[number] else target)
            found = answer["enough_bytes"][f"{target}{number}"]
            assert found == enough(steps) * PAGE, (target, story.text)


TOLD = {
    "a^0 a^0": (1, 1),
    "a^0 r-0 a^0": (2, 2),
    "a^0 r-0 a0": (2, 2),
    "a0 r-0 a^0": (2, 2),
    "a0 a^0 r-0 a^0 a^0": (3, 2),
    "a^0 r=0 a^0": (2, 2),
    "a^0 k~0 a^0": (2, 1),
    "a^0 x~0 a^0 r-0 a^0": (3, 2),
}
"""Stories, the uses that the kernel logs, and the pages that each model reads with any memory."""


def test_each_removal_of_a_mapped_page_costs_a_read(tmp_path, tracer):
    """A page that is mapped already is used again without an event."""
    stories = [Mapped(text) for text in TOLD]
    answer = answered(tracer, tmp_path / "t", stories, [1, 8], [False] * len(stories))
    for number, (text, (used, read)) in enumerate(TOLD.items()):
        for pages in (1, 8):
            row = rows_of(answer, number)[pages, "a", None]
            assert row["used"] == used, text
            assert [row[name] for name in READING] == [read] * len(READING), text


# Lost events


def lose(story: Mapped, numbers: random.Random) -> tuple[int, list[Taking]] | None:
    """Loses an event of the reclaim of a thread that also removes pages.

    Returns its time, and what the thread took between the reclaim's events around it: nothing tells
    which of these pages were evicted. None: nothing is doubtful, or too much.
    """
    rows = [row for row in story.tables["reclaim"] if row["pid"] == PIDS["x"]]
    if not rows:
        return None
    at = numbers.randrange(len(rows))
    begin = rows[at - 1]["ts"] if at else 0
    end = rows[at + 1]["ts"] if at + 1 < len(rows) else story.now + 1
    doubtful = [one for one in story.takings if one.actor == "x" and begin < one.ts < end]
    if not 0 < len(doubtful) <= MOST_DOUBTFUL:
        return None
    story.tables["reclaim"].remove(rows[at])
    return rows[at]["ts"], doubtful


def readings(story: Mapped, doubtful: list[Taking]) -> Iterator[list[JobCall]]:
    """The calls of a story, for each way in which the doubtful pages may have left."""
    for removes in product([False, True], repeat=len(doubtful)):
        calls = [*story.calls]
        for one, removed in reversed([*zip(doubtful, removes, strict=True)]):
            if removed and not one.removes:
                gone = [removal(*place(page), one.ts) for page in one.pages]
                calls[one.at : one.at] = gone
            elif one.removes and not removed:
                del calls[one.at : one.at + len(one.pages)]
        yield calls


def test_a_lost_event_of_reclaim_leaves_only_its_own_threads_pages_in_doubt(tmp_path, tracer):
    """The numbers are those of one way to read what is in doubt.

    Stories are drawn until the ways of more than half of them have different numbers.
    """
    stories, shared, lost, answers, differ = [], [], [], [], 0
    pages, wanted = (2, 8, ALL), len(seeds(10))
    for seed in range(SEED, SEED + 1000):
        if len(stories) >= wanted and differ > len(stories) // 2:
            break
        story = Mapped(drawn_story(seed, 70, touches=4))
        if (found := lose(story, random.Random(seed))) is None:
            continue
        possible = [
            expected_rows(story, len(stories) % 2 == 1, pages, calls)
            for calls in readings(story, found[1])
        ]
        differ += any(one != possible[0] for one in possible)
        shared.append(len(stories) % 2 == 1)
        stories.append(story)
        lost.append(found[0])
        answers.append(possible)
    assert differ > len(stories) // 2
    summary = {"events": len(lost), "windows": len(lost), "unknown": 0, "others": 0}
    answer = answered(tracer, tmp_path / "t", stories, pages, shared, lost, loss=summary)
    assert answer["lossy"]
    for number, (story, possible) in enumerate(zip(stories, answers, strict=True)):
        assert used_rows(answer, number) in possible, story.text
