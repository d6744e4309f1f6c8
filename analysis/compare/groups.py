"""Groups of traces that are repeats of each other, and pairs of traces of two groups."""

from __future__ import annotations

import itertools
import re
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, field

from tracer.analysis.studies.identity import Identity
from tracer.analysis.studies.runs import FACTORS
from tracer.analysis.studies.spread import place
from tracer.digits import show_digits

_NUMBER = re.compile(r"[-_. ]*\d+$")
_FEWEST_PAIRS = 2
_MUCH_LONGER = 1.25
"""Ratio of lengths of recordings from which on a comparison tells it."""
_LONGEST = 80
_MORE = " ..."
_BEFORE = 40
"""Most characters before the first different one if the beginning of a long work is left out."""


@dataclass(frozen=True)
class Group:
    """Traces that are repeats of each other, by their indices among all traces."""

    name: str
    traces: tuple[int, ...]

    @property
    def runs(self) -> str:
        """Says how many runs it has: 1 run, 2 runs."""
        return "1 run" if len(self.traces) == 1 else f"{len(self.traces)} runs"


@dataclass(frozen=True)
class Grouping:
    """Groups, the base first; `how` they were found; notes on them."""

    groups: list[Group]
    how: str
    notes: list[str] = field(default_factory=list)


def told(identities: Sequence[Identity]) -> Grouping:
    """Groups traces by their identities.

    Traces of several places are grouped by place: the host first, then by number of containers.
    Traces of one place are grouped by name without trailing digits. If all of these names are
    equal, each trace is a group.
    """
    places = _by([one.where for one in identities])
    if len(places) > 1:
        ordered = sorted(places, key=lambda where: (where != "host", len(where), where))
        groups = [Group(place(where), tuple(places[where])) for where in ordered]
        return Grouping(groups, "by place (host or number of containers)")
    names = _by([_NUMBER.sub("", one.id) or one.id for one in identities])
    if len(names) > 1:
        groups = [Group(name, tuple(numbers)) for name, numbers in names.items()]
        return Grouping(groups, "by name without trailing digits")
    single = [Group(one.id, (number,)) for number, one in enumerate(identities)]
    if len({group.name for group in single}) < len(single):
        single = [Group(f"{g.name} ({n})", g.traces) for n, g in enumerate(single, 1)]
    return Grouping(single, "one trace each: their places and names are alike")


def _by(keys: Sequence[str]) -> dict[str, list[int]]:
    found: dict[str, list[int]] = {}
    for number, key in enumerate(keys):
        found.setdefault(key, []).append(number)
    return found


def pairs(
    base: Group, other: Group, identities: Sequence[Identity], by_order: bool = False
) -> list[tuple[int, int]] | None:
    """Returns pairs of traces of two groups that differ only in the group; None: they do not pair.

    Runs of a study pair by factors and repeat, other traces by model, mode and seed. No two traces
    of a group may share these. `by_order`: traces that do not pair so pair by their order.
    """
    found = _alike(base, other, identities)
    if found is None and by_order and len(base.traces) == len(other.traces):
        return list(zip(base.traces, other.traces, strict=True))
    return found


def _alike(
    base: Group, other: Group, identities: Sequence[Identity]
) -> list[tuple[int, int]] | None:
    sides = []
    of_both = [identities[number] for number in (*base.traces, *other.traces)]
    left_out = _varying(base, other, identities)
    if any(one.of_study != of_both[0].of_study for one in of_both):
        return None
    for group in (base, other):
        keys = [_key(identities[number], left_out) for number in group.traces]
        if None in keys or len(set(keys)) < len(keys):
            return None
        sides.append(dict(zip(keys, group.traces, strict=True)))
    matched = [(number, sides[1][key]) for key, number in sides[0].items() if key in sides[1]]
    return matched if len(matched) >= _FEWEST_PAIRS else None


def _varying(base: Group, other: Group, identities: Sequence[Identity]) -> set[str]:
    """Returns the factors that have one value in each group, and not the same in both."""
    found = {"where"}
    for name in FACTORS:
        values = [
            {repr(identities[number].factors.get(name)) for number in group.traces}
            for group in (base, other)
        ]
        if name != "repeat" and all(len(one) == 1 for one in values) and values[0] != values[1]:
            found.add(name)
    return found


