"""Memory limits that targets share, and the cgroups whose lists hold their pages."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from tracer.analysis.memory.page_runs import PageRuns
from tracer.analysis.memory.reclaim_order import Place, paths_above, recorded_order
from tracer.probes.cgroups import UNIFIED
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
    """The path of the cgroup that has this limit; targets of which it is not known are left out."""


def recorded_limits(trace: Trace, targets: Sequence[str | None]) -> Limits:
    """Returns the limits of targets, from their samples.

    Samples of the own cgroup of a container or a cgroup have no path; the manifest has it.
    """
    found = [row for row in trace.rows(_LIMITS) if row[0] in targets]
    own = memory_cgroups(trace)
    at = {name: own.get(name) if cgroup is None else str(cgroup) for name, cgroup, _ in found}
    return Limits(
        {name: int(value) for name, _, value in found},
        {name: cgroup for name, cgroup in at.items() if cgroup is not None},
    )


def memory_cgroups(trace: Trace) -> dict[str, str]:
    """Returns the path of the memory cgroup of each target that is a container or a cgroup."""
    found = {}
    for target in trace.manifest["targets"]:
        listed = target.get("cgroups", [])
        own = [each for each in listed if "memory" in each["controllers"].split(",")]
        for each in own or [each for each in listed if each["hierarchy"] == UNIFIED]:
            found[target["name"]] = each["path"]
    return found


def targets_around(trace: Trace, targets: Sequence[str]) -> dict[str, str]:
    """Returns the innermost of these targets whose cgroup has that of another one below it."""
    paths = memory_cgroups(trace)
    names = {paths[name]: name for name in targets if name in paths}
    return {names[path]: names[above] for path, above in paths_above(names).items()}


@dataclass(frozen=True)
class Sharing:
    """The limit and the cgroup of each tenant of a recording.

    The cgroups of a limit are numbered in the order in which the kernel reclaims from them.
    """

    targets: list[str | None]
    limit: NDArray[np.int32]
    """Per tenant: the number of its limit."""
    cgroup: NDArray[np.int32]
    """Per tenant: the number of the cgroup that is charged for its pages."""
    limit_of_cgroup: NDArray[np.int32]
    """Per cgroup: the number of its limit. Some cgroups have no tenant, and so no page."""
    without_tenant: dict[int, list[str]]
    """Paths of these cgroups by the number of their limit."""

    @property
    def limits(self) -> int:
        """The number of limits."""
        return int(self.limit.max(initial=-1)) + 1

    def charged(self, runs: PageRuns) -> PageRuns:
        """Returns runs with the cgroups that are charged for them as tenants."""
        return replace(runs, tenant=self.cgroup[runs.tenant])

    def members(self, number: int) -> list[str]:
        """Returns the targets of a limit; an empty list for that of other processes."""
        return self._members.get(number, [])

    @cached_property
    def _members(self) -> dict[int, list[str]]:
        found: dict[int, list[str]] = {}
        for name, limit in zip(self.targets, self.limit.tolist(), strict=True):
            if name is not None:
                found.setdefault(limit, []).append(name)
        return found

    @property
    def shared(self) -> list[list[str]]:
        """The targets of each limit that several share."""
        found = [self.members(number) for number in range(self.limits)]
        return [names for names in found if len(names) > 1]

    @property
    def others(self) -> dict[str, list[str]]:
        """The paths of the cgroups below the limit of a target that have no target, by target.

        Targets without such cgroups are left out.
        """
        return {
            name: paths
            for number, paths in self.without_tenant.items()
            for name in self.members(number)
        }


def sharing(
    trace: Trace, targets: Sequence[str | None], limits: Limits, shared: bool | None
) -> Sharing:
    """Returns the limits and cgroups of tenants.

    `shared`: all targets have one limit together (True), or each has its own (False). None: as in
    the recording, in which targets share a limit if the tightest of each is that of the same
    cgroup. Targets of a limit have one cgroup if the samples have the same number for it. If they
    lack that of a target, two targets that are no containers or cgroups have one cgroup if their
    first processes have the same. Other processes (None) have a limit of their own in any case.
    """
    lies_in, whole = _cgroups(trace), memory_cgroups(trace)
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
    numbers = _numbered(limit)
    order = recorded_order(trace)
    of_tenant = np.zeros(len(targets), np.int32)
    limit_of_cgroup: list[int] = []
    without_tenant: dict[int, list[str]] = {}
    for number in range(int(numbers.max(initial=-1)) + 1):
        members = np.flatnonzero(numbers == number).tolist()
        names = [name for at in members if (name := targets[at]) is not None]
        top = None if shared is False else _one({limits.cgroup.get(name) for name in names})
        places, others = order.places(names, top)
        if top is not None and any(whole.get(name) == top for name in names):
            others = {}  # they belong to the target that has the limit
        # Without numbers, cgroups are those of the processes, in the order of the targets.
        lists: list[Hashable] = [*(places or (cgroup[at] for at in members))]
        turns: dict[Hashable, Place] = dict(others.items())
        for key, place in zip(lists, places or [(at,) for at in members], strict=True):
            turns.setdefault(key, place)
        for key in sorted(turns, key=turns.__getitem__):
            if key in others:
                without_tenant.setdefault(number, []).append(str(key))
            else:
                charged = [at for at, its in zip(members, lists, strict=True) if its == key]
                of_tenant[charged] = len(limit_of_cgroup)
            limit_of_cgroup.append(number)
    of_cgroup = np.array(limit_of_cgroup, np.int32)
    return Sharing(list(targets), numbers, of_tenant, of_cgroup, without_tenant)


def _one(values: set[str | None]) -> str | None:
    return values.pop() if len(values) == 1 else None


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
