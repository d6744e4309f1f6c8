"""Limits of a target's cgroups and their cost: throttling by a quota, reclaim by a memory limit.

Kernel: Documentation/admin-guide/cgroup-v2.rst, cgroup-v1/memory.rst, scheduler/sched-bwc.rst.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from tracer.probes.sampler.cgroup_order import NUMBER, CgroupOrder
from tracer.probes.sampler.reading import (
    NotAvailable,
    Rate,
    Reading,
    Series,
    contents,
    number,
    numbers,
)

CPU, MEMORY = "cpu", "memory"
CONTROLLERS = (CPU, MEMORY)
"""The controllers whose limits are read."""


def _counter(name: str, unit: str, doc: str, rate: str, more: str = "") -> Series:
    return Series(name, unit, doc + more, Rate(rate, f"{unit}/s", f"{doc}, per second"))


QUOTA = Series("cgroup_cpu_quota", "CPUs", "CPU time that the cgroup may use; no row: no quota")
PERIODS = _counter(
    "cgroup_nr_periods",
    "periods",
    "periods of the CPU quota in which the cgroup was not idle",
    "cgroup_period_rate",
)
THROTTLED_PERIODS = _counter(
    "cgroup_nr_throttled",
    "periods",
    "periods in which the cgroup used up its CPU quota",
    "cgroup_throttle_rate",
)
THROTTLED = Series(
    "cgroup_throttled_time",
    "s",
    "time in which the cgroup had used up its CPU quota and its tasks waited, summed over CPUs",
    Rate(
        "cgroup_throttled",
        "%",
        "CPUs on which tasks waited because the cgroup had used up its CPU quota; 100 is one CPU",
        100,
    ),
)
MEMORY_MAX = Series(
    "cgroup_memory_max", "bytes", "memory that the cgroup may use; no row: no limit"
)
MEMORY_HIGH = Series(
    "cgroup_memory_high",
    "bytes",
    "memory above which the cgroup's tasks reclaim and sleep (memory.high); no row: no limit",
)
HIGH_EVENTS = _counter(
    "cgroup_high_events",
    "events",
    "times that tasks of the cgroup had to reclaim because of cgroup_memory_high",
    "cgroup_high_rate",
)
MAX_EVENTS = _counter(
    "cgroup_max_events",
    "events",
    "times that the cgroup was about to exceed cgroup_memory_max",
    "cgroup_max_rate",
)
OOM_EVENTS = _counter(
    "cgroup_oom_events",
    "events",
    "times that the cgroup was at its memory limit and reclaim could not help",
    "cgroup_oom_rate",
)
OOM_KILLS = _counter(
    "cgroup_oom_kills",
    "processes",
    "processes of the cgroup that the kernel killed for want of memory",
    "cgroup_oom_kill_rate",
    "; version 1: without those of cgroups below",
)
PGSCAN = _counter(
    "cgroup_pgscan", "pages", "pages of the cgroup that reclaim looked at", "cgroup_pgscan_rate"
)
PGSTEAL = _counter(
    "cgroup_pgsteal", "pages", "pages of the cgroup that reclaim took", "cgroup_pgsteal_rate"
)
PGSCAN_DIRECT = _counter(
    "cgroup_pgscan_direct",
    "pages",
    "pages of the cgroup that reclaim looked at while a task waited for it",
    "cgroup_pgscan_direct_rate",
)
PGSTEAL_DIRECT = _counter(
    "cgroup_pgsteal_direct",
    "pages",
    "pages of the cgroup that reclaim took while a task waited for it",
    "cgroup_pgsteal_direct_rate",
)
REFAULT_FILE = _counter(
    "cgroup_refault_file",
    "pages",
    "pages of files that the cgroup read again after reclaim had taken them",
    "cgroup_refault_file_rate",
)
REFAULT_ANON = _counter(
    "cgroup_refault_anon",
    "pages",
    "pages that the cgroup read back from swap after reclaim had taken them",
    "cgroup_refault_anon_rate",
)

_UNLIMITED = 1 << 62
"""Least limit of version 1 that means none: the kernel shows the most pages that it can count."""

_Values = dict[Series, float]
_Names = Mapping[str, tuple[Series, float]]
"""Series by the name of their line in a file, and the line's unit in the unit of the series."""

