"""Naive caches out of which programs take pages, each page on its own.

It is written from docs/predict.md, not from the code of `tracer predict`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from tests.oracles.called_jobs import JobCall
from tests.oracles.two_lists import FAULT, READ, REMOVAL

File = tuple[str, int]


@dataclass(frozen=True)
class Step:
    """A target reads a page in an epoch, or writes one that was not cached; or a removal."""

    page: tuple[File, int]
    target: str | None
    epoch: int | None
    kind: str = READ

    @property
    def removes(self) -> bool:
        """Tells if it takes the page out."""
        return self.kind == REMOVAL

    def misses(self, cache: Collection[Any]) -> bool:
        """Tells if it reads the page from disk."""
        return self.kind == READ and self.page not in cache


def steps_of(calls: Iterable[JobCall], target: str | None = None) -> list[Step]:
    """Returns what a target does, or what all of them do, and the removals for any program."""
    return [
        Step(
            *((call.file, index), call.target, call.epoch),
            READ if call.kind == FAULT else call.kind,
        )
        for call in calls
        if call.kind == REMOVAL or (call.target and target in (None, call.target))
        for index in range(call.first, call.first + call.pages)
    ]


def lru(steps: Sequence[Step], capacity: int) -> list[bool]:
    """The page whose last use is the longest ago goes."""
    cache: list[Any] = []
    missed = []
    for step in steps:
        missed.append(step.misses(cache))
        cache = [page for page in cache if page != step.page]
        if not step.removes:
            cache = [*cache, step.page][-capacity:] if capacity else []
    return missed


def best(steps: Sequence[Step], capacity: int) -> list[bool]:
    """The page whose next use is the farthest away goes, or is not taken in.

    A page that is taken out or written before it is read again need not stay.
    """
    after = [float("inf")] * len(steps)
    following: dict[Any, float] = {}
    for number in reversed(range(len(steps))):
        step = steps[number]
        after[number] = following.get(step.page, float("inf"))
        following[step.page] = number if step.kind == READ else float("inf")
    cache: dict[Any, float] = {}
    missed = []
    for number, step in enumerate(steps):
        missed.append(step.misses(cache))
        cache.pop(step.page, None)
        if not step.removes:
            cache[step.page] = after[number]
        if len(cache) > capacity:
            del cache[max(cache, key=cache.__getitem__)]
    return missed


def kept(steps: Sequence[Step], capacity: int) -> list[bool]:
    """The pages that come first stay until a program takes them out."""
    cache: set[Any] = set()
    missed = []
    for step in steps:
        missed.append(step.misses(cache))
        if step.removes:
            cache.discard(step.page)
        elif len(cache) < capacity:
            cache.add(step.page)
    return missed


MODELS: dict[str, Callable[[Sequence[Step], int], list[bool]]] = {
    "lru": lru,
    "min": best,
    "resident": kept,
}
"""The models of docs/predict.md that have one cache, by their names in `--json`."""


def counts(
    steps: Sequence[Step], capacity: int, model: str
) -> Counter[tuple[str | None, int | None]]:
    """Pages read from disk by target and epoch, if all steps go to one cache."""
    missed = MODELS[model](steps, capacity)
    return Counter(
        (step.target, step.epoch)
        for step, is_missed in zip(steps, missed, strict=True)
        if is_missed
    )


def enough(steps: Sequence[Step]) -> int:
    """The least number of pages with which LRU reads none twice, but for those taken out."""
    least = sum(lru(steps, len(steps)))
    return next(pages for pages in range(len(steps) + 1) if sum(lru(steps, pages)) == least)


def fewest(steps: Sequence[Step], capacity: int) -> int:
    """The fewest pages that any cache reads, found by trying all that it can do."""
    reached: dict[frozenset[Any], int] = {frozenset(): 0}
    for step in steps:
        following: dict[frozenset[Any], int] = {}
        for cache, read in reached.items():
            misses = step.misses(cache)
            for choice in _choices(cache, step, capacity):
                following[choice] = min(following.get(choice, read + misses), read + misses)
        reached = following
    return min(reached.values())


def _choices(cache: frozenset[Any], step: Step, capacity: int) -> list[frozenset[Any]]:
    """Returns the caches that may follow: a cache evicts a page for another, or nothing."""
    if step.removes:
        return [cache - {step.page}]
    if step.page in cache:
        return [cache]
    fuller = cache | {step.page}
    if len(fuller) <= capacity:
        return [cache, fuller]
    return [fuller - {page} for page in fuller]
