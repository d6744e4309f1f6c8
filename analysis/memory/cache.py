"""The state of a simulated page cache: pages, lists, tenants, limits, readers.

All state is in arrays of records that a compiled loop changes. Pages that were read together may be
one folio: an aligned group of 1, 2, 4 ... pages that is in a list, active and evicted as a whole. A
folio is known by its first page. It is in one list of its owner, the tenant that read it first and
is charged for it until it is evicted (mm/memcontrol.c). A tenant is a memory cgroup with lists of
its own. Several of them may be below one cgroup that has the limit, as the containers of a pod are.
Numba's cache of compiled code contains these types, but does not notice when they change: after a
change here, also change every file that uses them.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from tracer.analysis.memory.page_runs import PageRuns
from tracer.probes.compiled import compiled_lean

Records = NDArray[np.void]

PAGE = np.dtype(
    (
        np.record,
        [
            ("newer", np.int32),
            ("older", np.int32),
            ("left", np.uint32),
            ("state", np.uint16),
            ("owner", np.uint16),
        ],
    )
)
"""A page. newer, older: for the first page of a folio, its neighbours in its list (NONE at the
ends). left: the order of the folio (it has 1 << order pages); if the page was evicted (SHADOW), the
age of its owner's limit then."""

NONE = -1

PRESENT = 1
"""The page is cached."""
UNUSED = 2
"""The page was read from disk and not accessed since."""
MAPPED = 4
"""A fault has mapped the page."""
SHADOW = 8
"""The page was evicted: `left` is valid."""
HELD = 16
"""The page has been cached since the beginning of the access that is being simulated."""
ACTIVE = 32
"""The folio is in the active list; otherwise it is in the inactive list. This and the following are
flags of a folio's first page."""
REFERENCED = 64
"""The folio was accessed once (PG_referenced)."""
WORKINGSET = 128
"""The folio was active before (PG_workingset). Each page keeps it when it is evicted, as a shadow
entry does."""
MARKER = 256
"""An access of the folio starts the next read-ahead (PG_readahead)."""
YOUNG = 512
"""The folio was accessed through a mapping since the last look (accessed bits of page tables)."""
ALL = 0xFFFF
"""Every flag."""

MEMORY = np.dtype(
    (
        np.record,
        [
            *((name, np.int64) for name in ("inactive", "active")),
            *((name, np.int64) for name in ("evicted", "refaulted", "activated", "unused")),
            *((name, np.int32) for name in ("newest_inactive", "oldest_inactive")),
            *((name, np.int32) for name in ("newest_active", "oldest_active")),
            *((name, np.int32) for name in ("limit", "following")),
        ],
    )
)
"""The memory of a tenant. inactive, active: pages in the lists. evicted to unused: totals. limit:
the number of its limit; following: the next tenant with the same limit (NONE after the last)."""

LIMIT = np.dtype(
    (
        np.record,
        [
            *((name, np.int64) for name in ("capacity", "cached", "age", "refaults")),
            *((name, np.int64) for name in ("refaults_seen",)),
            *((name, np.int64) for name in ("known_inactive", "known_active", "known_refaults")),
            *((name, np.int32) for name in ("first", "turn")),
        ],
    )
)
"""A memory limit, and the state of all its tenants together. capacity, cached: pages. age:
evictions and activations (nonresident_age of mm/workingset.c). refaults: pages activated when they
were read again (WORKINGSET_ACTIVATE_FILE); refaults_seen: their known number at the end of the last
reclaim. known_*: the statistics of the cgroup, which `publish` brings up to date. first: its first
tenant; turn: the tenant at which the next reclaim begins (NONE: at the first)."""

READER = np.dtype(
    (
        np.record,
        [
            *((name, np.int32) for name in ("start", "length", "ahead", "last", "order")),
            *((name, np.int32) for name in ("misses", "random")),
        ],
    )
)
"""The read-ahead state of an open file (struct file_ra_state). start, length: the last window;
ahead: its pages from the marker on; last: the page of the last byte read, as an index in the
file; misses: mmap_miss."""

NEVER = -9
"""`last` of a reader that has read nothing: far from every page."""

