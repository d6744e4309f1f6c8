"""LRU and the fewest misses in plain Python, from their rules: slow, and plain to see right."""

from __future__ import annotations

from collections import OrderedDict
from functools import cache

import numpy as np

from tracer.analysis.memory.page_runs import FAULT, READ, REMOVE, WRITE


def accesses(runs):
    """Yields (row, page, kind) for each page access."""
    rows = zip(runs.first.tolist(), runs.pages.tolist(), runs.kind.tolist(), strict=True)
    for row, (first, pages, kind) in enumerate(rows):
        for page in range(first, first + pages):
            yield row, page, kind


def lru_misses(runs, capacity_by_tenant):
    """Returns the pages missed and the cold ones among them, by group."""
    missed, cold = np.zeros((2, runs.groups), np.int64)
    caches = [OrderedDict() for _ in capacity_by_tenant]
    seen = [set() for _ in capacity_by_tenant]
    for row, page, kind in accesses(runs):
        tenant, group = runs.tenant[row], runs.group[row]
        if kind == REMOVE:
            for one, known in zip(caches, seen, strict=True):
                one.pop(page, None)
                known.discard(page)
            continue
        cache = caches[tenant]
        if kind != WRITE:
            missed[group] += page not in cache
            cold[group] += page not in seen[tenant]
        seen[tenant].add(page)
        cache[page] = None
        cache.move_to_end(page)
        while len(cache) > capacity_by_tenant[tenant]:
            cache.popitem(last=False)
    return missed, cold


def fewest_misses(runs, capacity):
    """Returns the fewest pages that a cache can miss: tries each way to evict, or to keep."""
    stream = [(page, kind) for _, page, kind in accesses(runs)]

    @cache
    def least(at, cached):
        if at == len(stream):
            return 0
        page, kind = stream[at]
        if kind == REMOVE:
            return least(at + 1, cached - {page})
        if page in cached:
            return least(at + 1, cached)
        full = cached | {page}
        left = [full - {gone} for gone in full] if len(full) > capacity else [full]
        return (kind in (READ, FAULT)) + min(least(at + 1, pages) for pages in left)

    return least(0, frozenset())
