"""A cache that keeps what it has taken in, and takes in nothing more once it is full.

In training, each epoch uses each sample once, in another order. A cache that evicts has then often
evicted a page before its next use. One that never evicts within an epoch hits as many pages as it
holds, in each epoch after the first (Mohan et al., Analyzing and Mitigating Data Stalls in DNN
Training, VLDB 2021: MinIO). A page that is removed makes room for another one.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from tracer.analysis.memory.lru import by_tenant
from tracer.analysis.memory.page_runs import REMOVE, WRITE, PageRuns
from tracer.probes.compiled import compiled


def resident_misses(runs: PageRuns, capacities: ArrayLike) -> NDArray[np.int64]:
    """Returns the pages that such caches miss by group (int64[group, capacity]).

    `capacities`: int[capacity], the same for all tenants, or int[tenant, capacity]. Raises
    UsageError for a capacity below 0.
    """
    runs = runs.only_used()
    wanted = by_tenant(runs, capacities)
    missed = np.zeros((runs.groups, wanted.shape[1]), np.int64)
    for at in range(wanted.shape[1]):
        cached = np.zeros((runs.tenants, runs.all_pages), np.bool_)
        of_groups = np.zeros(runs.groups, np.int64)
        _pass(
            *(runs.first, runs.pages, runs.kind, runs.group, runs.tenant),
            *(wanted[:, at].copy(), cached, of_groups),
        )
        missed[:, at] = of_groups
    return missed


@compiled
def _pass(
    first: Any, pages: Any, kinds: Any, groups: Any, tenants: Any, room: Any, cached: Any, out: Any
) -> None:
    for row in range(len(first)):
        mine = cached[tenants[row]]
        for page in range(first[row], first[row] + pages[row]):
            if kinds[row] == REMOVE:
                for tenant in range(len(cached)):
                    room[tenant] += cached[tenant, page]
                    cached[tenant, page] = False
                continue
            if mine[page]:
                continue
            if kinds[row] != WRITE:
                out[groups[row]] += 1
            if room[tenants[row]] > 0:
                room[tenants[row]] -= 1
                mine[page] = True
