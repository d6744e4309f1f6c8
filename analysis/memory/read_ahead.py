"""The kernel's read-ahead: which pages a read or a fault makes the disk read (Linux 6.18).

Reads (mm/readahead.c): a missing page starts a window if the read is sequential, at the start of
the file or larger than the window (page_cache_sync_ra); a marker page in the window starts the next
one, twice or four times as long, up to `ra_pages` (page_cache_async_ra). Faults (mm/filemap.c): a
missing page reads `ra_pages` pages around it, unless most faults of late have missed
(do_sync_mmap_readahead); cached pages nearby are mapped at once (filemap_map_pages).

Indices are pages of a file. A read is known by its pages, not its bytes: it ends at the end of its
last page, or, if the next read of the reader begins in that page, inside of it. Pages that were
read ahead have arrived when they are accessed. The device's queue is never congested.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from tracer.analysis.memory.cache import (
    ALL,
    MAPPED,
    MARKER,
    PRESENT,
    UNUSED,
    WORKINGSET,
    YOUNG,
    Cache,
    admit,
)
from tracer.analysis.memory.reclaim import make_room
from tracer.probes.compiled import compiled_lean

NODE = 6
"""Bits of an index within a node of the tree that holds a file's folios (XA_CHUNK_SHIFT)."""
MANY_MISSES = 100
"""Misses of faults after which nothing is read around them (MMAP_LOTSAMISS)."""


class Opened(NamedTuple):
    """An open file: its reader, the tenant that is charged, the file's place among all pages."""

    reader: int
    tenant: int
    base: int
    size: int


@compiled_lean
def is_cached(cache: Cache, opened: Opened, index: int) -> Any:
    """Tells if a page of the file is cached."""
    return cache.page[opened.base + index].state & PRESENT != 0


@compiled_lean
def folio_of(cache: Cache, opened: Opened, index: int) -> Any:
    """Returns the first page of the folio that a cached page belongs to."""
    order = np.int64(cache.page[opened.base + index].left)
    return index >> order << order


@compiled_lean
def is_marker(cache: Cache, opened: Opened, index: int) -> Any:
    """Tells if a page belongs to a folio that has the marker."""
    if not is_cached(cache, opened, index):
        return False
    return cache.page[opened.base + folio_of(cache, opened, index)].state & MARKER != 0


@compiled_lean
def read_one(cache: Cache, opened: Opened, index: int) -> bool:
    """Reads one absent page. Returns False if there is no room to keep it."""
    if make_room(cache, opened.tenant, 1):
        admit(cache, opened.base + index, 0, opened.tenant, True)
        return True
    return False


@compiled_lean
def _initial_size(pages: int, most: int) -> int:
    # get_init_ra_size
    size = 1
    while size < pages:
        size *= 2
    if size <= most // 32:
        return size * 4
    if size <= most // 4:
        return size * 2
    return most


@compiled_lean
def _next_size(size: int, most: int) -> int:
    # get_next_ra_size
    if size < most // 16:
        return 4 * size
    if size <= most // 2:
        return 2 * size
    return most


@compiled_lean
def _most_pages(cache: Cache, asked: int) -> Any:
    # ractl_max_pages: a request may exceed the window, up to what the device reads at once.
    most = cache.setting[0].ra_pages
    if asked > most and cache.setting[0].io_pages > most:
        most = min(asked, cache.setting[0].io_pages)
    return most


@compiled_lean
def _read_each(cache: Cache, opened: Opened, index: int, pages: int, ahead: int) -> None:
    # Reads absent pages one by one; the marker is `ahead` pages before the end (do_page_cache_ra).
    last = opened.size - 1
    if index > last:
        return
    if pages > last - index:
        pages = last - index + 1
    marker = index + pages - ahead
    for at in range(index, index + pages):
        if not is_cached(cache, opened, at):
            if not read_one(cache, opened, at):
                return
            if at == marker:
                cache.page[opened.base + at].state |= MARKER


@compiled_lean
def _read_folio(cache: Cache, opened: Opened, index: int, order: int, marker: int) -> bool:
    # Reads one folio of 1 << order pages; False if a page of it is cached or nothing has room.
    pages = 1 << order
    for at in range(index, index + pages):
        if is_cached(cache, opened, at):
            return False
    if not make_room(cache, opened.tenant, pages):
        return False
    admit(cache, opened.base + index, order, opened.tenant, True)
    if index == (marker >> order) << order:
        cache.page[opened.base + index].state |= MARKER
    return True


