"""Read-ahead in plain Python, from the rules of mm/readahead.c and mm/filemap.c (Linux 6.18).

It asks a cache (slow_page_cache.py) for folios of a file by index: `folio_at`, `add`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass


@dataclass
class Reader:
    """A struct file_ra_state; `ended` is the page of the last byte read."""

    random: bool = False
    start: int = 0
    size: int = 0
    async_size: int = 0
    order: int = 0
    ended: int | None = None
    mmap_miss: int = 0


def initial(request, most):
    size = 2 ** math.ceil(math.log2(request))
    if size <= most // 32:
        return 4 * size
    return 2 * size if size <= most // 4 else most


def following(size, most):
    if size < most // 16:
        return 4 * size
    return 2 * size if size <= most // 2 else most


def largest(page_kib):
    """Returns the pages that a fault maps at once (64 KiB), and the largest order of a folio."""
    return {4: (16, 9), 16: (4, 11), 64: (1, 11)}[page_kib]


class ReadAhead:
    """The read-ahead of one open file."""

    def __init__(self, file, reader, ra_pages, io_pages, large_folios, page_kib=4):
        self.file, self.reader = file, reader
        self.around, self.max_order = largest(page_kib)
        self.ra_pages, self.io_pages, self.large_folios = ra_pages, io_pages, large_folios

    def most(self, request):
        if request > self.ra_pages and self.io_pages > self.ra_pages:
            return min(request, self.io_pages)
        return self.ra_pages

    def read_singles(self, index, pages, ahead):
        pages = min(pages, self.file.size - index)
        for at in range(index, index + pages):
            if self.file.folio_at(at) is None:
                if self.file.add(at, 0) is None:
                    return
                if ahead and at == index + pages - ahead:
                    self.file.folio_at(at).marker = True

    def read_window(self):
        r = self.reader
        mark = r.start + r.size - r.async_size
        at = r.start
        if not self.large_folios:
            r.order = 0
        else:
            r.order = min(r.order, self.max_order, int(math.log2(r.size)))
            end = min(r.start + r.size, self.file.size)
            while at < end:
                orders = [o for o in range(r.order + 1) if at % 2**o == 0 and at + 2**o <= end]
                if any(self.file.folio_at(p) for p in range(at, at + 2 ** orders[-1])):
                    break
                folio = self.file.add(at, orders[-1])
                if folio is None:
                    break
                folio.marker = at <= mark < at + 2 ** orders[-1]
                at += 2 ** orders[-1]
            else:
                return
        if at < r.start + r.size:
            self.read_singles(at, r.start + r.size - at, r.async_size)

    def slot(self, index):
        """Returns where a walk that begins at `index` looks first: at the first page of the folio,
        if the folio is smaller than a node of 64 slots."""
        folio = self.file.folio_at(index)
        return folio.index if folio and folio.order < 6 else index

    def cached_before(self, index, most):
        counted, slot = index - 1, self.slot(index - 1)
        for seen in range(most):
            if slot < 0 or self.file.folio_at(slot) is None:
                return seen, slot < 0 and counted < 0
            counted -= 1
            node, offset = divmod(slot, 64)
            if offset:
                slot -= 1
            elif counted % 64:  # the previous node, at the offset of the count
                slot = 64 * (node - 1) + counted % 64
        return most - 1, False

    def next_absent(self, index, most):
        slot = self.slot(index)
        for counted in range(index, index + most):
            if self.file.folio_at(slot) is None:
                return counted
            slot = slot + 1 if (slot + 1) % 64 else counted + 1
        return index + most

    def sync(self, index, request, first):
        """Reads for a call that begins at `first`."""
        r = self.reader
        if self.ra_pages == 0:
            self.read_singles(index, 1, 0)
            return
        if r.random:
            self.read_singles(index, min(request, max(self.io_pages, self.ra_pages)), 0)
            return
        most = self.most(request)
        inside = r.ended == first  # the last read ended in this page; else at the end of its page
        follows = None if r.ended is None else r.ended + (not inside)
        sequential = follows is not None and index in (follows, follows + 1)
        if index == 0 or request > most or sequential:
            r.size = initial(request, most)
            r.async_size = r.size - request if r.size > request else r.size // 2
        else:
            before, whole = self.cached_before(index, most)
            if before <= request:
                self.read_singles(index, request, 0)
                return
            r.size = min((2 * before if whole else before) + request, most)
            r.async_size = 1
        r.start, r.order = index, 0
        self.read_window()

    def on(self, folio, index, request):
        """Reads on when a folio with the marker is accessed."""
        r = self.reader
        if self.ra_pages == 0:
            return
        folio.marker = False
        most = self.most(request)
        expected = r.start + r.size - r.async_size
        if index == expected - expected % 2**folio.order:
            r.start, r.size = r.start + r.size, max(r.size, following(r.size, most))
        else:
            start = self.next_absent(index + 1, most)
            if start - index > most:
                return
            r.start, r.size = start, following(start - index + request, most)
        r.order += 2
        align = 1
        while align < 2**r.order and most % (2 * align) == 0:
            align *= 2
        end = (r.start + r.size) // align * align
        if end > r.start:
            r.size = end - r.start
        r.async_size = r.size
        self.read_window()

    def map_around(self, index):
        hits = 0
        first = index // self.around * self.around
        for at in range(first, first + self.around):
            folio = self.file.folio_at(at)
            if folio and not folio.marker:
                hits += self.around == 1 or not folio.workingset
                if at not in folio.mapped:
                    folio.map(at)
        self.reader.mmap_miss = max(0, self.reader.mmap_miss - hits)

    def fault(self, index):
        """Returns whether the page was cached."""
        r = self.reader
        wanted = self.ra_pages > 0 and not r.random
        self.map_around(index)
        folio = self.file.folio_at(index)
        if folio is None:
            around = False
            if wanted:
                r.mmap_miss = min(r.mmap_miss + 1, 1000)
                around = r.mmap_miss <= 100
            if around:
                r.start, r.size = max(0, index - self.ra_pages // 2), self.ra_pages
                r.async_size, r.order = self.ra_pages // 4, 0
                self.read_window()
            if self.file.folio_at(index) is None and self.file.add(index, 0) is None:
                self.file.pass_through()
            if around:
                self.map_around(index)
        elif folio.marker and wanted:
            r.mmap_miss = max(0, r.mmap_miss - 1)
            self.on(folio, index, self.ra_pages)
            self.map_around(index)
        if now := self.file.folio_at(index):
            now.map(index)
        return folio is not None
