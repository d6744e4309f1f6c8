"""Memory, CPU time and pressure of a cgroup, of version 1 or 2."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path

from tracer.probes.sampler import limits, pressure
from tracer.probes.sampler.reading import NotAvailable, Rate, Reading, Series, number, numbers

CPU = Series(
    "cgroup_cpu_time",
    "s",
    "CPU time used in the cgroup",
    Rate("cgroup_cpu_use", "%", "CPU use in the cgroup; 100 is one CPU", 100),
)
MEMORY = Series("cgroup_memory", "bytes", "memory charged to the cgroup, including page cache")
CACHE = Series(
    "cgroup_page_cache", "bytes", "page cache charged to the cgroup, including shared memory"
)
SHMEM = Series(
    "cgroup_shmem", "bytes", "shared memory (and tmpfs) of the cgroup, a part of its page cache"
)
ANON = Series("cgroup_anon", "bytes", "anonymous memory charged to the cgroup")
DIRTY = Series("cgroup_dirty", "bytes", "dirty page cache of the cgroup, not yet being written")
WRITEBACK = Series("cgroup_writeback", "bytes", "page cache of the cgroup being written")
SWAP = Series("cgroup_swap", "bytes", "swap space charged to the cgroup")
PGFAULT = Series(
    "cgroup_pgfault",
    "faults",
    "page faults in the cgroup, minor and major",
    Rate("cgroup_pgfault_rate", "faults/s", "page faults per second in the cgroup"),
)
PGMAJFAULT = Series(
    "cgroup_pgmajfault",
    "faults",
    "major page faults in the cgroup",
    Rate("cgroup_pgmajfault_rate", "faults/s", "major page faults per second in the cgroup"),
)

_STAT_1 = {
    "total_cache": CACHE,
    "total_shmem": SHMEM,
    "total_rss": ANON,
    "total_dirty": DIRTY,
    "total_writeback": WRITEBACK,
    "total_swap": SWAP,
    "total_pgfault": PGFAULT,
    "total_pgmajfault": PGMAJFAULT,
}
"""Series of the names in memory.stat of version 1 (kernel: mm/memcontrol-v1.c)."""
_STAT_2 = {
    "file": CACHE,
    "shmem": SHMEM,
    "anon": ANON,
    "file_dirty": DIRTY,
    "file_writeback": WRITEBACK,
    "pgfault": PGFAULT,
    "pgmajfault": PGMAJFAULT,
}
"""Series of the names in memory.stat of version 2 (kernel: mm/memcontrol.c)."""
_USAGE = frozenset(("usage_usec",))


class CgroupReader:
    """A reader of one cgroup, in each hierarchy that has it. Values without a file are absent."""

    name = "cgroup"
    series = (CPU, MEMORY, CACHE, SHMEM, ANON, DIRTY, WRITEBACK, SWAP, PGFAULT, PGMAJFAULT)

    def __init__(self, folders: Iterable[Path]) -> None:
        self._folders = tuple(folders)
        self._sources: dict[tuple[str, str | None], tuple[int, Path]] = {}
        """The reader and the folder of each series. Cgroups of both versions tell of CPU time."""

    def read(self) -> list[Reading]:
        """Returns its values now; an empty list once the cgroup is gone."""
        found: list[Reading] = []
        for number_of_read, read in enumerate(_READS):
            for folder in self._folders:
                source = number_of_read, folder
                try:
                    found += [
                        one
                        for one in read(folder)
                        if self._sources.setdefault(one[:2], source) == source
                    ]
                except NotAvailable:
                    continue  # a file of the other version, or of a disabled controller
        return found


def _memory_1(folder: Path) -> list[Reading]:
    used = number(folder / "memory.usage_in_bytes")
    return [(MEMORY.name, None, used), *_stat(folder, _STAT_1)]


def _memory_2(folder: Path) -> list[Reading]:
    used = number(folder / "memory.current")
    return [(MEMORY.name, None, used), *_stat(folder, _STAT_2)]


def _swap_2(folder: Path) -> list[Reading]:
    return [(SWAP.name, None, number(folder / "memory.swap.current"))]


def _stat(folder: Path, names: dict[str, Series]) -> list[Reading]:
    counts = numbers(folder / "memory.stat", frozenset(names))
    return [(names[name].name, None, value) for name, value in counts.items()]


def _cpu_1(folder: Path) -> list[Reading]:
    return [(CPU.name, None, number(folder / "cpuacct.usage") / 1e9)]


def _cpu_2(folder: Path) -> list[Reading]:
    usage = numbers(folder / "cpu.stat", _USAGE)
    return [(CPU.name, None, value / 1e6) for value in usage.values()]


def _pressure(resource: str, folder: Path) -> list[Reading]:
    is_root = limits.Place(limits.CPU, folder).is_root
    return pressure.stalls(resource, folder / f"{resource}.pressure", is_root)


_READS: tuple[Callable[[Path], list[Reading]], ...] = (
    _memory_1,
    _memory_2,
    _swap_2,
    _cpu_1,
    _cpu_2,
    *(partial(_pressure, resource) for resource in ("cpu", "memory", "io")),
)
