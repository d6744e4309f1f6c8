"""Page cache, dirty and write-back pages, swap and faults of the machine."""

from __future__ import annotations

from pathlib import Path

from tracer.probes.sampler.reading import ROOT, NotAvailable, Rate, Reader, Reading, Series, numbers

_KIB = 1024
USED = Series("memory_used", "bytes", "memory in use: MemTotal less MemAvailable")
CACHED = Series("page_cache", "bytes", "page cache, including shared memory: Cached of meminfo")
BUFFERS = Series("buffers", "bytes", "page cache of block devices: Buffers of meminfo")
SWAP = Series("swap_used", "bytes", "swap space in use")
DIRTY = Series("dirty_pages", "pages", "dirty pages, not yet being written: nr_dirty of vmstat")
WRITEBACK = Series("writeback_pages", "pages", "pages being written: nr_writeback of vmstat")
PGFAULT = Series(
    "pgfault",
    "faults",
    "page faults since boot, minor and major: pgfault of vmstat",
    Rate("pgfault_rate", "faults/s", "page faults per second"),
)
PGMAJFAULT = Series(
    "pgmajfault",
    "faults",
    "major page faults since boot: pgmajfault of vmstat",
    Rate("pgmajfault_rate", "faults/s", "major page faults per second"),
)
PSWPIN = Series(
    "pswpin",
    "pages",
    "pages read from swap since boot",
    Rate("swap_in", "pages/s", "pages read from swap per second"),
)
PSWPOUT = Series(
    "pswpout",
    "pages",
    "pages written to swap since boot",
    Rate("swap_out", "pages/s", "pages written to swap per second"),
)
_MEMINFO = frozenset(
    ("MemTotal", "MemAvailable", "Cached", "Buffers", "SwapTotal", "SwapFree")
)  # fmt: skip
_VMSTAT = {
    "nr_dirty": DIRTY,
    "nr_writeback": WRITEBACK,
    "pgfault": PGFAULT,
    "pgmajfault": PGMAJFAULT,
    "pswpin": PSWPIN,
    "pswpout": PSWPOUT,
}
_SWAP = (SWAP, PSWPIN, PSWPOUT)


class Memory(Reader):
    """A reader of /proc/meminfo and /proc/vmstat (kernel: fs/proc/meminfo.c, mm/vmstat.c)."""

    name = "memory"
    series = (USED, CACHED, BUFFERS, DIRTY, WRITEBACK, PGFAULT, PGMAJFAULT, *_SWAP)

    def __init__(self, root: Path = ROOT) -> None:
        super().__init__(root)
        if not numbers(root / "proc/meminfo", _MEMINFO).get("SwapTotal"):
            self.missing |= {series.name: "the machine has no swap" for series in _SWAP}

    def read(self) -> list[Reading]:
        """Returns the sizes now and the counters since boot."""
        kib = numbers(self.root / "proc/meminfo", _MEMINFO)
        lacking = _MEMINFO - kib.keys()
        if lacking:
            raise NotAvailable(f"meminfo has no {min(lacking)}")
        found: list[Reading] = [
            (USED.name, None, (kib["MemTotal"] - kib["MemAvailable"]) * _KIB),
            (CACHED.name, None, kib["Cached"] * _KIB),
            (BUFFERS.name, None, kib["Buffers"] * _KIB),
            (SWAP.name, None, (kib["SwapTotal"] - kib["SwapFree"]) * _KIB),
        ]
        counts = numbers(self.root / "proc/vmstat", frozenset(_VMSTAT))
        found += [(_VMSTAT[name].name, None, value) for name, value in counts.items()]
        return [reading for reading in found if reading[0] not in self.missing]
