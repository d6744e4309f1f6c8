"""Pages that were in memory before the recording: those used in it that never came into the cache.

A recording does not tell which cgroup they are charged to. Libraries that other jobs use, or that
an earlier run has read, take no room of the target. Data that it has read itself before does.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tracer.analysis.memory.page_runs import BEFORE, FAULT, READ, REMOVE, PageRuns
from tracer.analysis.memory.recorded import Recorded
from tracer.analysis.views.stretches import Stretches, joined
from tracer.probes.compiled import compiled, read_only
from tracer.store.trace import Trace

_ROWS = ("file", "tenant", "kind", "group", "ts")
_NO_FLAGS = np.empty(0, np.bool_)
_ADDED = """
SELECT f.base + least(e."index", f.pages)::BIGINT AS first,
    f.base + least(e."index"::HUGEINT + coalesce(e.pages, 1), f.pages)::BIGINT AS until
FROM page_cache e JOIN page_files f USING (dev, ino) WHERE e.event = 'add' AND e."index" IS NOT NULL
"""


def warm_pages(trace: Trace, taken: Recorded) -> Stretches:
    """Returns the pages that targets use, and that do not come into the cache in the recording."""
    runs = taken.runs
    of_targets = np.array([name is not None for name in taken.targets])[runs.tenant]
    uses = of_targets & ((runs.kind == READ) | (runs.kind == FAULT))
    first = runs.first[uses]
    used = joined(first, first + runs.pages[uses])
    came = np.zeros(runs.all_pages, np.bool_)
    for batch in trace.batches(_ADDED):  # There may be more of them than memory has room for.
        _mark(came, *(read_only(batch.column(at).to_numpy()) for at in range(2)))
    pages = (used[:, 1] - used[:, 0]).astype(np.int32)
    _, first, left = _parts_outside(
        used[:, 0], pages, np.full(len(used), READ, np.int8), lambda: came
    )
    return np.column_stack((first, first + left))


def held_by_others(taken: Recorded, warm: Stretches) -> Recorded:
    """Returns a recording in which other processes, who have all room, hold these pages first."""
    runs = taken.runs
    if not len(warm) or not len(runs.first):
        return taken
    files = np.flatnonzero(runs.size_pages > 0)
    files = files[np.argsort(runs.base[files])]
    base = runs.base[files]
    parts = _cut_at(warm, base)
    count = len(parts)
    targets = taken.targets if None in taken.targets else [*taken.targets, None]
    before = {
        "first": parts[:, 0],
        "pages": parts[:, 1] - parts[:, 0],
        "file": files[np.searchsorted(base, parts[:, 0], side="right") - 1],
        "reader": np.zeros(count),
        "tenant": np.full(count, targets.index(None)),
        "kind": np.full(count, BEFORE),
        "group": np.zeros(count),
        "ts": np.full(count, runs.ts[0]),
    }
    columns = {}
    for name, values in before.items():
        column = getattr(runs, name)
        columns[name] = np.concatenate((values.astype(column.dtype), column))
    return replace(taken, runs=replace(runs, **columns), targets=targets)


def without_pages(runs: PageRuns, warm: Stretches) -> PageRuns:
    """Returns runs without the accesses of these pages until they are removed, by one reader.

    A cache without read-ahead is the same without these accesses, if it holds the pages meanwhile.
    """
    if not len(warm):
        return runs

    def staying() -> NDArray[np.bool_]:
        flags = np.zeros(runs.all_pages, np.bool_)
        _mark(flags, read_only(warm[:, 0]), read_only(warm[:, 1]))
        return flags

    of, first, pages = _parts_outside(runs.first, runs.pages, runs.kind, staying)
    columns = {name: getattr(runs, name)[of] for name in _ROWS}
    columns["pages"] = pages.astype(runs.pages.dtype)
    reader = np.zeros(len(of), np.int32)
    return replace(runs, first=first, reader=reader, random=_NO_FLAGS, **columns)


def _parts_outside(
    first: NDArray[np.int64],
    pages: NDArray[np.int32],
    kind: NDArray[np.int8],
    inside: Callable[[], NDArray[np.bool_]],
) -> NDArray[np.int64]:
    """Returns the parts of runs that are outside of a set of pages.

    int64[3, part]: the number of its run, its first page, and its pages. `inside` returns a
    flag per page, twice: a removal clears those of its pages, and a copy would take memory for all.
    """
    given = read_only(first), read_only(pages), read_only(kind)
    found = np.empty((3, _cut_out(*given, inside(), np.empty((3, 0), np.int64))), np.int64)
    _cut_out(*given, inside(), found)
    return found


@compiled
def _mark(flags: Any, first: Any, until: Any) -> None:
    for number in range(len(first)):
        flags[first[number] : until[number]] = True


@compiled
def _cut_out(first: Any, pages: Any, kinds: Any, inside: Any, found: Any) -> int:
    # Fills in the parts, as far as there is room; returns their number.
    count = 0
    for row in range(len(first)):
        at, end = first[row], first[row] + pages[row]
        if kinds[row] == REMOVE:
            inside[at:end] = False
        while at < end:
            while at < end and inside[at]:
                at += 1
            begin = at
            while at < end and not inside[at]:
                at += 1
            if begin < at:
                if count < found.shape[1]:
                    found[0, count], found[1, count], found[2, count] = row, begin, at - begin
                count += 1
    return count


def _cut_at(pages: Stretches, places: NDArray[np.int64]) -> Stretches:
    """Returns stretches of pages cut before some pages; `places` are in order."""
    low = np.searchsorted(places, pages[:, 0], side="right")
    high = np.searchsorted(places, pages[:, 1], side="left")
    cuts = np.maximum(high - low, 0)
    of = np.repeat(np.arange(len(pages)), cuts)
    inner = places[low[of] + np.arange(len(of)) - (np.cumsum(cuts) - cuts)[of]]
    begin = np.sort(np.concatenate((pages[:, 0], inner)))
    end = np.sort(np.concatenate((pages[:, 1], inner)))
    return np.column_stack((begin, end))