_CPU_STAT: _Names = {
    "nr_periods": (PERIODS, 1),
    "nr_throttled": (THROTTLED_PERIODS, 1),
    "throttled_usec": (THROTTLED, 1e-6),  # version 2
    "throttled_time": (THROTTLED, 1e-9),  # version 1
}
_MEMORY_EVENTS: _Names = {
    "high": (HIGH_EVENTS, 1),
    "max": (MAX_EVENTS, 1),
    "oom": (OOM_EVENTS, 1),
    "oom_kill": (OOM_KILLS, 1),
}
_OOM_CONTROL: _Names = {"oom_kill": (OOM_KILLS, 1)}
_STAT_1: _Names = {
    "total_workingset_refault_file": (REFAULT_FILE, 1),
    "total_workingset_refault_anon": (REFAULT_ANON, 1),
}
_STAT_2: _Names = {
    "pgscan": (PGSCAN, 1),
    "pgsteal": (PGSTEAL, 1),
    "pgscan_direct": (PGSCAN_DIRECT, 1),
    "pgsteal_direct": (PGSTEAL_DIRECT, 1),
    "workingset_refault": (REFAULT_FILE, 1),  # kernel 5.8 and older, which count files alone
    "workingset_refault_file": (REFAULT_FILE, 1),
    "workingset_refault_anon": (REFAULT_ANON, 1),
}


def _lines(path: Path, names: _Names) -> _Values:
    found = numbers(path, frozenset(names))
    return {names[name][0]: value * names[name][1] for name, value in found.items()}


def _quota_1(folder: Path) -> _Values:
    quota, period = number(folder / "cpu.cfs_quota_us"), number(folder / "cpu.cfs_period_us")
    return {QUOTA: quota / period} if quota > 0 and period > 0 else {}


def _quota_2(folder: Path) -> _Values:
    words = contents(folder / "cpu.max", 64).split()
    if words[:1] == ["max"]:
        return {}
    if len(words) != 2 or not all(w.isascii() and w.isdigit() for w in words) or not int(words[1]):
        raise NotAvailable(f"{folder}/cpu.max has {' '.join(words)[:40]!r} in place of a quota")
    return {QUOTA: int(words[0]) / int(words[1])}


def _throttling(folder: Path) -> _Values:
    return _lines(folder / "cpu.stat", _CPU_STAT)


def _memory_1(folder: Path) -> _Values:
    limit = number(folder / "memory.limit_in_bytes")
    return {MEMORY_MAX: limit} if limit < _UNLIMITED else {}


def _memory_2(folder: Path) -> _Values:
    files = {MEMORY_MAX: folder / "memory.max", MEMORY_HIGH: folder / "memory.high"}
    return {s: number(f) for s, f in files.items() if contents(f, 64).strip() != "max"}


def _events_1(folder: Path) -> _Values:
    # Not memory.failcnt: on some kernels (6.18) it stays 0, however often the limit is reached.
    return _lines(folder / "memory.oom_control", _OOM_CONTROL)


def _events_2(folder: Path) -> _Values:
    return _lines(folder / "memory.events", _MEMORY_EVENTS)


def _reclaim_1(folder: Path) -> _Values:
    return _lines(folder / "memory.stat", _STAT_1)


def _reclaim_2(folder: Path) -> _Values:
    return _lines(folder / "memory.stat", _STAT_2)


@dataclass(frozen=True)
class _Part:
    """Series that are read together, from a cgroup of version 1 or 2."""

    series: tuple[Series, ...]
    read: Mapping[int, Callable[[Path], _Values]]
    lacking: str
    """The reason for a series without a value."""
    above: bool = True
    """False: not read of the cgroups above the target's own."""


_PARTS: dict[str, tuple[_Part, ...]] = {
    CPU: (
        _Part((QUOTA,), {1: _quota_1, 2: _quota_2}, "no quota is set"),
        _Part(
            (PERIODS, THROTTLED_PERIODS, THROTTLED),
            {1: _throttling, 2: _throttling},
            "cpu.stat of version {} does not count it",
        ),
    ),
    MEMORY: (
        _Part((MEMORY_MAX, MEMORY_HIGH), {1: _memory_1, 2: _memory_2}, "no such limit is set"),
        _Part(
            (HIGH_EVENTS, MAX_EVENTS, OOM_EVENTS, OOM_KILLS),
            {1: _events_1, 2: _events_2},
            "cgroups of version {} do not count it",
        ),
        _Part(
            (PGSCAN, PGSTEAL, PGSCAN_DIRECT, PGSTEAL_DIRECT, REFAULT_FILE, REFAULT_ANON),
            {1: _reclaim_1, 2: _reclaim_2},
            "memory.stat of version {} does not count it",
            above=False,
        ),
    ),
}
"""The parts of each controller; the limits themselves come first."""


