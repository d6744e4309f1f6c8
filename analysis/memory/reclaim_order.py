"""The order in which the kernel reclaims from the cgroups below a limit, as samples tell it.

Reclaim walks through the cgroups below the limit in the order in which they were made, each before
those below it (css_next_descendant_pre). The kernel numbers cgroups as it makes them
(`cgroup_number` of the samples).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from tracer.store.trace import Trace

Place = tuple[int, ...]
"""Numbers of a cgroup and those above it, from the highest below the limit on: the order of reclaim
is that of these."""

MOST_OTHERS = 1 << 10
"""Most cgroups without a target that are simulated. A recording has fewer."""

# Numbers in the order in which they were last seen: a process that moves has several, and so has a
# path at which a cgroup is made anew.
_NUMBERS = """
SELECT target, "instance", value AS number, max(ts) AS seen FROM samples
WHERE name = 'cgroup_number' AND target IS NOT NULL AND value BETWEEN 1 AND 1e18 GROUP BY ALL
ORDER BY seen, number
"""


@dataclass(frozen=True)
class ReclaimOrder:
    """The numbers of cgroups by their paths."""

    own: Mapping[str, int]
    """Number of each target's cgroup, the last one; targets are left out if it was not recorded."""
    below: Mapping[str, Sequence[tuple[int, str, int]]]
    """Cgroups below those with a limit, by target: when each was last seen, its path and number."""

    def places(self, names: Sequence[str], top: str | None) -> tuple[list[Place], dict[str, Place]]:
        """Returns the places of these targets, and those of other cgroups below the limit by path.

        `top`: the path of the cgroup with the limit; None: not a recorded one, so targets come by
        their numbers, and other cgroups are not known. A target that is not told to be below the
        limit, such as one in the cgroup with the limit, comes by its number, too. Both are empty if
        the number of a target is not known; the other cgroups are, too, if there are more than
        MOST_OTHERS.
        """
        if not all(name in self.own for name in names):
            return [], {}
        told = sorted(row for name in names for row in self.below.get(name, ()))
        numbers: dict[str, int] = {}
        paths: dict[int, str] = {}
        for _, path, number in told:
            if top is not None and path.startswith(f"{top}/"):
                numbers[path], paths[number] = number, path
        places = _places(numbers)
        inside: list[str] = []
        found: list[Place] = []
        for own in (self.own[name] for name in names):
            above: Place = ()
            if own in paths:
                above = places[paths[own]][:-1]
                inside.append(f"{paths[own]}/")
            found.append((*above, own))
        own_paths = tuple(inside)
        others = {path: at for path, at in places.items() if not f"{path}/".startswith(own_paths)}
        return found, others if len(others) <= MOST_OTHERS else {}


def recorded_order(trace: Trace) -> ReclaimOrder:
    """Returns the numbers that the samples of a trace have."""
    own: dict[str, int] = {}
    below: dict[str, list[tuple[int, str, int]]] = {}
    for target, path, number, seen in trace.rows(_NUMBERS):
        if path is None:
            own[target] = int(number)
        else:
            below.setdefault(target, []).append((seen, str(path), int(number)))
    return ReclaimOrder(own, below)


def paths_above(paths: Iterable[str]) -> dict[str, str]:
    """Returns the longest of the other paths that each path is below; the top ones have none."""
    found: dict[str, str] = {}
    above: list[str] = []
    for path in sorted(paths, key="{}/".format):
        while above and not path.startswith(f"{above[-1]}/"):
            above.pop()
        if above:
            found[path] = above[-1]
        above.append(path)
    return found


def _places(numbers: Mapping[str, int]) -> dict[str, Place]:
    """Returns the places of cgroups from their numbers by path."""
    above = paths_above(numbers)
    found: dict[str, Place] = {}
    for path in sorted(numbers, key=len):
        found[path] = (*(found[above[path]] if path in above else ()), numbers[path])
    return found