def _key(identity: Identity, left_out: set[str]) -> Hashable:
    """Returns a key that two runs of a pair share; None if the repeat is not known."""
    repeat = identity.factors.get("repeat")
    if repeat is None:
        return None
    if not identity.of_study:
        return (identity.factors["model"], identity.factors["mode"], str(repeat))
    return (
        *(repr(identity.factors.get(name)) for name in FACTORS if name not in left_out),
        str(repeat),
    )


def about_pairs(
    base: Group,
    group: Group,
    paired: list[tuple[int, int]] | None,
    identities: Sequence[Identity],
) -> list[str]:
    """Returns sentences on the pairs of two groups, or on work that does not pair."""
    if paired is not None:
        left = len(base.traces) + len(group.traces) - 2 * len(paired)
        said = f"{len(paired)} pairs of runs of {base.name} and {group.name}"
        alone = "1 run without a partner is" if left == 1 else f"{left} runs without a partner are"
        return [f"{said}, {alone} left out" if left else said]
    return [
        f"{one.name} holds several kinds of work that do not pair, so its spread includes the"
        " difference between these"
        for one in (base, group)
        if len({identities[n].work for n in one.traces} - {""}) > 1
    ]


def different_work(groups: Sequence[Group], identities: Sequence[Identity]) -> list[str]:
    """Returns a sentence if the groups do different work, as far as their traces say."""
    works = {
        group.name: {identities[n].work for n in group.traces if identities[n].work}
        for group in groups
    }
    known = {name: work for name, work in works.items() if work}
    if len(known) < 2 or all(one == next(iter(known.values())) for one in known.values()):
        return []
    shared = set.intersection(*known.values())
    shown = _shown(set.union(*known.values()))
    said = "; ".join(f"{name}: {_listed(work, shared, shown)}" for name, work in known.items())
    return [f"the groups do not do the same work, so ratios include that difference ({said})"]


def different_lengths(groups: Sequence[Group], lengths: Sequence[float | None]) -> list[str]:
    """Returns a sentence per group whose recordings are much longer or shorter than the base's.

    `lengths`: the length of each trace (s); None: not known.
    """
    means = {}
    for group in groups:
        known = [length for n in group.traces if (length := lengths[n]) is not None and length > 0]
        if known:
            means[group.name] = sum(known) / len(known)
    base = groups[0].name
    return [
        f"the recordings of {name} last {show_digits(mean / means[base])} times as long as those of"
        f" {base}; faults, pages, energy, and times in calls and stalls are totals of a recording"
        for name, mean in means.items()
        if base in means and not 1 / _MUCH_LONGER <= mean / means[base] <= _MUCH_LONGER
    ]


def _listed(work: set[str], shared: set[str], shown: Mapping[str, str]) -> str:
    """Lists the work of a group; work that not all groups do comes first."""
    ordered = sorted(work, key=lambda one: (one in shared, one))
    more = f" and {len(ordered) - 3} more" if len(ordered) > 3 else ""
    return ", ".join(shown[one] for one in ordered[:3]) + more


def _shown(works: set[str]) -> dict[str, str]:
    """Returns a short text for each work. It has the place where the work departs from others."""
    ordered = sorted(works)
    # No other work has a longer beginning in common than one of the two neighbours.
    alike = [_common(*two) for two in itertools.pairwise(ordered)]
    beside = itertools.pairwise([0, *alike, 0])
    return {one: _cut(one, max(two)) for one, two in zip(ordered, beside, strict=True)}


def _common(one: str, other: str) -> int:
    """Returns the number of characters that two different texts begin with alike."""
    both = zip(one, other, strict=False)
    shorter = min(len(one), len(other))
    return next((at for at, (a, b) in enumerate(both) if a != b), shorter)


def _cut(work: str, departs: int) -> str:
    """Returns at most `_LONGEST` characters of a work, with the character number `departs`."""
    if len(work) <= _LONGEST:
        return work
    if departs >= _LONGEST - len(_MORE):
        start = departs - _BEFORE
        start = work.find(" ", start, departs) + 1 or start
        work = f"... {work[start:]}"
    return work if len(work) <= _LONGEST else f"{work[: _LONGEST - len(_MORE)]}{_MORE}"
