"""Models of a page cache in plain Python, from their rules: slow, and plain to see right."""

from __future__ import annotations

from collections import OrderedDict

import numpy as np

from tracer.analysis.memory.page_runs import WRITE


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
