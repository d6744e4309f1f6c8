"""The model `curve`: page counts of a layer at every capacity; devices come in afterwards.

A curve counts pages for one policy at many capacities and does not depend on devices. LRU takes one
pass for all capacities (stack_distances.py). Other policies take one pass for each capacity; these
passes run in parallel.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from tracer.analysis.flushlayer.curves.stack_distances import lru_counts
from tracer.analysis.flushlayer.flat_latencies import improvement
from tracer.analysis.flushlayer.policies.catalogue import find_policy
from tracer.analysis.flushlayer.policies.operations import PAST, PAST_PART, WRITE
from tracer.analysis.flushlayer.policies.simulation import Operations, Pages, check, run, seen
from tracer.probes.errors import UsageError

PAGE_BYTES = 4096


@dataclass(frozen=True)
class Curve:
    """Pages by capacity; the arrays have one length, capacities ascend."""

    policy: str
    writes: int
    """N: page writes, into the layer or past it."""
    past: int
    """Page writes past the layer at every capacity; at capacity 0, all writes go past it."""
    capacity: NDArray[np.int64]
    destaged: NDArray[np.int64]
    """Dirty pages written to the disk to make room."""
    resident: NDArray[np.int64]
    """Dirty pages left in the layer at the end."""
    read_hits: NDArray[np.int64]
    """Reads that the layer served."""


def curve(
    policy: str,
    page: Pages,
    unique: int,
    capacities: Sequence[int] | None = None,
    op: Operations | None = None,
    threads: int | None = None,
) -> Curve:
    """Returns the curve of a policy; `page`, `unique` and `op` are those of `policies.simulate`.

    Default of `capacities`: all of 0 .. U if that takes one pass (lru), else those of `spread`.
    `threads`: passes at a time; default: the processors of this process. Raises UsageError for an
    unknown policy or a negative capacity, BadTrace for a bad stream.
    """
    chosen = find_policy(policy)
    check(page, unique, op)
    writes, past = len(page), 0
    if op is not None:
        past = int(np.count_nonzero((op == PAST) | (op == PAST_PART)))
        writes = past + int(np.count_nonzero(op == WRITE))
    page, op = seen(page, op)
    if capacities is None:
        wanted = np.arange(unique + 1) if chosen.one_pass else spread(unique)
    else:
        wanted = np.unique(np.asarray(list(capacities), np.int64))
    if len(wanted) and wanted[0] < 0:
        raise UsageError(f"a capacity of {wanted[0]} pages cannot be", "give 0 or more")
    if chosen.one_pass:
        counts = lru_counts(page, unique, op)
        at = np.minimum(wanted, unique)
        parts = [counts.destaged[at], counts.resident[at], counts.read_hits[at]]
    else:

        def one(capacity: int) -> tuple[int, int, int]:
            if capacity == 0:
                return 0, 0, 0
            c = run(chosen, page, unique, capacity, op)
            return c.destaged, c.resident, c.read_hits

        with ThreadPoolExecutor(threads or len(os.sched_getaffinity(0))) as pool:
            rows = list(pool.map(one, wanted.tolist()))
        parts = list(np.array(rows, np.int64).reshape(-1, 3).T)
    return Curve(policy, writes, past, wanted, *parts)


def spread(unique: int, count: int = 64) -> NDArray[np.int64]:
    """Returns `count` capacities from 1 to `unique` pages, in about geometric steps."""
    if unique <= count:
        return np.arange(1, unique + 1)
    steps = count  # some of the smallest steps round to the same page
    while len(spaced := np.unique(np.geomspace(1, unique, steps).round())) < count:
        steps += 1
    return spaced.astype(np.int64)


def runs_every_size(policy: str, unique: int) -> bool:
    """Returns whether `curve` by default runs every capacity from 1 to `unique` pages."""
    return find_policy(policy).one_pass or len(spread(unique)) == unique


def about_sizes(policy: str, unique: int) -> list[str]:
    """Returns a sentence on the capacities that `curve` by default runs, unless it runs all."""
    if runs_every_size(policy, unique):
        return []
    return [
        f"{policy} takes a simulation for each size: {len(spread(unique))} of the {unique:,} sizes"
        " were simulated, and the size that an improvement needs is the least of these that reaches"
        " it; a smaller one may reach it, too"
    ]


def improvements(
    curve: Curve, medium_ns: float, disk_ns: float, page_bytes: int = PAGE_BYTES
) -> pd.DataFrame:
    """Returns the improvements of a curve with a medium and a disk (flat_latencies.py).

    `medium_ns`, `disk_ns`: time of a page's write. Columns: `capacity_pages`, `capacity_bytes`,
    `disk_writes` (pages that reach the disk before the end of the stream), `resident` (dirty pages
    left at the end), `improvement` (without the final drain) and `improvement_with_drain` (the
    pages left are written); NaN without writes.
    """
    none = curve.capacity == 0  # no layer: nothing passes through the medium
    past = np.where(none, curve.writes, curve.past)
    into = curve.writes - past
    disk_writes = curve.destaged + past
    return pd.DataFrame(
        {
            "capacity_pages": curve.capacity,
            "capacity_bytes": curve.capacity * page_bytes,
            "disk_writes": disk_writes,
            "resident": curve.resident,
            "improvement": improvement(curve.writes, into, disk_writes, medium_ns, disk_ns),
            "improvement_with_drain": improvement(
                curve.writes, into, disk_writes + curve.resident, medium_ns, disk_ns
            ),
        }
    )


def smallest_capacity(
    frame: pd.DataFrame, wanted: float, column: str = "improvement"
) -> int | None:
    """Returns the least capacity, in pages, at which `column` is `wanted` or more.

    `frame` is that of `improvements`. None: no capacity of the frame reaches `wanted`. The result
    is exact for the whole LRU curve, and otherwise as close as the capacities that were run.
    """
    enough = frame.loc[frame[column] >= wanted, "capacity_pages"]
    return int(enough.min()) if len(enough) else None


def thinned(frame: pd.DataFrame, rows: int = 400, column: str = "improvement") -> pd.DataFrame:
    """Returns at most `rows` rows of a curve, for drawing.

    Half of them are evenly spaced over the capacities, half lie where `column` changes; the first
    and the last row stay.
    """
    if len(frame) <= rows:
        return frame
    change = frame[column].diff().abs().fillna(0).cumsum().to_numpy()
    even = np.linspace(0, len(frame) - 1, rows - rows // 2).round().astype(int)
    steps = np.searchsorted(change, np.linspace(0, change[-1], rows // 2))
    return frame.iloc[np.union1d(even, steps.clip(0, len(frame) - 1))]