@compiled_lean
def write_folio(cache: Cache, opened: Opened, index: int, pages: int) -> int:
    """Adds a folio for a write of `pages` from `index` on, which is absent: the largest that is
    aligned, not longer than the write and not cached in part (__filemap_get_folio). Returns its
    pages; if it has no room, it is not kept."""
    order = 0
    if cache.setting[0].large_folios:
        largest = cache.setting[0].max_order
        while order < largest and 2 << order <= pages and not index & ((2 << order) - 1):
            order += 1
    while order:
        fits = make_room(cache, opened.tenant, 1 << order)
        for at in range(index, index + (1 << order)):
            fits = fits and not is_cached(cache, opened, at)
        if fits:
            break
        order -= 1
    if order or make_room(cache, opened.tenant, 1):
        admit(cache, opened.base + index, order, opened.tenant, False)
    return 1 << order


@compiled_lean
def _read_window(cache: Cache, opened: Opened) -> None:
    # Reads the window of a reader, in folios of its order (page_cache_ra_order).
    reader = cache.reader
    start, size = reader[opened.reader].start, reader[opened.reader].length
    ahead = reader[opened.reader].ahead
    index = start
    if cache.setting[0].large_folios:
        last = min(opened.size, start + size) - 1
        largest = 0
        most = min(cache.setting[0].max_order, reader[opened.reader].order)
        while largest < most and 2 << largest <= size:
            largest += 1
        reader[opened.reader].order = largest
        whole = True
        while index <= last and whole:
            order = 0
            while order < largest and not index & ((2 << order) - 1):
                order += 1
            while order and index + (1 << order) - 1 > last:
                order -= 1
            whole = _read_folio(cache, opened, index, order, start + size - ahead)
            if whole:
                index += 1 << order
        if whole:
            return
    else:
        reader[opened.reader].order = 0
    if size > index - start:
        _read_each(cache, opened, index, size - (index - start), ahead)


@compiled_lean
def _first_looked(cache: Cache, opened: Opened, index: int) -> Any:
    # The kernel's walks over cached pages count pages from `index`, but look at pages from the
    # first one of its folio on, unless the folio fills a node of the tree. They look at the page
    # that they count again when they come to another node.
    if index >= opened.size or not is_cached(cache, opened, index):
        return index
    small = cache.page[opened.base + index].left < NODE
    return folio_of(cache, opened, index) if small else index


@compiled_lean
def _cached_before(cache: Cache, opened: Opened, index: int, most: int) -> Any:
    # Returns the cached pages directly before `index`, and if they begin with the file. If it looks
    # at `most` cached pages, the last of them counts as absent (page_cache_prev_miss).
    in_node = (1 << NODE) - 1
    counted = index - 1
    looked = _first_looked(cache, opened, counted)
    for count in range(most):
        if looked < 0:
            return count, counted < 0
        if not is_cached(cache, opened, looked):
            return count, False
        counted -= 1
        if looked & in_node:
            looked -= 1
        elif counted & in_node:
            looked += (counted & in_node) - (1 << NODE)
    return most - 1, False


@compiled_lean
def _next_absent(cache: Cache, opened: Opened, index: int, most: int) -> int:
    # Returns the first absent page from `index` on, looking at `most` pages (page_cache_next_miss).
    looked = _first_looked(cache, opened, index)
    for counted in range(index, index + most):
        if looked >= opened.size or not is_cached(cache, opened, looked):
            return counted
        looked += 1
        if looked & ((1 << NODE) - 1) == 0:
            looked = counted + 1
    return index + most


@compiled_lean
def read_missing(cache: Cache, opened: Opened, index: int, asked: int, ended: int) -> None:
    """Reads for a call that needs `asked` pages from `index` on, which is absent; the reader's last
    read ended in the page `ended`, or at its beginning (page_cache_sync_ra)."""
    reader = cache.reader
    r = opened.reader
    ra_pages, io_pages = cache.setting[0].ra_pages, cache.setting[0].io_pages
    if ra_pages == 0 or reader[r].random:
        left = 1 if ra_pages == 0 else min(asked, max(io_pages, ra_pages))
        chunk = cache.setting[0].chunk
        while left > 0:
            _read_each(cache, opened, index, min(left, chunk), 0)
            index += chunk
            left -= chunk
        return
    most = _most_pages(cache, asked)
    if index == 0 or asked > most or 0 <= index - ended <= 1:
        reader[r].start = index
        size = _initial_size(asked, most)
        reader[r].length = size
        reader[r].ahead = size - asked if size > asked else size >> 1
    else:
        before, from_start = _cached_before(cache, opened, index, most)
        if before <= asked:
            _read_each(cache, opened, index, asked, 0)
            return
        if from_start:
            before *= 2
        reader[r].start = index
        reader[r].length = min(before + asked, most)
        reader[r].ahead = 1
    reader[r].order = 0
    _read_window(cache, opened)


