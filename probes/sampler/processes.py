"""CPU time, resident memory and page faults of a target's processes, from /proc/PID/stat."""

from __future__ import annotations

import contextlib
import os
import resource
import time
from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from tracer.probes.sampler.cpu import BUSY
from tracer.probes.sampler.reading import ROOT, NotAvailable, Rate, Reading, Series, contents

RSS = Series(
    "rss",
    "bytes",
    "sum of the resident memory of the target's processes; a page that two share counts twice",
)
MINOR = Series(
    "minor_faults",
    "faults",
    "minor page faults of the target's processes, including those that have ended",
    Rate("minor_fault_rate", "faults/s", "minor page faults per second of the target"),
)
MAJOR = Series(
    "major_faults",
    "faults",
    "major page faults of the target's processes, including those that have ended",
    Rate("major_fault_rate", "faults/s", "major page faults per second of the target"),
)
PROCESSES = Series("processes", "processes", "processes of the target")

_OWN = (7, 9, 11, 12)
"""Indices of minflt, majflt, utime, stime in the fields after the name (kernel:
fs/proc/array.c)."""
_CHILDREN = (8, 10, 13, 14)
"""Indices of the same values for children that were waited for."""
_PARENT, _FLAGS, _START, _RSS = 1, 6, 19, 21
_EXITING = 0x4
"""PF_EXITING in include/linux/sched.h; a process that nobody has waited for keeps it."""


@dataclass(frozen=True)
class _Used:
    """The use of a process: minor faults, major faults, ticks; resident pages; its parent."""

    own: list[int]
    children: list[int]
    resident: int
    parent: int
    exiting: bool

    @property
    def together(self) -> list[int]:
        """The use of a process and of the children that it waited for."""
        return [own + waited for own, waited in zip(self.own, self.children, strict=True)]


_Key = tuple[int, int]
"""Pid and start time; the start time is needed because pids are reused."""
Followed = Callable[[Collection[int]], set[int]]
"""Returns those of some processes that the kernel follows for the target."""


def ticks_since_boot() -> int:
    """Returns the time since boot in the unit of a process's start time."""
    return int(time.clock_gettime(time.CLOCK_BOOTTIME) * os.sysconf("SC_CLK_TCK"))


