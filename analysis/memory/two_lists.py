"""Accesses of a page cache at one capacity, with read-ahead: the kernel's two lists, or plain LRU.

The rules of the lists are in reclaim.py, those of read-ahead in read_ahead.py. A read marks each of
its folios as accessed, except the first if the reader's last read ended in it (filemap_read). A
write makes its pages cached without a read and does not mark them. A removal takes out whole
folios, and forgets the evictions of its pages.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from tracer.analysis.memory.cache import (
    ALL,
    HELD,
    PRESENT,
    UNUSED,
    Cache,
    admit,
    new_cache,
    pages_of,
    publish,
    remove,
    touch,
)
from tracer.analysis.memory.page_runs import (
    BEFORE,
    FAULT,
    REMOVE,
    WRITE,
    OwnPages,
    PageRuns,
    limits_of,
)
from tracer.analysis.memory.read_ahead import (
    Opened,
    fault,
    folio_of,
    is_cached,
    is_marker,
    read_missing,
    read_on,
    read_one,
    write_folio,
)
from tracer.analysis.memory.reclaim import make_room, set_capacity
from tracer.probes.compiled import compiled, compiled_lean
from tracer.probes.errors import UsageError

PAGE_BYTES = 4096
"""The size of the pages of most kernels."""
RA_BYTES = 128 << 10
"""Read-ahead of most devices."""
IO_BYTES = 1280 << 10
"""Bytes that most devices read at once."""

FLUSH_NS = 2_000_000_000
"""Time between two updates of the statistics of cgroups (FLUSH_TIME of mm/memcontrol.c)."""
_OWN_TYPES = np.int64, np.int32, np.int64
CLOCKS = 5
"""The number of clocks of these updates that are simulated."""


@dataclass(frozen=True)
class Simulated:
    """The outcome of each run, and totals by tenant."""

    missed: NDArray[np.int32]
    """Per run: pages that the access waited for, because they were not cached from its beginning
    until it came to them. 0 for a write or a removal."""
    read: NDArray[np.int32]
    """Per run: pages read from disk for it, those read ahead included."""
    evicted: NDArray[np.int64]
    """Per tenant: pages evicted."""
    refaulted: NDArray[np.int64]
    """Per tenant: pages read again after an eviction (two lists only)."""
    activated: NDArray[np.int64]
    """Per tenant: pages that became active, by accesses or because they refaulted."""
    unused: NDArray[np.int64]
    """Per tenant: pages read ahead that no access has used, evicted or left at the end."""

    @property
    def read_ahead(self) -> int:
        """Pages read that no access waited for."""
        return int(self.read.sum(dtype=np.int64) - self.missed.sum(dtype=np.int64))


def two_lists(
    runs: PageRuns,
    capacity: ArrayLike,
    ra_pages: int | None = None,
    io_pages: int | None = None,
    large_folios: bool = True,
    limits: ArrayLike | None = None,
    clock: int | None = 0,
    page_bytes: int = PAGE_BYTES,
    own: OwnPages | None = None,
) -> Simulated:
    """Simulates the kernel's active and inactive lists, one pair per tenant.

    `capacity`: pages of each memory limit (int[limit]), or one number for all. `own`: those of them
    that are not page cache, over time; it needs runs with times. None: there are none. `limits`:
    the number of each tenant's limit (int[tenant]); None: each has its own. `ra_pages`: the
    device's read_ahead_kb, 0: none, None: that of most devices. `io_pages`: its max_sectors_kb,
    None: that of most devices. `large_folios`: True
    if the file system has large folios (ext4 since Linux 6.16, XFS): windows end at multiples of
    their folios, not of four pages, and pages that were read together are evicted together.
    `clock`: the time (ns) from the first access to the first update of statistics, which come every
    2 s; None: statistics are always up to date, as they are if the runs have no times.
    `page_bytes`: the size of the kernel's pages. The state takes 16 bytes for each page of the
    files that is accessed. Raises UsageError for numbers below 0.
    """
    devices = ra_pages, io_pages, page_bytes
    return _simulated(runs, capacity, True, *devices, large_folios, limits, clock, own)


def clocks(runs: PageRuns) -> list[int | None]:
    """Returns CLOCKS values of `clock` for `two_lists`, since no recording tells the kernel's.

    The first update comes 0, 0.5, 1 or 1.5 s after the first access; if all accesses take less than
    2 s, after 0 to 3 quarters of their time. The last clock, None: somebody reads `memory.stat` all
    the time, which brings the statistics up to date, too.
    """
    span = int(runs.ts.max()) - int(runs.ts[0]) if len(runs.ts) else 0
    quarter = min(FLUSH_NS, max(0, span)) // 4
    return [*(number * quarter for number in range(CLOCKS - 1)), None]


def lru_with_read_ahead(
    runs: PageRuns,
    capacity: ArrayLike,
    ra_pages: int | None = None,
    io_pages: int | None = None,
    large_folios: bool = True,
    limits: ArrayLike | None = None,
    page_bytes: int = PAGE_BYTES,
) -> Simulated:
    """Simulates plain LRU with the kernel's read-ahead; arguments are those of `two_lists`.
    Tenants of one limit are one tenant."""
    merged = runs.as_one(limits)
    devices = ra_pages, io_pages, page_bytes
    return _simulated(merged, capacity, False, *devices, large_folios, None, None, None)


def _simulated(
    runs: PageRuns,
    capacity: ArrayLike,
    kernel: bool,
    ra_pages: int | None,
    io_pages: int | None,
    page_bytes: int,
    large_folios: bool,
    limits: ArrayLike | None,
    clock: int | None,
    own: OwnPages | None,
) -> Simulated:
    given = np.asarray(capacity, np.int64)
    of_tenants = limits_of(runs, limits)
    count = int(of_tenants.max(initial=-1)) + 1
    if given.shape not in ((), (count,)):
        raise UsageError(
            f"capacities of shape {given.shape} do not fit {count} tenants or limits",
            "give one capacity, or one for each",
        )
    ra_pages = RA_BYTES // page_bytes if ra_pages is None else ra_pages
    io_pages = IO_BYTES // page_bytes if io_pages is None else io_pages
    if min(given.min(initial=0), ra_pages, io_pages) < 0:
        raise UsageError("a number of pages below 0 cannot be", "give 0 or more")
    most = 1 << 20  # of read-ahead, so that no window leads beyond int32
    ra_pages, io_pages = min(ra_pages, most), min(io_pages, most)
    capacities = np.broadcast_to(given, (count,))
    exact = clock is None or not len(runs.ts)
    cache = new_cache(
        *(runs, capacities, kernel, ra_pages, io_pages, large_folios, of_tenants, exact, page_bytes)
    )
    missed = np.zeros(len(runs.first), np.int32)
    read = np.zeros(len(runs.first), np.int32)
    _run(
        *(cache, runs.first, runs.pages, runs.file, runs.reader, runs.tenant, runs.kind),
        *(runs.base, runs.size_pages, runs.ts, clock or 0),
        *(*_checked(own, runs, count), capacities, missed, read),
    )
    _count_unused(cache)
    memory = cache.memory
    return Simulated(
        *(missed, read, memory["evicted"].copy(), memory["refaulted"].copy()),
        *(memory["activated"].copy(), memory["unused"].copy()),
    )


def _checked(own: OwnPages | None, runs: PageRuns, limits: int) -> OwnPages:
    """Returns these pages as a compiled loop can take them; raises UsageError if it cannot."""
    if own is None or not len(own.ts):
        return OwnPages(np.empty(0, np.int64), np.empty(0, np.int32), np.empty(0, np.int64))
    made = OwnPages(*(np.asarray(part, kind) for part, kind in zip(own, _OWN_TYPES, strict=True)))
    if len(runs.first) and not len(runs.ts):
        raise UsageError("own memory over time needs runs with times", "give their ts")
    if not len(made.ts) == len(made.limit) == len(made.pages) or (made.ts[1:] < made.ts[:-1]).any():
        raise UsageError("the times of own memory are not in order", "sort them")
    if made.limit.min() < 0 or made.limit.max() >= limits or made.pages.min() < 0:
        raise UsageError(f"own memory is not that of {limits} limits", "give numbers from 0 on")
    return made


@compiled
def _count_unused(cache: Cache) -> None:
    # Adds the pages read ahead that are left unused at the end.
    page = cache.page
    for p in range(len(page)):
        if page[p].state & UNUSED:
            cache.memory[page[p].owner].unused += 1


@compiled_lean
def _hold(cache: Cache, first: int, end: int) -> None:
    # Marks the cached pages of a run, until they are evicted or the run has come to them.
    for p in range(first, end):
        if cache.page[p].state & PRESENT:
            cache.page[p].state |= HELD


@compiled_lean
def _read(cache: Cache, opened: Opened, index: int, pages: int) -> int:
    # Reads a run by a call; returns the pages waited for (filemap_read).
    page, reader = cache.page, cache.reader
    _hold(cache, opened.base + index, opened.base + index + pages)
    missed = 0
    last = index + pages
    before = reader[opened.reader].last
    ended = before if before == index else before + 1
    for at in range(index, last):
        p = opened.base + at
        if not page[p].state & HELD:
            missed += 1
        if not is_cached(cache, opened, at):
            read_missing(cache, opened, at, last - at, ended)
            if not is_cached(cache, opened, at) and not read_one(cache, opened, at):
                cache.setting[0].read += 1
        if is_marker(cache, opened, at):
            marker = folio_of(cache, opened, at)
            read_on(cache, opened, marker, last - marker)
        if is_cached(cache, opened, at):
            page[p].state &= ALL ^ UNUSED ^ HELD
            folio = folio_of(cache, opened, at)
            if at in (folio, index):
                again = at == index and folio <= before < folio + pages_of(cache, p)
                if not again or not cache.setting[0].kernel:
                    touch(cache, opened.base + folio)
    reader[opened.reader].last = last - 1
    return missed


@compiled_lean
def _fault(cache: Cache, opened: Opened, index: int, pages: int) -> int:
    missed = 0
    for at in range(index, index + pages):
        if not fault(cache, opened, at):
            missed += 1
        if not cache.setting[0].kernel and is_cached(cache, opened, at):
            touch(cache, opened.base + folio_of(cache, opened, at))
    return missed


@compiled_lean
def _write(cache: Cache, opened: Opened, index: int, pages: int) -> None:
    at = index
    while at < index + pages:
        if is_cached(cache, opened, at):
            folio = folio_of(cache, opened, at)
            cache.page[opened.base + at].state &= ALL ^ UNUSED
            if not cache.setting[0].kernel and at in (folio, index):
                touch(cache, opened.base + folio)
            at += 1
        else:
            at += write_folio(cache, opened, at, index + pages - at)


@compiled_lean
def _begin_with(cache: Cache, opened: Opened, index: int, pages: int) -> None:
    for at in range(index, index + pages):
        if not is_cached(cache, opened, at) and make_room(cache, opened.tenant, 1):
            admit(cache, opened.base + at, 0, opened.tenant, False)


@compiled_lean
def _remove(cache: Cache, opened: Opened, index: int, pages: int) -> None:
    for at in range(index, index + pages):
        if is_cached(cache, opened, at):
            remove(cache, opened.base + folio_of(cache, opened, at))
        cache.page[opened.base + at].state = 0


@compiled_lean
def _update(cache: Cache, due: int, now: int) -> int:
    # Brings the statistics up to date if that is due; returns the time of the next update.
    if now < due:
        return due
    for number in range(len(cache.limit)):
        publish(cache, number)
    return due + ((now - due) // FLUSH_NS + 1) * FLUSH_NS


@compiled
def _run(
    cache: Cache,
    firsts: Any,
    pages: Any,
    files: Any,
    readers: Any,
    tenants: Any,
    kinds: Any,
    bases: Any,
    sizes: Any,
    times: Any,
    clock: int,
    own_times: Any,
    own_limits: Any,
    own_pages: Any,
    capacities: Any,
    missed: Any,
    read: Any,
) -> None:
    # The next update: they are a fixed time apart, however long no access comes.
    due = times[0] + clock if len(times) else 0
    changes = 0
    for i in range(len(firsts)):
        while changes < len(own_times) and own_times[changes] <= times[i]:
            due = _update(cache, due, own_times[changes])
            number = own_limits[changes]
            set_capacity(cache, number, max(0, capacities[number] - own_pages[changes]))
            changes += 1
        if len(times):
            due = _update(cache, due, times[i])
        file = files[i]
        opened = Opened(readers[i], tenants[i], bases[file], sizes[file])
        index = firsts[i] - opened.base
        cache.setting[0].read = 0
        if kinds[i] == WRITE:
            _write(cache, opened, index, pages[i])
        elif kinds[i] == REMOVE:
            _remove(cache, opened, index, pages[i])
        elif kinds[i] == BEFORE:
            _begin_with(cache, opened, index, pages[i])
        elif kinds[i] == FAULT:
            missed[i] = _fault(cache, opened, index, pages[i])
        else:
            missed[i] = _read(cache, opened, index, pages[i])
        read[i] = cache.setting[0].read
