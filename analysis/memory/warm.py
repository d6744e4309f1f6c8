"""Pages that were in memory before the recording: those used in it that never came into the cache.

It is not known which cgroup they are charged to. Libraries that other jobs use, or that an earlier
run has read, stay in memory and take no room of the target. Data that the target itself has read
before does.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tracer.analysis.memory.page_runs import FAULT, READ, REMOVE, WRITE, PageRuns
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
    there = np.zeros(runs.all_pages, np.bool_)
    _set(there, read_only(used[:, 0]), read_only(used[:, 1]), True)
    for batch in trace.batches(_ADDED):  # There may be more of them than memory has room for.
        first, until = (read_only(batch.column(at).to_numpy()) for at in range(2))
        _set(there, first, until, False)
    found = np.empty((0, 2), np.int64)
    for _ in range(2):  # The first pass counts.
        count = _stretches(there, read_only(used), found)
        found = found if count == len(found) else np.empty((count, 2), np.int64)
    return found


@compiled
def _set(there: Any, first: Any, until: Any, value: bool) -> None:
    for number in range(len(first)):
        there[first[number] : until[number]] = value


@compiled
def _stretches(there: Any, among: Any, found: Any) -> int:
    # Fills in the stretches that are there, as far as there is room; returns their number.
    count = 0
    for number in range(len(among)):
        at, end = among[number]
        while at < end:
            while at < end and not there[at]:
                at += 1
            begin = at
            while at < end and there[at]:
                at += 1
            if begin < at:
                if count < len(found):
                    found[count, 0], found[count, 1] = begin, at
                count += 1
    return count


def held_by_others(taken: Recorded, warm: Stretches) -> Recorded:
    """Returns a recording in which other processes, who have all room, hold these pages first."""
    runs = taken.runs
    if not len(warm) or not len(runs.first):
        return taken
    files = np.flatnonzero(runs.size_pages > 0)
    files = files[np.argsort(runs.base[files])]
    base = runs.base[files]
    parts = _cut_at_files(warm, base)
    count = len(parts)
    targets = taken.targets if None in taken.targets else [*taken.targets, None]
    before = {
        "first": parts[:, 0],
        "pages": parts[:, 1] - parts[:, 0],
        "file": files[np.searchsorted(base, parts[:, 0], side="right") - 1],
        "reader": np.zeros(count),
        "tenant": np.full(count, targets.index(None)),
        "kind": np.full(count, WRITE),
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
    of, first, pages = np.empty((3, 0), np.int64)
    for _ in range(2):  # The first pass counts.
        there = np.zeros(runs.all_pages, np.bool_)
        count = _cut_out(
            *(runs.first, runs.pages, runs.kind, read_only(warm)), there, *(of, first, pages)
        )
        if count == len(of):
            break
        of, first, pages = np.empty((3, count), np.int64)
    columns = {name: getattr(runs, name)[of] for name in _ROWS}
    columns["pages"] = pages.astype(runs.pages.dtype)
    reader = np.zeros(count, np.int32)
    return replace(runs, first=first, reader=reader, random=_NO_FLAGS, **columns)


@compiled
def _cut_out(
    firsts: Any, pages: Any, kinds: Any, warm: Any, there: Any, of: Any, first: Any, length: Any
) -> int:
    # Fills in the parts that are left of each run, as far as there is room; returns their number.
    _set(there, warm[:, 0], warm[:, 1], True)
    count = 0
    for row in range(len(firsts)):
        at, end = firsts[row], firsts[row] + pages[row]
        if kinds[row] == REMOVE:
            there[at:end] = False
        while at < end:
            while at < end and there[at]:
                at += 1
            begin = at
            while at < end and not there[at]:
                at += 1
            if begin < at:
                if count < len(of):
                    of[count], first[count], length[count] = row, begin, at - begin
                count += 1
    return count


def _cut_at_files(pages: Stretches, base: NDArray[np.int64]) -> Stretches:
    """Returns stretches of pages cut at the first page of each file; `base` is in order."""
    low = np.searchsorted(base, pages[:, 0], side="right")
    high = np.searchsorted(base, pages[:, 1], side="left")
    cuts = np.maximum(high - low, 0)
    of = np.repeat(np.arange(len(pages)), cuts)
    inner = base[low[of] + np.arange(len(of)) - (np.cumsum(cuts) - cuts)[of]]
    begin = np.sort(np.concatenate((pages[:, 0], inner)))
    end = np.sort(np.concatenate((pages[:, 1], inner)))
    return np.column_stack((begin, end))
