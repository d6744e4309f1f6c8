"""The least page cache with which nothing is read twice, by plain LRU, unless it was removed."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from tracer.analysis.memory.lru import lru_misses
from tracer.analysis.memory.recorded import MUCH_MAPPED, Recorded, recorded
from tracer.store.trace import Trace


def enough_pages(taken: Recorded, limits: NDArray[np.int32] | None = None) -> NDArray[np.int64]:
    """Returns the least capacity of each memory limit at which LRU misses only pages that are new.

    `limits`: the number of each tenant's limit (int32[tenant]); None: each has its own.
    """
    if limits is None:
        limits = np.arange(len(taken.targets), dtype=np.int32)
    runs = taken.runs.as_one(limits[: taken.runs.tenants]).only_used()
    count = int(limits.max(initial=-1)) + 1
    low = np.zeros(count, np.int64)
    high = np.full(count, max(1, runs.all_pages), np.int64)
    tenants = limits[taken.groups["tenant"].to_numpy(np.int64)]
    while np.any(low < high):
        middle = (low + high) // 2
        found = lru_misses(runs, middle[: runs.tenants, None])
        again = np.bincount(
            tenants[: len(found.cold)],
            weights=found.missed[:, 0] - found.cold,
            minlength=len(low),
        )
        low = np.where((again > 0) & (low < high), middle + 1, low)
        high = np.where(again > 0, high, middle)
    return low


def least_memory(trace: Trace, target: str) -> tuple[int, bool] | None:
    """Returns that capacity of a target in bytes; None if it used no file.

    The second value is True if many uses go through mappings, whose later uses make no event: the
    capacity is then the least.
    """
    taken = recorded(trace)
    if target not in taken.targets:
        return None
    enough = int(enough_pages(taken)[taken.targets.index(target)]) * taken.page_bytes
    return enough, taken.mapped_share.get(target, 0.0) >= MUCH_MAPPED
