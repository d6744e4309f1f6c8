"""Pressure stall information: the time that tasks waited for CPUs, memory, disks."""

from __future__ import annotations

from pathlib import Path

from tracer.probes.sampler.reading import (
    ROOT,
    NotAvailable,
    Rate,
    Reader,
    Reading,
    Series,
    contents,
)

_WHAT = {"cpu": "a CPU", "memory": "memory", "io": "a disk"}
_WHO = {"some": "at least one task", "full": "all tasks that are not idle"}
_OF_CGROUPS = ("cpu", "full")
"""The machine's file has this line, too, but the kernel leaves it 0 (kernel/sched/psi.c)."""


def _series(resource: str, who: str) -> Series:
    meaning = f"{_WHO[who]} waited for {_WHAT[resource]}"
    meaning += "; of cgroups, not of the machine" if (resource, who) == _OF_CGROUPS else ""
    return Series(
        f"pressure_{resource}_{who}_time",
        "s",
        f"time in which {meaning}",
        Rate(f"pressure_{resource}_{who}", "%", f"share of the time in which {meaning}", 100),
    )


SERIES = {(resource, who): _series(resource, who) for resource in _WHAT for who in _WHO}


def stalls(resource: str, path: Path, of_machine: bool) -> list[Reading]:
    """Returns the content of one pressure file (kernel: Documentation/accounting/psi.rst), totals
    in s.

    `of_machine`: the file is that of the whole machine, as the root cgroup's are.
    """
    found: list[Reading] = []
    for line in contents(path).splitlines():
        who, *words = line.split()
        series = SERIES.get((resource, who))
        total = next((w.removeprefix("total=") for w in words if w.startswith("total=")), "")
        if series is None or (of_machine and (resource, who) == _OF_CGROUPS):
            continue
        if not total.isdecimal():
            raise NotAvailable(f"{path} has the line {line[:60]!r} without a total")
        found.append((series.name, None, int(total) / 1e6))
    return found


class Pressure(Reader):
    """A reader of the machine's /proc/pressure."""

    name = "pressure"
    series = tuple(SERIES.values())

    def __init__(self, root: Path = ROOT) -> None:
        super().__init__(root)
        if not (root / "proc/pressure").is_dir():
            raise NotAvailable(
                "this kernel reports no pressure (it needs CONFIG_PSI, and psi=1 at boot)"
            )
        self.read()

    def read(self) -> list[Reading]:
        """Returns the stall times since boot."""
        folder = self.root / "proc/pressure"
        return [one for resource in _WHAT for one in stalls(resource, folder / resource, True)]
