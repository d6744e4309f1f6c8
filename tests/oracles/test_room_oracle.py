"""The advice on waiting for data counts the CPUs and the quotas that a training leaves unused."""

from collections.abc import Callable

import pytest

from tests.oracles.drawing import answer_of, first_with, seeds
from tests.oracles.room import World
from tracer.analysis.findings.loading import stalls

pytestmark = pytest.mark.slow

SAID = {
    "workers": "(use more workers",
    "CPUs": "(do less work for each sample, or give the job more CPUs",
    "quota": "(do less work for each sample, or raise the quota",
}
"""The advice of docs/findings.md, as the sentence puts it."""


def overall_left(world: World) -> float:
    """Returns the CPUs that are free in the mean of the whole recording."""
    return world.cpus - world.busy((n, s.end - s.begin) for n, s in enumerate(world.stretches))


def pauses(world: World) -> bool:
    """Returns whether the machine is idle between two trainings."""
    return any(stretch.kind == "idle" for stretch in world.stretches)


def has_two(world: World) -> bool:
    """Returns whether two targets train."""
    return world.trainers == "second target"


CIRCUMSTANCES: dict[str, Callable[[World], object]] = {
    "CPUs are used": lambda w: w.answers == {"CPUs"} and not w.steals,
    "the host takes CPUs": lambda w: w.is_busy and w.taken > 0.5,
    "CPUs are used, and idle between trainings": lambda w: w.answers == {"CPUs"} and pauses(w),
    "CPUs are used outside of trainings": lambda w: w.left > 1.1 and overall_left(w) < 0.9,
    "less than one of few CPUs is free": lambda w: w.left < 1 and not w.is_busy,
    "more than one of many CPUs is free": lambda w: 1 < w.left < w.cpus / 5,
    "a quota is used up": lambda w: w.answers == {"quota"},
    "a quota is used up, and not between trainings": lambda w: w.answers == {"quota"} and pauses(w),
    "a quota above is used up": lambda w: w.answers == {"quota"} and not w.uses_up("a", False),
    "both targets use up quotas": lambda w: w.answers == {"quota"} and has_two(w),
    "one of two targets uses up quotas": lambda w: w.answers == {"workers"} and (
        has_two(w) and w.uses_up("a") != w.uses_up("b")
    ),
    "a target that does not train uses up its quota": lambda w: w.answers == {"workers"} and (
        w.bystander and any(c.target == "b" and max(c.shares) > 0.8 for c in w.cgroups)
    ),
    "no samples": lambda w: w.missing == "rows",
    "no table of samples": lambda w: w.missing == "table",
    "no sample of CPU use": lambda w: w.missing == "cpu_time" and (
        w.stretches[w.trainings[0]].used > w.cpus - 0.5
    ),
    "no sample of steal": lambda w: w.missing == "steal_time" and w.is_busy,
}  # fmt: skip


def compare(world: World) -> None:
    """Asserts that the finding's sentence gives one of the right answers, and no other advice."""
    found = answer_of(stalls, world.tables, **world.manifest)
    sentence = next(finding.sentence for finding in found if finding.topic == "data loading")
    given = {answer for answer, words in SAID.items() if words in sentence}
    assert len(given) == 1, sentence
    assert given <= world.answers, sentence


@pytest.mark.parametrize("seed", seeds(10))
def test_the_advice_is_what_the_oracle_finds_missing(seed):
    compare(World(seed))


@pytest.mark.parametrize("circumstance", CIRCUMSTANCES)
@pytest.mark.parametrize("seed", seeds(1))
def test_the_advice_holds_in_the_circumstance(seed, circumstance):
    compare(first_with(CIRCUMSTANCES[circumstance], World, 1000 * seed))