SETTING = np.dtype(
    (
        np.record,
        [
            (name, np.int64)
            for name in (
                *("kernel", "ra_pages", "io_pages", "large_folios", "read", "exact"),
                *("gib_pages", "chunk", "fault_around", "max_order"),
            )
        ],
    )
)
"""One row. kernel: 1 for two lists, 0 for plain LRU. ra_pages, io_pages: of the device's bdi.
large_folios: 1 if the file system has them. read: pages read for the access that is being
simulated. exact: 1 if statistics are always up to date. gib_pages: pages of 1 GiB. chunk: pages of
a forced read at a time. fault_around: pages that a fault maps at once. max_order: order of the
largest folio."""

GIB = 1 << 30
CHUNK_BYTES = 2 << 20
"""Bytes of a forced read at a time (force_page_cache_ra)."""
FAULT_AROUND_BYTES = 64 << 10
"""Bytes that a fault maps at once, but one page at least (fault_around_pages)."""
MAX_ORDER = 11
"""Order of the largest folio that the tree of a file can hold (MAX_XAS_ORDER)."""
PMD_BITS = 3
"""Bits of a page's size beyond the order of a huge page (PMD_ORDER of x86 and arm64): a table of
one page has an entry of 8 bytes for each page of it."""


class Cache(NamedTuple):
    """A page cache; LRU keeps all pages in the inactive lists."""

    page: Any
    memory: Any
    limit: Any
    reader: Any
    setting: Any