@dataclass(frozen=True)
class Place:
    """A cgroup of a target, or one above it, in the hierarchy of a controller."""

    controller: str
    folder: Path
    instance: str | None = None
    above: bool = False
    """True for a cgroup above the target's own: it is read while it has a limit."""

    @property
    def version(self) -> int:
        """The version of the hierarchy: 1 or 2."""
        return 2 if self._has("cgroup.controllers") else 1

    @property
    def exists(self) -> bool:
        """False once the cgroup is removed."""
        return self._has("")

    @property
    def is_root(self) -> bool:
        """True for the root of the machine's cgroups, which nothing limits."""
        if self.version == 2:
            return not self._has("cgroup.events")
        return self._has("release_agent")

    def _has(self, file: str) -> bool:
        return os.path.exists(self.folder / file)  # noqa: PTH110 unlike Path's, it raises nothing


class Limits:
    """A reader of the limits of one target."""

    name = "limits"
    series = (
        *(series for parts in _PARTS.values() for part in parts for series in part.series),
        NUMBER,
    )

    def __init__(self) -> None:
        self._order = CgroupOrder()
        self._places: list[tuple[Place, int]] = []
        self._why: dict[str, str] = {}
        """Reason by controller."""
        self._lacking: dict[str, dict[str, str]] = {}
        """Reason by series, for each controller."""
        self._given: set[str] = set()

    def at(self, places: Iterable[Place], why: Mapping[str, str]) -> None:
        """Reads these cgroups from now on. `why`: the reasons for controllers without a cgroup."""
        self._why, self._lacking, self._places = dict(why), {}, []
        for place in places:
            if place.is_root:
                self._why[place.controller] = f"{place.folder} is the root cgroup, without limits"
            else:
                self._places.append((place, place.version))

    @property
    def missing(self) -> dict[str, str]:
        """Series that the target's own cgroup has never given, and controllers without one."""
        found = {
            f"{controller} limits": why
            for controller, why in self._why.items()
            if not any(s.name in self._given for part in _PARTS[controller] for s in part.series)
        }
        for lacking in self._lacking.values():
            by_reason: dict[str, list[str]] = {}
            for name, why in lacking.items():
                if name not in self._given:
                    by_reason.setdefault(why, []).append(name)
            found |= {", ".join(names): why for why, names in by_reason.items()}
        return found | self._order.missing

    def read(self) -> list[Reading]:
        """Returns the limits now, and the counters since the cgroups were made."""
        found: list[Reading] = []
        for place, version in self._places:
            values: _Values = {}
            for part in _PARTS[place.controller]:
                if not place.above or part.above:
                    values |= self._read(place, version, part)
                if place.above and not values:
                    break  # it has no limit
            found += [(series.name, place.instance, value) for series, value in values.items()]
            if place.controller == MEMORY and not place.above:
                found += self._order.own(place.folder)
            elif MEMORY_MAX in values:
                found += self._order.below(place.folder, place.instance)
        return found

    def _read(self, place: Place, version: int, part: _Part) -> _Values:
        values: _Values = {}
        why = part.lacking.format(version)
        try:
            values = part.read[version](place.folder)
        except NotAvailable as error:
            why = error.why
        if place.above:
            return values
        self._given.update(series.name for series in values)
        lacking = [s for s in part.series if s not in values]
        if lacking and version == 2 and not _is_on(place):
            why = f"the controller {place.controller} is off in {place.folder}"
        known = self._lacking.setdefault(place.controller, {})
        is_gone = not place.exists
        for series in lacking:
            if not is_gone or series.name not in known:
                known[series.name] = why
        return values


def _is_on(place: Place) -> bool:
    """Returns whether a cgroup of version 2 has its controller, as far as that can be read."""
    try:
        return place.controller in contents(place.folder / "cgroup.controllers").split()
    except NotAvailable:
        return True
