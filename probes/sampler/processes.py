"""CPU time, resident memory and page faults of a target's processes, from /proc/PID/stat."""

from __future__ import annotations

import os
import resource
from collections.abc import Iterable
from pathlib import Path

from probes.sampler.cpu import BUSY
from probes.sampler.reading import ROOT, NotAvailable, Rate, Reading, Series, contents

RSS = Series(
    "rss",
    "bytes",
    "resident memory of the target's processes, summed up: a page that two share counts twice",
)
MINOR = Series(
    "minor_faults",
    "faults",
    "minor page faults of the target's processes and those of theirs that have ended",
    Rate("minor_fault_rate", "faults/s", "minor page faults of the target a second"),
)
MAJOR = Series(
    "major_faults",
    "faults",
    "major page faults, likewise",
    Rate("major_fault_rate", "faults/s", "major page faults of the target a second"),
)
PROCESSES = Series("processes", "processes", "processes of the target")

_OWN = (7, 9, 11, 12)
"""minflt, majflt, utime, stime of the fields after the name (kernel: fs/proc/array.c)."""
_CHILDREN = (8, 10, 13, 14)
"""The same of children that were waited for."""
_START, _RSS = 19, 21


class Processes:
    """The account of one target: what its processes have used, and what ended ones had."""

    name = "processes"
    series = (BUSY, RSS, MINOR, MAJOR, PROCESSES)

    def __init__(self, root: Path = ROOT) -> None:
        self._proc = root / "proc"
        self._seen: dict[tuple[int, int], tuple[list[int], list[int]]] = {}
        self._lost = [0, 0, 0]
        """Of processes that ended and whose parent, being none of ours, was given it."""
        self._total = [0, 0, 0]

    def read(self, pids: Iterable[int]) -> list[Reading]:
        """The target's values now, `pids` being its processes; nothing where all are gone."""
        now: dict[tuple[int, int], tuple[list[int], list[int]]] = {}
        resident = 0
        for pid in pids:
            try:
                fields = contents(self._proc / str(pid) / "stat").rpartition(")")[2].split()
                own, children = ([int(fields[i]) for i in which] for which in (_OWN, _CHILDREN))
                key = pid, int(fields[_START])
                resident += int(fields[_RSS])
            except NotAvailable:
                continue  # gone meanwhile
            except (ValueError, IndexError):
                raise NotAvailable(f"{self._proc / str(pid) / 'stat'} cannot be read") from None
            now[key] = _joined(own), _joined(children)
        if not now:
            return []
        self._account_for_ended(now)
        self._seen = now
        sums = [sum(o[i] + c[i] for o, c in now.values()) + self._lost[i] for i in range(3)]
        return [
            *self._counters(sums),
            (RSS.name, None, resident * os.sysconf("SC_PAGE_SIZE")),
            (PROCESSES.name, None, len(now)),
        ]

    def _account_for_ended(self, now: dict[tuple[int, int], tuple[list[int], list[int]]]) -> None:
        """Keep what ended processes had used, unless a parent among ours has been given it."""
        for i in range(3):
            gone = sum(o[i] + c[i] for key, (o, c) in self._seen.items() if key not in now)
            given = sum(
                now[key][1][i] - children[i]
                for key, (_, children) in self._seen.items()
                if key in now
            )
            self._lost[i] += max(0, gone - given)

    def last(self, usage: resource.struct_rusage) -> list[Reading]:
        """The counters at the end of a command, by what its parent was told at its end."""
        ticks = round((usage.ru_utime + usage.ru_stime) * os.sysconf("SC_CLK_TCK"))
        told = (usage.ru_minflt, usage.ru_majflt, ticks)
        return self._counters([t + lost for t, lost in zip(told, self._lost, strict=True)])

    def _counters(self, sums: list[int]) -> list[Reading]:
        self._total = [max(pair) for pair in zip(sums, self._total, strict=True)]
        minor, major, ticks = self._total
        return [
            (BUSY.name, None, ticks / os.sysconf("SC_CLK_TCK")),
            (MINOR.name, None, minor),
            (MAJOR.name, None, major),
        ]


def _joined(fields: list[int]) -> list[int]:
    """Minor faults, major faults, ticks in either mode."""
    minor, major, user, system = fields
    return [minor, major, user + system]
