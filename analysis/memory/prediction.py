"""`predict`: pages missed and read with other amounts of memory, by any of the models.

`kernel_reads` has the pages read by the kernel's model for each clock of its statistics.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from tracer.analysis.memory.best import best_misses
from tracer.analysis.memory.lru import by_tenant, lru_misses
from tracer.analysis.memory.page_runs import OwnPages, PageRuns
from tracer.analysis.memory.two_lists import (
    PAGE_BYTES,
    Simulated,
    clocks,
    lru_with_read_ahead,
    two_lists,
)
from tracer.probes.errors import UsageError

KERNEL = "two-lists"
"""The name of the kernel's model."""


@dataclass(frozen=True)
class Predicted:
    """Pages by group and capacity."""

    accessed: NDArray[np.int64]
    """Pages read or faulted in (int64[group]); the same at every capacity."""
    missed: NDArray[np.int64]
    """Those among them that were waited for (int64[group, capacity])."""
    read: NDArray[np.int64]
    """Pages read from disk, those read ahead included (int64[group, capacity])."""


@dataclass(frozen=True)
class Model:
    """A model of a page cache."""

    name: str
    description: str
    source: str
    simulate: Callable[..., Simulated] | None
    """The simulation at one capacity, with read-ahead; None: a count without read-ahead."""


MODELS = {
    model.name: model
    for model in (
        Model(
            KERNEL,
            "the kernel's active and inactive lists, with its read-ahead",
            "Linux 6.18, mm/vmscan.c, mm/workingset.c and mm/readahead.c",
            two_lists,
        ),
        Model(
            "lru-read-ahead",
            "evicts the least recently used folio; the kernel's read-ahead",
            "Linux 6.18, mm/readahead.c",
            lru_with_read_ahead,
        ),
        Model(
            "lru",
            "evicts the least recently used page; no read-ahead",
            "Mattson et al., IBM Systems Journal 1970",
            None,
        ),
        Model(
            "min",
            "evicts the page whose next use is farthest away, a bound; no read-ahead",
            "Belady, IBM Systems Journal 1966",
            None,
        ),
    )
}
"""Every model, by name."""


def predict(
    runs: PageRuns,
    capacities: ArrayLike,
    ra_pages: int | None = None,
    model: str = KERNEL,
    io_pages: int | None = None,
    large_folios: bool = True,
    threads: int | None = None,
    limits: ArrayLike | None = None,
    page_bytes: int = PAGE_BYTES,
) -> Predicted:
    """Predicts what page caches of other sizes would have missed and read from disk.

    `capacities`: pages, int[limit, capacity], or int[capacity] for all limits alike; one result per
    capacity. `limits`: the number of each tenant's memory limit (int[tenant]); None: each has its
    own. Tenants of one limit have lists of their own in the model of the kernel; all other models
    treat them as one tenant. `model`: a name in MODELS. `ra_pages`, `io_pages`, `large_folios`,
    `page_bytes`: see `two_lists`; unused by a model without read-ahead. `threads`: simulations at a
    time; default: the processors of this process. Raises UsageError for an unknown model, or
    numbers that cannot be.
    """
    if model not in MODELS:
        raise UsageError(f"there is no model {model!r}", f"known: {', '.join(MODELS)}")
    shared = runs.as_one(limits)
    wanted = by_tenant(shared, capacities)
    accessed = runs.accessed()
    simulate = MODELS[model].simulate
    if simulate is None:
        used = shared.only_used()
        count = lru_misses(used, wanted).missed if model == "lru" else best_misses(used, wanted)
        return Predicted(accessed, count, count)

    def one(capacity: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        settings = ra_pages, io_pages, large_folios, limits
        found = simulate(runs, capacity, *settings, page_bytes=page_bytes)
        return _by_group(runs, found.missed), _by_group(runs, found.read)

    with _pool(threads) as pool:
        parts = list(pool.map(one, wanted.T))
    shape = (runs.groups, wanted.shape[1])
    missed, read = np.zeros(shape, np.int64), np.zeros(shape, np.int64)
    for at, (missed_at, read_at) in enumerate(parts):
        missed[:, at], read[:, at] = missed_at, read_at
    return Predicted(accessed, missed, read)


def kernel_reads(
    runs: PageRuns,
    capacities: ArrayLike,
    ra_pages: int | None = None,
    io_pages: int | None = None,
    large_folios: bool = True,
    threads: int | None = None,
    limits: ArrayLike | None = None,
    page_bytes: int = PAGE_BYTES,
    own: OwnPages | None = None,
) -> NDArray[np.int64]:
    """Predicts the pages that the kernel's model reads, for each clock of its statistics.

    Returns int64[clock, group, capacity], the clocks in the order of `clocks`; the first is that of
    `predict`, whose arguments these are; for `own` see `two_lists`. Each takes a simulation per
    capacity, unless it cannot differ from the first: nothing is evicted, or the runs have no times,
    or all the same one.
    """
    wanted = by_tenant(runs.as_one(limits), capacities).T

    def one(at: int, clock: int | None) -> tuple[NDArray[np.int64], bool]:
        settings = ra_pages, io_pages, large_folios, limits, clock, page_bytes, own
        found = two_lists(runs, wanted[at], *settings)
        return _by_group(runs, found.read), bool(found.evicted.any())

    each = clocks(runs)
    later = [number for number, clock in enumerate(each) if clock != each[0] and len(runs.ts)]
    read = np.zeros((len(each), runs.groups, len(wanted)), np.int64)
    with _pool(threads) as pool:
        places = []
        first = pool.map(lambda at: one(at, each[0]), range(len(wanted)))
        for at, (pages, evicts) in enumerate(first):
            read[:, :, at] = pages
            # Only reclaim, and reads of what it has evicted, depend on the statistics.
            places += [(at, number) for number in later if evicts]
        others = pool.map(lambda place: one(place[0], each[place[1]]), places)
        for (at, number), (pages, _) in zip(places, others, strict=True):
            read[number, :, at] = pages
    return read


def _pool(threads: int | None) -> ThreadPoolExecutor:
    return ThreadPoolExecutor(threads or len(os.sched_getaffinity(0)))


def _by_group(runs: PageRuns, pages: NDArray[np.int32]) -> NDArray[np.int64]:
    # Whole numbers below 2**53 are exact in the sums of bincount.
    return np.bincount(runs.group, weights=pages, minlength=runs.groups).astype(np.int64)
