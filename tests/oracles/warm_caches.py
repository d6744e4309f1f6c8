"""Naive caches in which pages stay that were in memory before a recording.

It is written from docs/predict.md (Pages in memory before the recording), not from the code of
`tracer predict`.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

from tests.oracles.called_jobs import NO_LIMIT, JobCall
from tests.oracles.nested_cgroups import PAGE
from tests.oracles.own_memory import Samples, changes
from tests.oracles.removing_caches import Step, lru
from tests.oracles.two_lists import REMOVAL, Call, Own, TwoLists
from tests.oracles.warm_pages import SIZES, File, Page


@dataclass(frozen=True)
class Limits:
    """The limit of the kernel's model below which each target is."""

    tenants: Mapping[str | None, int]
    limits: Sequence[int]
    """Those of the tenants. The last one, of other processes and of warm pages, has no bound."""

    @property
    def targets(self) -> list[str]:
        """The tenants that are targets."""
        return [name for name in self.tenants if name is not None]

    def beside(self, target: str) -> list[str]:
        """The targets below the limit of one."""
        limit = self.limits[self.tenants[target]]
        return [name for name in self.targets if self.limits[self.tenants[name]] == limit]


@dataclass(frozen=True)
class OwnMemory:
    """Own memory of targets: that of their samples, in bytes by time."""

    samples: Mapping[str, Samples]
    last: int
    """Time of the last sample of the recording."""

    def largest(self, targets: Collection[str]) -> int:
        """The largest samples of these targets, in whole pages."""
        each = [max(told.values()) for name, told in self.samples.items() if name in targets]
        return -(-sum(each) // PAGE)

    def below(self, limits: Limits) -> list[Own]:
        """The changes below each limit."""
        numbers = [limits.limits[limits.tenants[name]] for name in self.samples]
        return changes(self.samples, self.last, numbers)


NO_OWN = OwnMemory({}, 0)
SHARED = Limits({"a": 0, "b": 1, None: 2}, (0, 0, 1))
APART = Limits({"a": 0, "b": 1, None: 2}, (0, 1, 2))


def kernel_reads(
    calls: Iterable[JobCall],
    pages: int,
    below: Limits,
    warm: Iterable[Page] = (),
    ahead: int = 0,
    clock: int | None = 0,
    payer: int = -1,
    own: OwnMemory = NO_OWN,
    sizes: Mapping[File, int] = SIZES,
) -> dict[tuple[str, int | None], int]:
    """Pages that a naive kernel reads for each epoch of the targets.

    `clock`: time of the first update of the statistics; None: they are always up to date. `payer`:
    the tenant that has the warm pages at first.
    """
    rooms = [pages] * below.limits[-1] + [NO_LIMIT]
    cache = TwoLists(rooms, below.limits, sizes, ahead, exact=clock is None, clock=clock or 0)
    for page in sorted(warm):
        cache.add(page, payer % len(below.limits))
    made = (
        Call(below.tenants[one.target], (one.target, one.epoch), *one.place, one.pages, one.ts)
        for one in calls
    )
    return cache.run(made, own.below(below))[1]


def steps_beside(steps: Iterable[Step], warm: Iterable[Page]) -> list[Step]:
    """Steps that warm pages leave to a cache: none with such a page before its removal."""
    staying, left = set(warm), []
    for step in steps:
        if step.kind == REMOVAL:
            staying.discard(step.page)
        if step.page not in staying:
            left.append(step)
    return left


def enough(steps: Sequence[Step]) -> int:
    """The least number of pages with which LRU reads none twice, but for those taken out.

    With more pages, LRU never reads more.
    """
    least, too_few, found = sum(lru(steps, len(steps))), -1, len(steps)
    while found - too_few > 1:
        tried = (found + too_few) // 2
        if sum(lru(steps, tried)) == least:
            found = tried
        else:
            too_few = tried
    return found
