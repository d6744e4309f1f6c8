"""Memory limits that targets share, and the cgroups whose lists hold their pages."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tracer.analysis.memory.page_runs import PageRuns
from tracer.store.trace import Trace

_MOST = 1 << 62
"""More bytes of memory than any machine has."""

# The tightest limit of a target, and the cgroup that has it: its own (null) before one above.
_LIMITS = f"""
SELECT target, "instance", min(value) AS bytes FROM samples
WHERE name = 'cgroup_memory_max' AND target IS NOT NULL AND value BETWEEN 1 AND {_MOST}
GROUP BY target, "instance"
QUALIFY row_number() OVER (PARTITION BY target ORDER BY bytes, "instance" NULLS FIRST) = 1
"""
_CGROUPS = """
SELECT target, pid, cgroup FROM processes
WHERE target IS NOT NULL AND cgroup IS NOT NULL AND pid = tid
"""
_WITH_CGROUP = ("container", "cgroup")
"""Kinds of targets that have cgroups of their own."""


@dataclass(frozen=True)
class Limits:
    """Memory limits of the recording."""

    bytes: dict[str, int]
    """The tightest limit of each target; targets without one are left out."""
    cgroup: dict[str, str]
    """The cgroup that has this limit, unless it is the target's own."""


def recorded_limits(trace: Trace, targets: Sequence[str | None]) -> Limits:
    """Returns the limits of targets, from their samples."""
    found = [row for row in trace.rows(_LIMITS) if row[0] in targets]
    return Limits(
        {name: int(value) for name, _, value in found},
        {name: str(cgroup) for name, cgroup, _ in found if cgroup is not None},
    )


@dataclass(frozen=True)
class Sharing:
    """The limit and the cgroup of each tenant of a recording."""

    targets: list[str | None]
    limit: NDArray[np.int32]
    """Per tenant: the number of its limit."""
    cgroup: NDArray[np.int32]
    """Per tenant: the number of the cgroup that is charged for its pages."""

    @property
    def limits(self) -> int:
        """The number of limits."""
        return int(self.limit.max(initial=-1)) + 1

    @property
    def limit_of_cgroup(self) -> NDArray[np.int32]:
        """The number of each cgroup's limit."""
        found = np.zeros(int(self.cgroup.max(initial=-1)) + 1, np.int32)
        found[self.cgroup] = self.limit
        return found

    def charged(self, runs: PageRuns) -> PageRuns:
        """Returns runs with tenants of one cgroup as one tenant."""
        return runs.as_one(self.cgroup)

    def members(self, number: int) -> list[str]:
        """Returns the targets of a limit; an empty list for that of other processes."""
        return [
            name
            for name, limit in zip(self.targets, self.limit.tolist(), strict=True)
            if limit == number and name is not None
        ]

    @property
    def shared(self) -> list[list[str]]:
        """The targets of each limit that several share."""
        found = [self.members(number) for number in range(self.limits)]
        return [names for names in found if len(names) > 1]


def sharing(
    trace: Trace, targets: Sequence[str | None], limits: Limits, shared: bool | None
) -> Sharing:
    """Returns the limits and cgroups of tenants.

    `shared`: all targets have one limit together (True), or each has its own (False). None: as in
    the recording, in which targets share a limit if the tightest of each is that of the same
    cgroup. Two targets that are no containers or cgroups have one cgroup if their first processes
    have the same. Other processes (None) have a limit of their own in any case.
    """
    lies_in = _cgroups(trace)
    limit: list[Hashable] = []
    cgroup: list[Hashable] = []
    for name in targets:
        own = (name,)
        if name is None or shared is False:
            together: Hashable = own
        else:
            together = True if shared else limits.cgroup.get(name, own)
        limit.append(together)
        # A cgroup has one limit.
        cgroup.append((together, lies_in.get(name or "", own)))
    return Sharing(list(targets), _numbered(limit), _numbered(cgroup))


def _cgroups(trace: Trace) -> dict[str, str]:
    """Returns the cgroup of each target that has none of its own."""
    first = {
        (target["name"], target["pid"])
        for target in trace.manifest["targets"]
        if target["kind"] not in _WITH_CGROUP
    }
    return {name: cgroup for name, pid, cgroup in trace.rows(_CGROUPS) if (name, pid) in first}


def _numbered(keys: Sequence[Hashable]) -> NDArray[np.int32]:
    """Returns a number for each key, in the order of their first appearance."""
    numbers: dict[Hashable, int] = {}
    return np.array([numbers.setdefault(key, len(numbers)) for key in keys], np.int32)
