"""Calls that read, write and map files, drawn at random, for the models of a page cache."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from tests.oracles.two_lists import FAULT, READ, WRITE, Call
from tracer.analysis.memory import page_runs

LONG = {"stream": 220, "data": 130, "more": 40}
MAPPED = {f"mapped {n}": 1 for n in range(24)}
"""Files of one page: no page around a fault is mapped with it."""
SIZES = LONG | MAPPED
EPOCHS = 3
STAGE = 50
"""Calls between two pauses."""
PAUSE_NS = 6_000_000_000
KINDS = {READ: page_runs.READ, FAULT: page_runs.FAULT, WRITE: page_runs.WRITE}


class Drawn:
    """Calls of some tenants, which use the same files.

    Each tenant reads on in a file, reads a few pages often, reads some anywhere, repeats its last
    read, writes, and touches mapped pages. Groups are numbers: tenant and epoch.
    """

    def __init__(
        self, numbers: random.Random, count: int, tenants: int = 1, pause_ns: int = PAUSE_NS
    ) -> None:
        self.numbers, self.now = numbers, 0
        self.calls: list[Call] = []
        self._places: Counter[tuple[int, str]] = Counter()
        self._openings: Counter[tuple[int, str]] = Counter()
        self._last: dict[int, tuple[str, int, int]] = {}
        for number in range(count):
            if number % STAGE == 0:
                self.now = number // STAGE * pause_ns
            self.now += numbers.choice([0, 0, 1])
            tenant = number if number < tenants else numbers.randrange(tenants)
            self._call(tenant, number * EPOCHS // count)

    def _call(self, tenant: int, epoch: int) -> None:
        numbers = self.numbers
        drawn = numbers.choices(
            ["on", "hot", "anywhere", "again", "mapped", "written"], [6, 6, 4, 2, 3, 1]
        )[0]
        kind, file, first, pages = READ, numbers.choice(list(LONG)), 0, 1
        if drawn == "on":
            file = numbers.choice(["stream", "data"])
            first = self._places[tenant, file] % SIZES[file]
            pages = min(numbers.choice([1, 4, 8, 40]), SIZES[file] - first)
            self._places[tenant, file] = first + pages
            if first == 0:
                self._openings[tenant, file] += 1
        elif drawn == "hot":
            first = numbers.randrange(12) * 3 % SIZES[file]
        elif drawn in ("anywhere", "written"):
            first = numbers.randrange(SIZES[file])
            pages = min(numbers.choice([1, 2, 5]), SIZES[file] - first)
            kind = WRITE if drawn == "written" else READ
        elif drawn == "mapped":
            kind, file = FAULT, numbers.choice(list(MAPPED))
        elif tenant in self._last:
            file, first, pages = self._last[tenant]
        if kind == READ:
            self._last[tenant] = file, first, pages
        reader = tenant, file, kind, self._openings[tenant, file]
        group = tenant * EPOCHS + epoch
        self.calls.append(Call(tenant, group, reader, kind, file, first, pages, self.now))


def as_runs(
    calls: Sequence[Call], sizes: Mapping[str, int] = SIZES, timed: bool = False
) -> page_runs.PageRuns:
    """Returns calls as the input of the models; `timed`: with their times."""
    files = {file: number for number, file in enumerate(sizes)}
    ends = np.cumsum([0, *sizes.values()])
    readers: dict[Any, int] = {}
    for call in calls:
        readers.setdefault(call.reader, len(readers))

    def column(values: list[int], kind: type[np.signedinteger[Any]] = np.int32) -> Any:
        return np.array(values, kind)

    return page_runs.PageRuns(
        first=column([int(ends[files[call.file]]) + call.first for call in calls], np.int64),
        pages=column([call.pages for call in calls]),
        file=column([files[call.file] for call in calls]),
        reader=column([readers[call.reader] for call in calls]),
        tenant=column([call.tenant for call in calls]),
        kind=column([KINDS[call.kind] for call in calls], np.int8),
        group=column([call.group for call in calls]),
        base=ends[:-1].astype(np.int64),
        size_pages=np.diff(ends).astype(np.int64),
        ts=column([call.ts for call in calls] if timed else [], np.int64),
    )