def new_cache(
    runs: PageRuns,
    capacity: NDArray[np.int64],
    kernel: bool,
    ra_pages: int,
    io_pages: int,
    large_folios: bool,
    limits: NDArray[np.int32],
    exact: bool,
    page_bytes: int,
) -> Cache:
    """Returns an empty cache for `runs`; `capacity` (int64[limit]) is in pages, `limits`
    (int32[tenant]) has the number of each tenant's limit. `exact`: statistics are always up to
    date. `page_bytes`: the size of the kernel's pages."""
    memory = np.zeros(len(limits), MEMORY)
    memory["limit"] = limits
    limit = np.zeros(len(capacity), LIMIT)
    limit["capacity"] = capacity
    limit["first"] = limit["turn"] = NONE
    for tenant in range(len(limits) - 1, -1, -1):
        memory[tenant]["following"] = limit[limits[tenant]]["first"]
        limit[limits[tenant]]["first"] = tenant
    for end in ("newest_inactive", "oldest_inactive", "newest_active", "oldest_active"):
        memory[end] = NONE
    reader = np.zeros(runs.readers, READER)
    reader["last"] = NEVER
    if len(runs.random):
        reader["random"] = runs.random
    setting = np.zeros(1, SETTING)
    in_pages = [max(1, size // page_bytes) for size in (GIB, CHUNK_BYTES, FAULT_AROUND_BYTES)]
    max_order = min(MAX_ORDER, max(0, page_bytes.bit_length() - 1 - PMD_BITS))
    setting[0] = (
        *(int(kernel), ra_pages, io_pages, int(large_folios), 0, int(exact)),
        *(*in_pages, max_order),
    )
    page = np.zeros(runs.all_pages, PAGE)
    return Cache(*(a.view(np.recarray) for a in (page, memory, limit, reader, setting)))


@compiled_lean
def pages_of(cache: Cache, p: int) -> Any:
    """Returns the pages of the folio of a cached page."""
    return 1 << np.int64(cache.page[p].left)


@compiled_lean
def publish(cache: Cache, number: int) -> None:
    """Brings the statistics of a limit's cgroup, which are those of all its tenants, up to date."""
    memory, limit = cache.memory, cache.limit
    inactive = active = np.int64(0)
    tenant = limit[number].first
    while tenant != NONE:
        inactive += memory[tenant].inactive
        active += memory[tenant].active
        tenant = memory[tenant].following
    limit[number].known_inactive = inactive
    limit[number].known_active = active
    limit[number].known_refaults = limit[number].refaults


@compiled_lean
def put_newest(cache: Cache, p: int) -> None:
    """Puts a folio that is in no list at the new end of its owner's list."""
    page = cache.page
    memory = cache.memory
    tenant = page[p].owner
    pages = pages_of(cache, p)
    if page[p].state & ACTIVE:
        newest = memory[tenant].newest_active
        memory[tenant].newest_active = p
        memory[tenant].active += pages
        if newest == NONE:
            memory[tenant].oldest_active = p
    else:
        newest = memory[tenant].newest_inactive
        memory[tenant].newest_inactive = p
        memory[tenant].inactive += pages
        if newest == NONE:
            memory[tenant].oldest_inactive = p
    page[p].newer = NONE
    page[p].older = newest
    if newest != NONE:
        page[newest].newer = p


@compiled_lean
def take(cache: Cache, p: int) -> None:
    """Takes a folio out of its list."""
    page = cache.page
    memory = cache.memory
    tenant = page[p].owner
    pages = pages_of(cache, p)
    newer, older = page[p].newer, page[p].older
    if newer != NONE:
        page[newer].older = older
    if older != NONE:
        page[older].newer = newer
    if page[p].state & ACTIVE:
        memory[tenant].active -= pages
        if newer == NONE:
            memory[tenant].newest_active = older
        if older == NONE:
            memory[tenant].oldest_active = newer
    else:
        memory[tenant].inactive -= pages
        if newer == NONE:
            memory[tenant].newest_inactive = older
        if older == NONE:
            memory[tenant].oldest_inactive = newer


@compiled_lean
def evict(cache: Cache, p: int) -> Any:
    """Evicts a folio and leaves shadow entries (workingset_eviction). Returns its pages."""
    take(cache, p)
    page = cache.page
    memory, limit = cache.memory, cache.limit
    tenant = page[p].owner
    number = memory[tenant].limit
    pages = pages_of(cache, p)
    kept = SHADOW | (page[p].state & WORKINGSET)
    for q in range(p, p + pages):
        if page[q].state & UNUSED:
            memory[tenant].unused += 1
        page[q].left = limit[number].age & 0xFFFFFFFF
        page[q].owner = tenant
        page[q].state = kept
    memory[tenant].evicted += pages
    limit[number].age += pages
    limit[number].cached -= pages
    return pages


@compiled_lean
def remove(cache: Cache, p: int) -> None:
    """Takes a folio out of the cache for another reason than reclaim: it leaves no shadow entries
    (mm/truncate.c)."""
    take(cache, p)
    page = cache.page
    tenant = page[p].owner
    pages = pages_of(cache, p)
    for q in range(p, p + pages):
        if page[q].state & UNUSED:
            cache.memory[tenant].unused += 1
        page[q].state = 0
    cache.limit[cache.memory[tenant].limit].cached -= pages


@compiled_lean
def admit(cache: Cache, p: int, order: int, tenant: int, read: bool) -> None:
    """Adds a folio of absent pages; the caller has made room.

    A folio that is `read` again soon after an eviction becomes active: if no more pages than the
    active list has were evicted or activated since (workingset_refault, without swap). Of several
    evicted pages, the last counts. A write forgets the evictions (filemap_add_folio).
    """
    page = cache.page
    memory, limit = cache.memory, cache.limit
    number = memory[tenant].limit
    pages = 1 << order
    limit[number].cached += pages
    flags = PRESENT
    if read:
        cache.setting[0].read += pages
        flags |= UNUSED
        last = p + pages - 1
        while last >= p and not page[last].state & SHADOW:
            last -= 1
        if cache.setting[0].kernel and last >= p:
            before = memory[page[last].owner].limit
            memory[tenant].refaulted += pages
            distance = (limit[before].age - np.int64(page[last].left)) & 0xFFFFFFFF
            if cache.setting[0].exact:
                publish(cache, before)
            if distance <= limit[before].known_active:
                flags |= ACTIVE | (page[last].state & WORKINGSET)
                memory[tenant].activated += pages
                limit[number].age += pages
                limit[number].refaults += pages
    for q in range(p, p + pages):
        page[q].owner = tenant
        page[q].state = flags & (PRESENT | UNUSED)
        page[q].left = order
    page[p].state |= flags
    put_newest(cache, p)


@compiled_lean
def touch(cache: Cache, p: int) -> None:
    """Notes an access of a folio by a call.

    Two lists: the second access activates an inactive folio (folio_mark_accessed). LRU: moves the
    folio to the new end.
    """
    page = cache.page
    if not cache.setting[0].kernel:
        take(cache, p)
        put_newest(cache, p)
    elif not page[p].state & REFERENCED:
        page[p].state |= REFERENCED
    elif not page[p].state & ACTIVE:
        take(cache, p)
        page[p].state = (page[p].state | ACTIVE) & (ALL ^ REFERENCED)
        put_newest(cache, p)
        pages = pages_of(cache, p)
        tenant = page[p].owner
        cache.limit[cache.memory[tenant].limit].age += pages
        cache.memory[tenant].activated += pages
