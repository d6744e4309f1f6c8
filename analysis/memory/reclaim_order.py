"""The order in which the kernel reclaims from the cgroups below a limit, as samples tell it.

Reclaim walks through the cgroups below the limit in the order in which they were made, each before
those below it (css_next_descendant_pre). The kernel numbers cgroups as it makes them
(`cgroup_number` of the samples).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from tracer.store.trace import Trace

Place = tuple[int, ...]
"""Numbers of a cgroup and those above it, from the highest below the limit on: the order of reclaim
is that of these."""

MOST_OTHERS = 1 << 10
"""Most cgroups without a target that are simulated. A recording has fewer."""

# A cgroup that is made anew, and a process that moves, have several numbers: the last one counts.
_NUMBERS = """
SELECT target, "instance", max_by(value, ts) AS number FROM samples
WHERE name = 'cgroup_number' AND target IS NOT NULL AND value BETWEEN 1 AND 1e18 GROUP BY ALL
"""


@dataclass(frozen=True)
class ReclaimOrder:
    """The numbers of cgroups by their paths."""

    own: Mapping[str, int]
    """Number of each target's cgroup; targets are left out if it was not recorded."""
    below: Mapping[str, Mapping[str, int]]
    """Numbers of the cgroups below those with a limit, by target."""

    def places(self, names: Sequence[str], top: str | None) -> tuple[list[Place], dict[str, Place]]:
        """Returns the places of these targets, and those of other cgroups below the limit by path.

        `top`: the path of the cgroup with the limit; None: not a recorded one, so targets come by
        their numbers, and other cgroups are not known. Both are empty if the number of a target is
        not known; the other cgroups are, too, if there are more than MOST_OTHERS.
        """
        if not all(name in self.own for name in names):
            return [], {}
        numbers = {
            path: number
            for name in names
            for path, number in self.below.get(name, {}).items()
            if top is not None and path.startswith(f"{top}/")
        }
        paths = {number: path for path, number in numbers.items()}
        own = [paths.get(self.own[name]) for name in names]
        if None in own:
            return [(self.own[name],) for name in names], {}
        places = {path: _place(path, numbers) for path in numbers}
        inside = tuple(f"{path}/" for path in own)
        others = {path: at for path, at in places.items() if not f"{path}/".startswith(inside)}
        if len(others) > MOST_OTHERS:
            others = {}
        return [places[path] for path in own if path is not None], others


def recorded_order(trace: Trace) -> ReclaimOrder:
    """Returns the numbers that the samples of a trace have."""
    own: dict[str, int] = {}
    below: dict[str, dict[str, int]] = {}
    for target, path, number in trace.rows(_NUMBERS):
        if path is None:
            own[target] = int(number)
        else:
            below.setdefault(target, {})[str(path)] = int(number)
    return ReclaimOrder(own, below)


def _place(path: str, numbers: Mapping[str, int]) -> Place:
    ends = [at for at, letter in enumerate(path) if letter == "/"]
    above = [path[:end] for end in ends]
    return tuple(numbers[each] for each in [*above, path] if each in numbers)
