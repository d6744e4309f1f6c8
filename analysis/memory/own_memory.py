"""Memory of targets that is not page cache, over time, as the samples have it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from tracer.analysis.memory.page_runs import OwnPages
from tracer.analysis.memory.sharing import targets_around
from tracer.analysis.views.threads import name_of_others, of_everybody
from tracer.store.trace import Trace

_MOST = 1 << 50
"""More bytes of memory than any machine has."""
_SANE = f"ts BETWEEN {-1 << 61} AND {1 << 61}"
"""Times that can be added."""

# The kernel counts shared memory as page cache, but cannot evict it without swap.
_OWN = f"""
SELECT target, ts, memory - greatest(0, cached - coalesce(shared, 0)) AS own,
    shared IS NULL AS without_shared
FROM (
    SELECT target, ts, max(value) FILTER (name = 'cgroup_memory') AS memory,
        max(value) FILTER (name = 'cgroup_page_cache') AS cached,
        max(value) FILTER (name = 'cgroup_shmem') AS shared
    FROM samples WHERE target IS NOT NULL AND value BETWEEN 0 AND {_MOST} AND {_SANE}
    GROUP BY ALL
) WHERE memory >= cached ORDER BY ts
"""
_OF_MACHINE = f"""
SELECT ts, max(value) AS own FROM samples
WHERE name = 'memory_used' AND target IS NULL AND value BETWEEN 0 AND {_MOST} AND {_SANE}
GROUP BY ts ORDER BY ts
"""
_LAST = f"SELECT max(ts) FROM samples WHERE {_SANE}"
_NEAR_NS = 30_000_000_000
"""Time before and after a sample in which a larger one counts instead."""
ALWAYS = np.iinfo(np.int64).min
"""A time before all others."""


class Sizes(NamedTuple):
    """Bytes at times that grow; each size counts until the next time."""

    ts: NDArray[np.int64]
    bytes: NDArray[np.int64]


@dataclass(frozen=True)
class OwnMemory:
    """The memory of targets that is not page cache.

    A sample sees one moment, and a training needs its largest memory again and again, as in each of
    its steps. So a sample has the size of the largest one in the 30 s before and after it.

    A target has that of a sample until the next one, and that of the first one before it. It has
    none any more if its samples end, and others go on: its last sample counts as long as the
    longest time between two successive ones.
    """

    sizes: Mapping[str, Sizes]
    """Those of each target, at the times of its samples; targets without samples are left out."""
    without_shared: list[str]
    """Targets whose samples do not tell shared memory, which counts as page cache then."""
    until: int | None = None
    """The time of the last sample of all; None: no target ends."""

    def most(self, target: str) -> int | None:
        """Returns the largest number of bytes of a target; None: not known."""
        return int(self.sizes[target].bytes.max()) if target in self.sizes else None

    def median(self, target: str) -> int | None:
        """Returns the median of the bytes of a target over its samples; None: not known."""
        return int(np.median(self.sizes[target].bytes)) if target in self.sizes else None

    def below(self, limits: Iterable[Iterable[str]], page_bytes: int) -> OwnPages:
        """Returns the pages of the targets below each limit; `limits` has their names."""
        ts, limit, pages = [], [], []
        for number, names in enumerate(limits):
            of_each = [self._changes(name) for name in names if name in self.sizes]
            times, sizes = _added_up(of_each)
            ts.append(times)
            limit.append(np.full(len(times), number, np.int32))
            pages.append(-(-sizes // page_bytes))
        when = np.concatenate([*ts, np.empty(0, np.int64)])
        order = np.argsort(when, kind="stable")
        limits_of = np.concatenate([*limit, np.empty(0, np.int32)])
        sizes_of = np.concatenate([*pages, np.empty(0, np.int64)])
        return OwnPages(when[order], limits_of[order], sizes_of[order])

    def _changes(self, target: str) -> Sizes:
        """Returns the bytes of a target from the beginning of the recording to its end."""
        ts, sizes = self.sizes[target].ts, _largest_near(self.sizes[target])
        begins = np.concatenate([[ALWAYS], ts[1:]]).astype(np.int64)
        end = _end(ts, self.until)
        if end is None:
            return Sizes(begins, sizes)
        return Sizes(np.append(begins, end), np.append(sizes, 0))


def given_memory(names: Iterable[str], size: int) -> OwnMemory:
    """Returns the memory of targets that always have `size` bytes."""
    always = Sizes(np.zeros(1, np.int64), np.array([size]))
    return OwnMemory(dict.fromkeys(names, always), [])


def sampled_memory(trace: Trace, names: Sequence[str]) -> OwnMemory:
    """Returns the memory of targets as the samples of a trace have it.

    The kernel counts the memory of a cgroup for those above it, too; that of a target below another
    one is its alone. That of the machine has those of all others, and is known if theirs are.
    """
    found = trace.sql(_OWN)
    without_shared = sorted(set(found["target"][found["without_shared"]]) & set(names))
    sampled = {str(name): _sizes(mine) for name, mine in found.groupby("target") if name in names}
    inner = targets_around(trace, names)
    if of_everybody(trace) and (machine := name_of_others(trace)) in names:
        of_machine, named = trace.sql(_OF_MACHINE), set(names) - {machine}
        if len(of_machine) and named <= sampled.keys():
            sampled[machine] = _sizes(of_machine)
            inner = dict.fromkeys(named, machine) | inner
    ((until,),) = trace.rows(_LAST)
    alone = {name: Sizes(ts, sizes.copy()) for name, (ts, sizes) in sampled.items()}
    for name, around in inner.items():
        if name in sampled and around in sampled:
            ts, wanted = sampled[name].ts, sampled[around].ts
            end = _end(ts, until)
            there = True if end is None else wanted < end
            alone[around].bytes[:] -= sampled[name].bytes[_nearest(ts, wanted)] * there
    for _, sizes in alone.values():
        sizes.clip(min=0, out=sizes)
    return OwnMemory(alone, without_shared, until)


def _sizes(samples: pd.DataFrame) -> Sizes:
    return Sizes(samples["ts"].to_numpy(np.int64), samples["own"].to_numpy(np.int64))


def _end(ts: NDArray[np.int64], until: int | None) -> int | None:
    """Returns the time from which on a target with samples at `ts` has no memory any more.

    `until`: the last sample of all. None: it may have memory to the end.
    """
    longest = int(np.diff(ts).max(initial=0))
    if not longest or until is None or until <= int(ts[-1]) + 2 * longest:
        return None
    return int(ts[-1]) + longest


def _largest_near(sampled: Sizes) -> NDArray[np.int64]:
    """Returns the largest size near each time."""
    ts, sizes = sampled
    bounds = np.empty((len(ts), 2), np.int64)
    bounds[:, 0] = np.searchsorted(ts, ts - _NEAR_NS)
    bounds[:, 1] = np.searchsorted(ts, ts + _NEAR_NS, side="right")
    largest: NDArray[np.int64] = np.maximum.reduceat(np.append(sizes, 0), bounds.ravel())[::2]
    return largest


def _nearest(ts: NDArray[np.int64], wanted: NDArray[np.int64]) -> NDArray[np.int64]:
    """Returns the place of the time in `ts` that is nearest to each wanted one."""
    after = np.searchsorted(ts, wanted).clip(max=len(ts) - 1)
    before = (after - 1).clip(min=0)
    nearer = np.abs(wanted - ts[before]) <= np.abs(ts[after] - wanted)
    return np.where(nearer, before, after)


def _added_up(parts: Sequence[Sizes]) -> Sizes:
    """Returns the sum of sizes over time."""
    ts = np.concatenate([part.ts for part in parts] + [np.empty(0, np.int64)])
    grows = np.concatenate([np.diff(part.bytes, prepend=0) for part in parts] + [ts[:0]])
    order = np.argsort(ts, kind="stable")
    sums = grows[order].cumsum()
    times = ts[order]
    last = np.append(times[1:] != times[:-1], True)[: len(times)]
    return Sizes(times[last], sums[last])