class Processes:
    """The account of one target: the use of its processes, including those that have ended."""

    name = "processes"
    series = (BUSY, RSS, MINOR, MAJOR, PROCESSES)

    def __init__(
        self,
        root: Path = ROOT,
        ticks: Callable[[], int] = ticks_since_boot,
        command: int | None = None,
    ) -> None:
        """`command` is a child of this process. `last` takes its use, once it was waited for."""
        self._proc = root / "proc"
        self._command = command
        self._ticks = ticks
        self._looked: int | None = None
        """Time of the previous look, in ticks since boot; None before the first one."""
        self._seen: dict[_Key, _Used] = {}
        self._outside: dict[_Key, _Used] = {}
        """Processes that have left the target while their parent may be in it."""
        self._before: dict[_Key, list[int]] = {}
        """Use that does not count: of a process before it came, of one outside all of it."""
        self._lost = [0, 0, 0]
        """Use of ended processes that no process of the target was charged with, and of those
        that have left; less the use that does not count and that a parent was charged with."""
        self._total = [0, 0, 0]
        self._above: list[int] = []
        self._looked_at: set[int] = set()
        """Children of those above the target at the previous look."""
        self.tells_children = (self._proc / f"self/task/{os.getpid()}/children").exists()
        """True if the kernel lists the children of a thread (CONFIG_PROC_CHILDREN)."""

    def read(self, pids: Iterable[int]) -> list[Reading]:
        """Returns the values now of the target with processes `pids`; empty if all are gone.

        Processes may come and go: their use counts from the look that finds them to the last one
        before they leave. All of it counts for those of the first look, and for those that are
        younger than the previous one. Empty, too, once the command was waited for.
        """
        looked, self._looked = self._looked, self._ticks()
        now = dict(filter(None, map(self._of, pids)))
        outside: dict[_Key, _Used] = {}
        for key in (self._seen.keys() | self._outside.keys()) - now.keys():
            found = self._of(key[0])
            if found is not None and found[0] == key:
                # A cgroup does not list a process that has ended, even if nobody waited for it.
                stays = found[1].exiting and key in self._seen
                (now if stays else outside)[key] = found[1]
        for key, used in now.items():
            if looked is not None and key not in self._seen and key[1] < looked:
                self._before[key] = used.together
        return self._account(now, outside)

    def read_tree(
        self, pid: int, but: Collection[int] = (), followed: Followed | None = None
    ) -> list[Reading]:
        """Returns the values of a process, its descendants, and descendants of processes seen
        before, without `but` and what descends from them.

        It walks down the tree, which costs less than a look at every process of the machine. An
        orphan whose parent ended before a look is then another process's child: `followed` finds
        it, which returns those of some processes that are of this target, if that is known.
        """
        now: dict[_Key, _Used] = {}
        waiting = []
        if self._looked is None:
            waiting = [pid]
            self._above = [above for above in self._ancestors(pid) if above not in but]
        self._looked = self._ticks()
        if followed is not None:
            waiting += self._orphans(followed)
        for key in self._seen:
            found = self._of(key[0])
            if found is not None and found[0] == key:
                now[key] = found[1]
                waiting += self._children(key[0])
        while waiting:
            below = waiting.pop()
            found = None if below in but else self._of(below)
            if found is not None and found[0] not in now:
                now[found[0]] = found[1]
                waiting += self._children(found[0][0])
        return self._account(now)

    def _of(self, pid: int) -> tuple[_Key, _Used] | None:
        """Returns the use of a process; None if it is gone."""
        path = f"{self._proc}/{pid}/stat"
        try:
            fields = contents(path).rpartition(")")[2].split()
        except NotAvailable:
            return None
        try:
            own, children = ([int(fields[i]) for i in which] for which in (_OWN, _CHILDREN))
            resident, parent = int(fields[_RSS]), int(fields[_PARENT])
            exiting = bool(int(fields[_FLAGS]) & _EXITING)
            used = _Used(_joined(own), _joined(children), resident, parent, exiting)
            return (pid, int(fields[_START])), used
        except (ValueError, IndexError):
            raise NotAvailable(f"{path} cannot be read") from None

    def _children(self, pid: int) -> list[int]:
        found: list[int] = []
        with contextlib.suppress(OSError):  # gone meanwhile
            for tid in os.listdir(f"{self._proc}/{pid}/task"):
                found += self._children_of(pid, tid)
        return found

    def _children_of(self, pid: int, tid: int | str) -> list[int]:
        with contextlib.suppress(NotAvailable, ValueError):  # gone meanwhile
            return [*map(int, contents(f"{self._proc}/{pid}/task/{tid}/children").split())]
        return []

    def _ancestors(self, pid: int) -> Iterator[int]:
        while (found := self._of(pid)) is not None and (pid := found[1].parent):
            yield pid

    def _orphans(self, followed: Followed) -> set[int]:
        """Returns the followed processes among the new children of the target's ancestors.

        An orphan gets one of them as its parent: the init process or a nearer subreaper.
        """
        here = {child for pid in self._above for child in self._children_of(pid, pid)}
        new = here - self._looked_at
        self._looked_at = here
        return followed(new) if new else set()

    def _account(
        self, now: dict[_Key, _Used], outside: dict[_Key, _Used] | None = None
    ) -> list[Reading]:
        outside = outside or {}
        if any(pid == self._command for pid, _ in self._seen.keys() - now.keys()):
            return []  # the rest of its use is what `last` is told
        self._account_for_ended(now, outside)
        self._account_for_outside(now, outside)
        self._seen = now
        if not now:
            return []
        before = [self._before[key] for key in self._before.keys() & now.keys()]
        sums = [
            sum(used.own[i] + used.children[i] for used in now.values())
            - sum(use[i] for use in before)
            + lost
            for i, lost in enumerate(self._lost)
        ]
        resident = sum(used.resident for used in now.values())
        return [
            *self._counters(sums),
            (RSS.name, None, resident * os.sysconf("SC_PAGE_SIZE")),
            (PROCESSES.name, None, len(now)),
        ]

    def _account_for_ended(self, now: dict[_Key, _Used], outside: dict[_Key, _Used]) -> None:
        """Keeps the use of ended processes, unless it was added to a parent in the target."""
        known = self._outside | self._seen
        keys = {pid: (pid, start) for pid, start in known}
        stayed = now.keys() & self._seen.keys()
        gone: dict[_Key | None, list[int]] = {}
        for key, used in known.items():
            if key not in now and key not in outside:
                sums = gone.setdefault(_heir(key, known, stayed, keys), [0, 0, 0])
                before = self._before.pop(key, (0, 0, 0))
                for i, use in enumerate(used.together):
                    sums[i] += use
                    self._lost[i] -= before[i]
        for heir, sums in gone.items():
            given = [0, 0, 0]
            if heir is not None:
                # It may have waited for them after it was read: its next sample tells of them.
                found = self._of(heir[0])
                if (found is None or found[0] != heir) and heir[0] == self._command:
                    continue  # it was waited for just now
                later = found[1] if found is not None and found[0] == heir else now[heir]
                before = self._seen[heir].children
                given = [new - old for new, old in zip(later.children, before, strict=True)]
            for i in range(len(sums)):
                self._lost[i] += max(0, sums[i] - given[i])

    def _account_for_outside(self, now: dict[_Key, _Used], outside: dict[_Key, _Used]) -> None:
        """Keeps the use that those who have left had inside, and notes all of it as not counting.

        A parent in the target that waits for one is charged with it.
        """
        for key in outside.keys() & self._seen.keys():
            before = self._before.get(key, (0, 0, 0))
            for i, use in enumerate(self._seen[key].together):
                self._lost[i] += use - before[i]
        parents = {pid for pid, _ in (*now, *outside)}
        self._outside = {key: used for key, used in outside.items() if used.parent in parents}
        for key, used in outside.items():
            if key in self._outside:
                self._before[key] = used.together
            else:
                self._before.pop(key, None)

    def last(self, usage: resource.struct_rusage) -> list[Reading]:
        """Returns the counters at the end of the command, from the use reported to its parent.

        Orphans that still run are no part of that report, so they are looked at.
        """
        ticks = round((usage.ru_utime + usage.ru_stime) * os.sysconf("SC_CLK_TCK"))
        told = (usage.ru_minflt, usage.ru_majflt, ticks)
        orphans = [
            found[1].together
            for key in self._seen
            if (found := self._of(key[0])) is not None and found[0] == key
        ]
        return self._counters([*map(sum, zip(told, self._lost, *orphans, strict=True))])

    def _counters(self, sums: list[int]) -> list[Reading]:
        self._total = [max(pair) for pair in zip(sums, self._total, strict=True)]
        minor, major, ticks = self._total
        return [
            (BUSY.name, None, ticks / os.sysconf("SC_CLK_TCK")),
            (MINOR.name, None, minor),
            (MAJOR.name, None, major),
        ]


def _joined(fields: list[int]) -> list[int]:
    """Returns minor faults, major faults, and the ticks of user and system mode together."""
    minor, major, user, system = fields
    return [minor, major, user + system]


def _heir(
    key: _Key, known: dict[_Key, _Used], stayed: Collection[_Key], keys: dict[int, _Key]
) -> _Key | None:
    """Returns the nearest of those who stayed above an ended one; None: none of the target."""
    above: _Key | None = key
    for _ in range(len(keys)):
        above = keys.get(known[above].parent) if above is not None else None
        if above is None or above in stayed:
            return above
    return None