@compiled_lean
def read_on(cache: Cache, opened: Opened, index: int, asked: int) -> None:
    """Reads the next window, if any; `index` is in the folio that has the marker
    (page_cache_async_ra). A read gives the folio's first page, a fault its own page."""
    reader = cache.reader
    r = opened.reader
    if cache.setting[0].ra_pages == 0:
        return
    cache.page[opened.base + folio_of(cache, opened, index)].state &= ALL ^ MARKER
    order = np.int64(cache.page[opened.base + index].left)
    most = _most_pages(cache, asked)
    expected = reader[r].start + reader[r].length - reader[r].ahead
    if index == (expected >> order) << order:
        reader[r].start += reader[r].length
        reader[r].length = max(reader[r].length, _next_size(reader[r].length, most))
    else:
        start = _next_absent(cache, opened, index + 1, most)
        if start - index > most:
            return
        reader[r].start = start
        reader[r].length = _next_size(start - index + asked, most)
    reader[r].order += 2
    # The end is aligned to folios: to the largest that divides `most`, if that is smaller.
    align = min(1 << reader[r].order, most & -most)
    start = reader[r].start
    end = start + reader[r].length
    aligned = end - end % align
    if aligned > start:
        reader[r].length = aligned - start
    reader[r].ahead = reader[r].length
    _read_window(cache, opened)


@compiled_lean
def _map_around(cache: Cache, opened: Opened, index: int) -> None:
    # Maps the cached pages around a fault, without markers. Each counts as a hit, unless it was in
    # the working set (filemap_map_pages). A fault that maps one page, as with those of 64 KiB,
    # always counts as one (should_fault_around, do_async_mmap_readahead).
    page, reader = cache.page, cache.reader
    around = cache.setting[0].fault_around
    first = index - index % around
    hits = 0
    for at in range(first, min(first + around, opened.size)):
        p = opened.base + at
        if is_cached(cache, opened, at) and not is_marker(cache, opened, at):
            folio = opened.base + folio_of(cache, opened, at)
            if around == 1 or not page[folio].state & WORKINGSET:
                hits += 1
            if not page[p].state & MAPPED:
                page[p].state = (page[p].state | MAPPED) & (ALL ^ UNUSED)
                page[folio].state |= YOUNG
    reader[opened.reader].misses = max(0, reader[opened.reader].misses - hits)


@compiled_lean
def fault(cache: Cache, opened: Opened, index: int) -> Any:
    """Handles the fault of a page that is not mapped. Returns False if the page had to be read.

    A page that a fault maps counts as used, since later accesses cause no fault.
    """
    page, reader = cache.page, cache.reader
    r = opened.reader
    p = opened.base + index
    ra_pages = cache.setting[0].ra_pages
    ahead = ra_pages > 0 and not reader[r].random
    _map_around(cache, opened, index)
    was_cached = is_cached(cache, opened, index)
    if was_cached:
        if ahead and is_marker(cache, opened, index):
            reader[r].misses = max(0, reader[r].misses - 1)
            read_on(cache, opened, index, ra_pages)
            _map_around(cache, opened, index)
    else:
        around = False
        if ahead:
            reader[r].misses = min(reader[r].misses + 1, 10 * MANY_MISSES)
            around = reader[r].misses <= MANY_MISSES
        if around:
            reader[r].start = max(0, index - ra_pages // 2)
            reader[r].length = ra_pages
            reader[r].ahead = ra_pages // 4
            reader[r].order = 0
            _read_window(cache, opened)
        if not is_cached(cache, opened, index) and not read_one(cache, opened, index):
            cache.setting[0].read += 1
        if around:
            _map_around(cache, opened, index)
    if is_cached(cache, opened, index):
        page[p].state = (page[p].state | MAPPED) & (ALL ^ UNUSED)
        page[opened.base + folio_of(cache, opened, index)].state |= YOUNG
    return was_cached
